"""The folder in which a cluster's head keeps what a head must know: with it the cluster starts again after all of its
processes have ended. docs/design/0026-restart.md says what is kept, when it is on disk, and what is not kept.

    lock          held by the daemon that writes here; the kernel lets go of it when that daemon dies
    about.json    the format, and who has written it
    token         the cluster's
    jobs/         the files of submitted jobs that ran on the head
    rows-N/       the rows, as a storage of the control store; the highest N that has a snapshot counts
    superseded    another node was the head after this one: says which

`HeadFolder` is used by the daemon's thread. It writes in a thread of its own, so no request waits for a disk but the
one that asks to be kept; what comes while the disk is busy is written as one entry. With fsync "periodic" a second
thread waits for the disk, which may take long, while the first goes on.

Invariants:
    FOL-1  one process at a time has the folder open.
    FOL-2  `done` is called after the change is in the log (fsync "always": and on the disk), unless the folder has
           refused a change: from then on the head goes on without it, says so, and catches up as soon as it can.
    FOL-3  at any moment of a kill the folder holds the rows of one moment, not before the last `done`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import queue
import shutil
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeAlias

import msgspec

from weft.machine import own_folders
from weft.machine.start_error import StartError
from weft.net.loop import Loop
from weft.store import journal
from weft.store.embedded import EmbeddedStorage
from weft.store.state.chain_messages import Entry
from weft.store.state.chain_rows import Key, Put, Row, Write
from weft.store.storage import StorageDamaged, StorageRefused
from weft.store.tables import HEADS

FORMAT = 1
"""Of the folder and of the rows in it; one more when an older Weft could not read it, or would read it wrongly."""
SYNC_S = 0.2
AGAIN_S = 1.0
"""After so long a folder that refused a change is tried again."""
EPOCH = b"epoch"
"""The row, in the table of heads, of the epoch in which the rows were written."""
Tables: TypeAlias = dict[str, list[tuple[bytes, bytes]]]
_Done: TypeAlias = Callable[[object, str], None]


def path_of(state_folder: str | Path, cluster: str) -> Path:
    """Where the head of that cluster keeps its rows, if nothing else is said."""
    return Path(state_folder, f"store-{cluster.replace(':', '-')}")


def token_in(path: str | Path) -> bytes:
    """The token of the cluster that was kept there; empty for none."""
    with contextlib.suppress(OSError):
        return Path(path, "token").read_bytes().strip()
    return b""


def supersede(path: Path, by: str) -> None:
    """What another head has kept elsewhere is newer. Nothing happens where there is no folder, or it is in use."""
    with contextlib.suppress(OSError):
        if (path / "about.json").exists():
            lock = _lock(path)
            try:
                _write_file(path / "superseded", by.encode())
            finally:
                os.close(lock)


def forget(path: Path) -> None:
    """Remove it, if nobody has it open."""
    with contextlib.suppress(OSError):
        lock = _lock(path)
        try:
            shutil.rmtree(path)
        finally:
            os.close(lock)


def row_of_epoch(epoch: int) -> Put:
    return Put(HEADS, EPOCH, msgspec.msgpack.encode(epoch))


def epoch_in(tables: Tables) -> int:
    found = dict(tables.get(HEADS, [])).get(EPOCH)
    return 0 if found is None else msgspec.msgpack.decode(found, type=int)


def tables_in(path: Path) -> Tables:
    """All rows of a folder whose head has ended. StartError while one runs, or where they cannot be read."""
    if not (path / "about.json").exists():
        raise StartError(f"{path} is no folder of a store: give the one that the head had as --store")
    try:
        lock = _lock(path)
    except BlockingIOError:
        raise StartError(f"the store in {path} is in use by a head ({_holder(path)}): ask that head") from None
    try:
        whole = [rows for _, rows in _generations(path) if journal.numbered(rows, "snapshot")]
        if not whole:
            return {}
        storage = EmbeddedStorage(whole[-1], "never")
        try:
            return _tables_of(storage)
        finally:
            storage.close()
    except (StorageDamaged, StorageRefused, OSError) as error:
        raise StartError(f"what the head has kept in {path} cannot be read: {error}") from None
    finally:
        os.close(lock)


class HeadFolder:
    """One daemon's hold on a folder."""

    def __init__(self, loop: Loop, path: Path, token: bytes, fsync: str = "periodic") -> None:
        self.path = path
        self._loop = loop
        self._token = token
        self._fsync = fsync
        self._lock_fd = -1
        self._storage: EmbeddedStorage | None = None
        self._commands: queue.SimpleQueue[_Command] = queue.SimpleQueue()
        self._done: deque[_Done] = deque()
        """What the writer has done, for the loop: appended by the one thread, taken by the other."""
        self._wake_fd = -1
        self._thread: threading.Thread | None = None
        # Of the writer's thread alone:
        self._pending: dict[Key, bytes | None] = {}
        self._begins: list[Row] | None = None
        self._is_behind = False
        self._synced_at = 0.0
        self._syncs: ThreadPoolExecutor | None = None
        self._is_syncing = False

    @property
    def is_open(self) -> bool:
        return self._lock_fd >= 0

    def open(self, is_successor: bool = False) -> None:
        """StartError when another has it, or it is not for us. `is_successor`: what is in it will not be read."""
        try:
            own_folders.make_closed(self.path)
            journal.sync_folder(self.path.parent)
            self._lock_fd = _lock(self.path)
        except BlockingIOError:
            raise StartError(
                f"the store in {self.path} is in use by another head ({_holder(self.path)}), and one head at a time "
                "may use it. End that one with `weft stop`, or give this one another folder (--store PATH) or none "
                "(--no-store)"
            ) from None
        except OSError as error:
            raise StartError(f"the store in {self.path} cannot be opened: {error.strerror or error}") from None
        try:
            self._check(is_successor)
        except (OSError, StartError) as error:
            self._unlock()
            if isinstance(error, StartError):
                raise
            raise StartError(f"the store in {self.path} cannot be begun: {error.strerror or error}") from None

    def read(self) -> Tables:
        """All rows, empty for a new folder; what is kept from now on comes behind them. StartError: damage."""
        try:
            generations = _generations(self.path)
            whole = [path for _, path in generations if journal.numbered(path, "snapshot")]
            for _, path in generations:
                if not whole or path != whole[-1]:
                    shutil.rmtree(path)
            if whole:
                self._storage = EmbeddedStorage(whole[-1], self._fsync)
        except (StorageDamaged, StorageRefused, OSError) as error:
            self._unlock()
            raise StartError(
                f"what the head has kept cannot be read: {error}. To begin anew move {self.path} away"
            ) from None
        tables = {} if self._storage is None else _tables_of(self._storage)
        if self._storage is None:
            self._commands.put(_Begin([]))
        self._start()
        return tables

    def begin(self, tables: Tables, epoch: int) -> None:
        """In place of all that it has: these rows; what is kept from now on comes behind them."""
        rows = [(table, key, value) for table, rows in tables.items() for key, value in rows]
        epoch_row = row_of_epoch(epoch)
        self._commands.put(_Begin([*rows, (epoch_row.table, epoch_row.key, epoch_row.value)]))
        self._start()

    def keep(self, batch: Sequence[Write], done: _Done) -> None:
        changes = [(one.table, one.key, one.value if isinstance(one, Put) else None) for one in batch]
        self._commands.put(_Keep(changes, done))

    def close(self) -> None:
        """All that was to be kept is on disk after this."""
        if self._thread is not None:
            self._commands.put(None)
            self._thread.join()
            self._thread = None
            self._loop.unwatch(self._wake_fd)
            os.close(self._wake_fd)
        self._unlock()

    # ---- the folder ----

    def _unlock(self) -> None:
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def _check(self, is_successor: bool) -> None:
        about, mark = self.path / "about.json", self.path / "superseded"
        python = "{}.{}".format(*sys.version_info)
        if about.exists() and not is_successor:
            try:
                found = json.loads(about.read_bytes())
            except ValueError as error:
                raise StartError(f"{about} is damaged: {error}. To begin anew move {self.path} away") from None
            if found.get("format") != FORMAT:
                raise StartError(
                    f"the store in {self.path} has the format {found.get('format')}, and this Weft reads {FORMAT}: "
                    "start it with the Weft that has written it, or give this one another folder (--store PATH)"
                )
            if found.get("python") != python:
                raise StartError(
                    f"the store in {self.path} was written with Python {found.get('python')}, and this is {python}: "
                    "classes of actors cannot be read by another one. Start it with that Python, or give this one "
                    "another folder (--store PATH)"
                )
            if mark.exists():
                raise StartError(
                    f"the store in {self.path} is not the newest: {mark.read_text()}. Start the head there, with its "
                    f"--store; or remove {mark} to begin from this older one"
                )
        elif not about.exists() and (others := _others_in(self.path)):
            raise StartError(
                f"{self.path} is no folder of a store, and has other files in it ({others[0]}): give --store a folder "
                "that is empty or not there yet"
            )
        _write_file(self.path / "token", self._token)
        _write_file(about, json.dumps({"format": FORMAT, "python": python}).encode())
        mark.unlink(missing_ok=True)

    # ---- the writer's thread ----

    def _start(self) -> None:
        if self._thread is None:
            self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self._loop.watch(self._wake_fd, self._answer)
            self._thread = threading.Thread(target=self._write_all, name="weft-head-folder", daemon=True)
            self._thread.start()

    def _answer(self) -> None:
        """In the loop: the changes that the writer has kept."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake_fd)
        while self._done:
            self._done.popleft()(None, "")

    def _write_all(self) -> None:
        is_over = False
        while not is_over:
            kept: list[_Done] = []
            for command in self._take():
                if command is None:
                    is_over = True
                elif isinstance(command, _Begin):
                    self._begins, self._pending = command.rows, {}
                elif isinstance(command, _Synced):
                    self._is_syncing = False
                    if command.error:
                        self._write_all_again(f"the log cannot be made durable: {command.error}")
                else:
                    self._pending.update({(table, key): value for table, key, value in command.changes})
                    kept.append(command.done)
            self._write_pending()
            if kept:
                self._done.extend(kept)
                os.eventfd_write(self._wake_fd, 1)
            self._sync_if_due()
        if self._syncs is not None:
            self._syncs.shutdown()
        if self._storage is not None:
            with contextlib.suppress(StorageDamaged, StorageRefused):
                self._storage.close()

    def _sync_if_due(self) -> None:
        if self._storage is None or not self._is_unsynced:
            return
        if time.monotonic() - self._synced_at < SYNC_S:
            return
        if self._syncs is None:
            self._syncs = ThreadPoolExecutor(1, "weft-head-sync")
        try:
            fd = self._storage.to_be_synced()
        except OSError:  # no descriptor is left: at a later time
            return
        self._synced_at, self._is_syncing = time.monotonic(), True
        self._syncs.submit(self._sync, fd)

    def _sync(self, fd: int) -> None:
        """In a thread of its own."""
        error = ""
        try:
            os.fdatasync(fd)
        except OSError as failed:
            error = failed.strerror or str(failed)
        finally:
            os.close(fd)
        self._commands.put(_Synced(error))

    def _take(self) -> list[_Command]:
        """What has come; at least one, unless something is to be done soon in any case."""
        wait_s = AGAIN_S if self._is_behind else SYNC_S if self._is_unsynced else None
        found: list[_Command] = []
        with contextlib.suppress(queue.Empty):
            found.append(self._commands.get(timeout=wait_s))
            while True:
                found.append(self._commands.get_nowait())
        return found

    @property
    def _is_unsynced(self) -> bool:
        """Whether something is to be synced, and is not being."""
        if self._storage is None or self._fsync != "periodic":
            return False
        return not self._is_syncing and not self._storage.is_synced

    def _write_pending(self) -> None:
        try:
            if self._begins is not None:
                self._make_generation(self._begins)
                self._begins = None
            assert self._storage is not None
            if self._pending:
                changes = [(table, key, value) for (table, key), value in self._pending.items()]
                self._storage.apply([Entry(self._storage.applied + 1, changes)])
                self._pending = {}
        except (StorageRefused, OSError) as error:
            self._fell_behind(str(error))
        except StorageDamaged as error:
            self._write_all_again(str(error))
        except Exception as error:  # a writer that ended would leave every answer waiting
            self._write_all_again(repr(error))
        else:
            if self._is_behind:
                self._is_behind = False
                print(f"weft: the head's store in {self.path} has all that it missed", file=sys.stderr, flush=True)

    def _write_all_again(self, why: str) -> None:
        """What of the log is on the disk nobody can say."""
        self._fell_behind(why)
        if self._begins is None and self._storage is not None:
            self._begins = _rows_left(self._storage)

    def _fell_behind(self, why: str) -> None:
        if not self._is_behind:
            self._is_behind = True
            text = f"the head goes on without its store in {self.path}, which it tries again each second: {why}"
            print(f"weft: {text}. Until then a restart would miss what changes now", file=sys.stderr, flush=True)

    def _make_generation(self, rows: list[Row]) -> None:
        """A new one beside the old, which counts as soon as it is whole."""
        generations = _generations(self.path)
        number = generations[-1][0] + 1 if generations else 1
        storage = EmbeddedStorage(self.path / f"rows-{number}", self._fsync)
        try:
            storage.load(rows, True, 0)
        except BaseException:
            storage.clear()
            raise
        journal.sync_folder(self.path)
        if self._storage is not None:
            with contextlib.suppress(StorageDamaged):
                self._storage.close()
        self._storage = storage
        for _, old in generations:
            shutil.rmtree(old, ignore_errors=True)


class _Begin(msgspec.Struct):
    rows: list[Row]


class _Keep(msgspec.Struct):
    changes: list[tuple[str, bytes, bytes | None]]
    done: _Done


class _Synced(msgspec.Struct):
    """The disk has what was to be synced, or (`error`) has failed."""

    error: str


_Command: TypeAlias = _Begin | _Keep | _Synced | None
"""None: close."""


def _lock(path: Path) -> int:
    """BlockingIOError when another process has it."""
    fd = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"pid {os.getpid()} on {os.uname().nodename}".encode(), 0)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _holder(path: Path) -> str:
    with contextlib.suppress(OSError):
        return (path / "lock").read_text() or "it has just begun"
    return "it cannot be asked"


def _others_in(path: Path) -> list[str]:
    """What is there beside what a start that was killed early leaves."""
    return sorted(set(os.listdir(path)) - {"lock", "token", "token.part", "about.json.part"})


def _write_file(path: Path, data: bytes) -> None:
    """Whole or not at all; only its user can read it."""
    temporary = path.with_name(f"{path.name}.part")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    journal.sync_folder(path.parent)


def _generations(path: Path) -> list[tuple[int, Path]]:
    return journal.numbered(path, "rows")


def _rows_left(storage: EmbeddedStorage) -> list[Row]:
    """Of one that is damaged: all, or what is in memory."""
    with contextlib.suppress(StorageDamaged, StorageRefused):
        return _all_rows(storage)
    return list(storage.rows_in_memory())


def _tables_of(storage: EmbeddedStorage) -> Tables:
    tables: Tables = {}
    for table, key, value in _all_rows(storage):
        tables.setdefault(table, []).append((key, value))
    return tables


def _all_rows(storage: EmbeddedStorage) -> list[Row]:
    found, after = storage.rows_after(None)
    while after is not None:
        rows, after = storage.rows_after(after)
        found += rows
    return found
