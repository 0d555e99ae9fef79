"""The actor that a trainer's loop runs in. The loop has the actor's own thread; reports leave by another.

Reports go through one thread that writes checkpoints, so they stay in order, and rank 0's is in the outbox only when
its checkpoint lies in the storage (or is in the report, where this machine cannot see the storage). Other ranks say at
once that a part of a checkpoint is coming; the part is a folder that the driver joins to rank 0's.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import queue
import shutil
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import weft
from weft import cloudpickle
from weft.library.checkpoint import STATE_FILE, Checkpoint
from weft.library.storage import LocalStorage, Storage, new_folder, pack, unpack
from weft.train import backends
from weft.train.group import Meeting
from weft.train.session import TrainContext, set_current

__all__ = ["CONTROL", "MARKER", "Assignment", "Place", "Report", "TrainWorker", "read_packed", "write_packed"]

CONTROL = "control"
MARKER = ".trainer"
HEARTBEAT_S = 0.5
WRITES_AHEAD = 2
"""How many reports may wait for their checkpoints to be written before the loop waits."""


@dataclass(frozen=True)
class Assignment:
    """One worker's part of one generation."""

    loop: Callable[..., Any]
    config: dict[str, Any]
    backend: str
    addresses: tuple[str, ...]
    """One for each rank, where it can listen; none for Weft's own groups."""
    timeout_s: float
    rank: int
    nodes: tuple[str, ...]
    """On which each worker is."""
    generation: int
    trainer: str
    run_id: str
    meeting: Any
    shards: dict[str, Any]
    storage: Storage
    checkpoint: str | None
    packed: dict[str, bytes] | None
    """The checkpoint's files, for workers that cannot see the storage."""
    first_checkpoint: int
    """The number of the next checkpoint."""


@dataclass(frozen=True)
class Place:
    node_id: str
    pid: int


@dataclass(frozen=True)
class Report:
    """Of rank 0: `checkpoint` is its name in the storage; with `packed` it still has to be written there. Of others:
    that they have reported, and in another report their part of the checkpoint, as a folder or packed."""

    metrics: dict[str, Any]
    checkpoint: str | None = None
    packed: dict[str, bytes] | None = None
    number: int = 0
    """Of this rank's reports in this generation, from 0."""
    is_coming: bool = False
    """A part of the checkpoint follows."""


class EndOfGeneration(BaseException):
    """Raised by `report` when the loop shall start anew with other workers."""


class TrainWorker:
    def __init__(self) -> None:
        self._outbox: queue.SimpleQueue[Report] = queue.SimpleQueue()
        self._ending = threading.Event()
        self._loop_thread = 0

    def place(self) -> Place:
        return Place(weft.get_runtime_context().get_node_id(), os.getpid())

    def free_address(self, ip: str) -> str:
        return backends.free_address(ip)

    def meeting(self, size: int) -> Meeting:
        """For the workers of a generation, of which this is rank 0."""
        return Meeting(size)

    def run(self, assignment: Assignment) -> bool:
        """Run the loop; whether it came to its own end."""
        self._ending.clear()
        self._loop_thread = threading.get_ident()
        with _WorkerSession(assignment, self._outbox, self._ending) as session:
            context = session.context
            with backends.running(assignment.backend, context, assignment.addresses, assignment.timeout_s):
                try:
                    assignment.loop(*([assignment.config] if _takes_config(assignment.loop) else []))
                except EndOfGeneration:
                    return False
        return True

    @weft.method(concurrency_group=CONTROL)
    def take(self, wait_s: float = HEARTBEAT_S) -> list[Report]:
        """The reports that are there, at the latest after `wait_s`."""
        taken = []
        with contextlib.suppress(queue.Empty):
            taken.append(self._outbox.get(timeout=wait_s) if wait_s else self._outbox.get_nowait())
            while True:
                taken.append(self._outbox.get_nowait())
        return taken

    @weft.method(concurrency_group=CONTROL)
    def end_generation(self) -> None:
        """Let the loop end at its next report with a checkpoint."""
        self._ending.set()

    @weft.method(concurrency_group=CONTROL)
    def stacks(self) -> str:
        """Where the loop is, and in short where the other threads are."""
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        lines: list[str] = []
        for ident, frame in sys._current_frames().items():
            frames = traceback.extract_stack(frame)
            if ident == self._loop_thread:
                own = [number for number, one in enumerate(frames) if one.filename == __file__ and one.name == "run"]
                lines[:0] = traceback.format_list(frames[own[-1] + 1 :] if own else frames)
            elif ident != threading.get_ident():
                last = frames[-1]
                lines.append(f"  thread {names.get(ident, ident)}: {last.filename}:{last.lineno} in {last.name}\n")
        return "".join(lines)


class _WorkerSession:
    """What `train.report` and its like find in this process."""

    def __init__(self, assignment: Assignment, outbox: queue.SimpleQueue[Report], ending: threading.Event) -> None:
        self._assignment, self._outbox, self._ending = assignment, outbox, ending
        storage = assignment.storage
        sees = storage.read(MARKER) == assignment.run_id.encode()
        self._storage = storage if sees else None
        self._checkpoints = assignment.first_checkpoint
        self._reports = 0
        self._unpacked = contextlib.ExitStack()
        self._writes: queue.Queue[Callable[[], None] | None] = queue.Queue(WRITES_AHEAD)
        self._writer = threading.Thread(target=self._write_all, name="weft-train-checkpoints", daemon=True)
        self._failure: Exception | None = None
        self.context = TrainContext(
            assignment.rank,
            assignment.nodes,
            assignment.generation,
            assignment.trainer,
            assignment.meeting,
        )
        self.shards: Mapping[str, Any] = assignment.shards
        self.checkpoint = self._loaded()

    def _loaded(self) -> Checkpoint | None:
        if self._assignment.checkpoint is None:
            return None
        if self._storage is not None:
            return Checkpoint(storage=self._storage, name=self._assignment.checkpoint)
        folder = self._unpacked.enter_context(tempfile.TemporaryDirectory(prefix="weft-train-"))
        unpack(self._assignment.packed or {}, Path(folder))
        return Checkpoint(folder)

    def __enter__(self) -> _WorkerSession:
        set_current(self)
        self._writer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        set_current(None)
        self.context.close()
        self._writes.put(None)
        self._writer.join()
        self._unpacked.close()
        if kind is None and self._failure is not None:
            raise self._failure

    def report(self, metrics: Mapping[str, Any], checkpoint: Any) -> None:
        if self._failure is not None:
            raise self._failure
        number, is_head = self._reports, self._assignment.rank == 0
        self._reports += 1
        if not is_head:
            self._outbox.put(Report({}, number=number, is_coming=checkpoint is not None))
        plain = {name: _plain(value) for name, value in metrics.items()} if is_head else {}
        if checkpoint is None:
            if is_head:
                self._writes.put(lambda: self._outbox.put(Report(plain, number=number)))
            return
        name = f"checkpoint_{self._checkpoints:06d}" if is_head else None
        self._checkpoints += 1
        folder = new_folder(self._storage)
        finish = _capture(checkpoint, folder)
        self._writes.put(lambda: self._store(Report(plain, name, number=number), folder, finish))
        if self._ending.is_set():
            raise EndOfGeneration

    def _store(self, report: Report, folder: Path, finish: Callable[[], None]) -> None:
        finish()
        if self._storage is not None and report.checkpoint is not None:
            self._storage.put_folder(folder, report.checkpoint)
        elif isinstance(self._storage, LocalStorage):
            report = replace(report, checkpoint=str(folder))
        else:
            report = replace(report, packed=pack(folder))
            shutil.rmtree(folder, ignore_errors=True)
        self._outbox.put(report)

    def _write_all(self) -> None:
        for write in iter(self._writes.get, None):
            if self._failure is None:
                try:
                    write()
                except Exception as error:  # the loop's next report raises it
                    self._failure = error


def _capture(checkpoint: Any, folder: Path) -> Callable[[], None]:
    """Take what the loop may change or delete afterwards; returns what is left to do."""
    if isinstance(checkpoint, Mapping):
        data = cloudpickle.dumps(dict(checkpoint))
        return lambda: _write_state(folder, data)
    if isinstance(checkpoint, str | os.PathLike):
        checkpoint = Checkpoint.from_directory(checkpoint)
    if not isinstance(checkpoint, Checkpoint):
        raise TypeError(f"checkpoint must be a dictionary, a folder or a Checkpoint, but got {checkpoint!r}")
    checkpoint.write_to(str(folder))
    return lambda: None


def _write_state(folder: Path, data: bytes) -> None:
    (folder / STATE_FILE).write_bytes(data)


def _plain(value: Any) -> Any:
    """Numbers of NumPy, PyTorch and JAX as Python's."""
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", None) == 0 else value


def _takes_config(loop: Callable[..., Any]) -> bool:
    return bool(inspect.signature(loop).parameters)


def read_packed(storage: Storage, name: str) -> dict[str, bytes]:
    """A checkpoint's files, to send."""
    with storage.folder(name) as folder:
        return pack(folder)


def write_packed(storage: Storage, name: str, files: Mapping[str, bytes]) -> None:
    """Bring a checkpoint's files to the storage."""
    folder = new_folder(storage)
    unpack(files, folder)
    storage.put_folder(folder, name)
