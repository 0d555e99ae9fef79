"""Data-parallel training: the same loop in several workers, with checkpoints, through deaths and newcomers.

>>> import numpy as np
>>> from weft import train
>>> def loop():
...     context = train.get_context()
...     total = context.group.all_reduce(np.array([context.rank + 1.0]))
...     train.report({"total": total[0]})
>>> train.Trainer(loop, workers=2).fit().metrics
{'total': 3.0}

Elastic: with `min_workers` the training begins with as many workers as there is room for. When one is lost, or another
can be had, the loop starts anew in all of them from the last checkpoint, with other ranks and another size; take
`context.share(global_batch)` of each batch and the global batch stays what it was.
"""

from __future__ import annotations

import math
import os
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import weft
from weft.library.checkpoint import Checkpoint
from weft.library.checks import above, at_least, between, one_of
from weft.library.keywords import answers_attributes, answers_keywords
from weft.library.progress import ProgressLine
from weft.library.storage import Storage, new_folder, open_storage
from weft.train.assembly import Whole
from weft.train.backends import BACKENDS, keeps_processes
from weft.train.board import TrainBoard
from weft.train.crew import Crew, Member
from weft.train.errors import DivergedError, WorkersLostError
from weft.train.generation import End, Generation
from weft.train.history import LOG, History
from weft.train.kept_config import changed_config, keep_config
from weft.train.parts import add_parts
from weft.train.shares import split_dataset
from weft.train.worker import MARKER, Assignment, Report, read_packed, write_packed
from weft.util.html_table import html_table

__all__ = ["Result", "Trainer"]

RESULTS = "~/weft_results"
SHOWN_METRICS = 4
"""In the line at the terminal."""


@answers_attributes("what was reported is in .metrics and .history")
@dataclass(frozen=True)
class Result:
    """What a training came to. `history` has every report of rank 0 in order, each once."""

    metrics: dict[str, Any]
    checkpoint: Checkpoint | None
    history: list[dict[str, Any]]
    path: str

    def _repr_html_(self) -> str:
        """For notebooks: the last report."""
        rows = [[key, value] for key, value in self.metrics.items()]
        return html_table(["", "value"], rows, f"a training of {len(self.history)} reports", self.path)


@answers_keywords(
    num_workers="write workers=2",
    scaling_config='write workers=2, resources={"CPU": 1, "GPU": 1}',
    resources_per_worker='write resources={"CPU": 1}, which each worker has',
    use_gpu='write resources={"CPU": 1, "GPU": 1}',
    run_config="write name=..., storage_path=..., failures=..., keep_checkpoints=...",
    train_loop_per_worker="the loop is the first argument: Trainer(loop, workers=2)",
    train_loop_config="write config={...}",
    torch_config='write backend="torch"',
    dataset='write datasets={"train": dataset}',
    resume_from_checkpoint="give it the name= of the run to go on with, or read a checkpoint in the loop",
)
@answers_attributes(
    restore="the same name= and storage_path= go on with a run: Trainer(loop, name=...).fit()",
    run="write fit()",
    start="write fit()",
    train="write fit()",
)
@dataclass(frozen=True)
class Trainer:
    """`fit()` trains here; `tune.Tuner(trainer, param_space=…)` trains one for each configuration.

    >>> from weft import train
    >>> def loop(config):
    ...     group = train.get_context().group
    ...     train.report({"sum": float(group.all_reduce(np.array([1.0 + group.rank]), "sum")[0])})
    >>> import numpy as np
    >>> Trainer(loop, workers=2, storage_path="trained").fit().metrics["sum"]
    3.0
    """

    loop: Callable[..., Any]
    """Takes the config, or nothing."""
    workers: int = 1
    """The most there are at a time."""
    min_workers: int | None = None
    """The fewest it goes on with; by default it waits for all."""
    resources: Mapping[str, float] = field(default_factory=lambda: {"CPU": 1})
    """Of each worker."""
    config: Mapping[str, Any] = field(default_factory=dict)
    backend: str = "weft"
    """What is set up: "weft", "torch" (torch.distributed with NCCL or gloo, or just "nccl" or "gloo"), "jax", "xgboost"
    or "lightgbm"."""
    datasets: Mapping[str, Any] = field(default_factory=dict)
    name: str | None = None
    storage_path: str | os.PathLike[str] | None = None
    """A folder or an fsspec URL; the run lies in a folder of its name in it. Default: ~/weft_results"""
    keep_checkpoints: int | None = 2
    """How many of the newest are kept; None keeps all."""
    failures: int = 3
    """How often workers may be lost without a checkpoint in between before it gives up."""
    timeout_s: float = 600.0
    """How long workers may take to start, and to find each other."""
    guards: Mapping[str, float] | Sequence[str] = ()
    """Metrics that must be finite numbers, with a mapping at most as large as it says: else DivergedError."""
    hang_timeout_s: float | None = None
    """HangError, with the stacks of all ranks, when no rank has reported for so long. By default they are told at the
    terminal after ten minutes, and the training goes on."""

    def __post_init__(self) -> None:
        if not callable(self.loop):
            raise TypeError(
                f"the loop must be a function, given without calling it: Trainer(loop), but got {self.loop!r}"
            )
        at_least("workers", self.workers, 1)
        if self.min_workers is not None:
            between("min_workers", self.min_workers, 1, self.workers)
        one_of("backend", self.backend, BACKENDS)
        if self.backend == "nccl" and self.resources.get("GPU", 0) < 1:
            raise ValueError(
                'backend "nccl" needs a GPU for every worker: resources={"CPU": 1, "GPU": 1}, but got '
                f"resources={dict(self.resources)}"
            )
        if self.keep_checkpoints is not None:
            at_least("keep_checkpoints", self.keep_checkpoints, 1)
        if self.hang_timeout_s is not None:
            above("hang_timeout_s", self.hang_timeout_s)
        if isinstance(self.guards, str):
            raise ValueError(
                f"guards are a list of metrics or a mapping, but got {self.guards!r}: write [{self.guards!r}]"
            )

    def fit(
        self,
        *,
        resume: bool | None = None,
        checkpoint: Checkpoint | None = None,
        on_report: Callable[[dict[str, Any], Checkpoint | None], None] | None = None,
    ) -> Result:
        """Train until the loop ends, from `checkpoint` if one is given.

        Where the storage has a run of this name already, that run goes on from its last checkpoint, and says so; with
        another config than it had it is refused. With `resume=True` it goes on whatever its config was, with
        `resume=False` it is deleted and begins anew.

        Raises what a loop raised, WorkersLostError when workers are lost too often, HangError and DivergedError."""
        if not weft.is_initialized():
            weft.init()
        if resume and self.name is None:
            raise ValueError("to resume a run, give its name")
        name = self.name or f"train_{time.strftime('%Y-%m-%d_%H-%M-%S')}_{uuid.uuid4().hex[:6]}"
        base = os.fspath(self.storage_path) if self.storage_path is not None else os.path.expanduser(RESULTS)
        storage = open_storage(f"{base.rstrip('/')}/{name}")
        history = History(storage, self.keep_checkpoints)
        try:
            _take_over(history, storage, resume, dict(self.config))
            if checkpoint is not None and history.checkpoint is None:
                history.begin_with(_stored(checkpoint, storage))
            _Fit(self, name, storage, history, on_report).run()
        finally:
            storage.close()
        return Result(
            history.metrics[-1] if history.metrics else {},
            _checkpoint(storage, history.checkpoint),
            history.metrics,
            storage.root,
        )

    # ---- as a trainable of weft.tune ----

    def __call__(self, config: dict[str, Any]) -> None:
        """One trial: its configuration goes over the trainer's."""
        import dataclasses

        from weft import tune

        context = tune.get_context()
        trainer = dataclasses.replace(
            self,
            config={**self.config, **config},
            name=f"train_{uuid.uuid4().hex[:6]}",
            storage_path=context.get_trial_dir(),
        )
        trainer.fit(
            checkpoint=tune.get_checkpoint(),
            on_report=lambda metrics, checkpoint: tune.report(metrics, checkpoint=checkpoint),
        )

    def _weft_tune_resources(self, config: Mapping[str, Any]) -> Any:
        from weft.tune import PlacementGroupFactory

        return PlacementGroupFactory([{"CPU": 0.01}, *({"CPU": 1, **self.resources} for _ in range(self.workers))])


class _Fit:
    """One call of `fit`."""

    def __init__(
        self,
        trainer: Trainer,
        name: str,
        storage: Storage,
        history: History,
        on_report: Callable[[dict[str, Any], Checkpoint | None], None] | None,
    ) -> None:
        self._trainer, self._name, self._storage, self._history = trainer, name, storage, history
        self._on_report = on_report
        self._run_id = uuid.uuid4().hex
        self._losses = 0
        self._size = 0
        self._progress = ProgressLine(name)
        self._board = TrainBoard(name, trainer.backend, storage.root)

    def run(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self._board.ended(error)
            raise
        self._board.ended(None)

    def _run(self) -> None:
        trainer = self._trainer
        self._storage.write(MARKER, self._run_id.encode())
        crew = Crew(
            trainer.workers,
            trainer.workers if trainer.min_workers is None else trainer.min_workers,
            trainer.resources,
            trainer.timeout_s,
        )
        keeps = keeps_processes(trainer.backend)
        number = 0
        try:
            while True:
                self._history.rewind()
                members = crew.assemble()
                self._size = len(members)
                self._board.began([member.place.node_id for member in members if member.place is not None])
                assignments = self._assignments(members, number)
                end = Generation(crew, members, assignments, self._reported, trainer.hang_timeout_s).run(keeps)
                if end is End.FINISHED:
                    return
                if end is End.LOST:
                    self._count_loss()
                number += 1
        finally:
            crew.close()
            self._progress.close()

    def _count_loss(self) -> None:
        self._losses += 1
        if self._losses > self._trainer.failures:
            raise WorkersLostError(
                f"{self._name}: workers were lost {self._losses} times since the last checkpoint "
                f"({self._history.checkpoint}). failures={self._trainer.failures} sets how often that may be; why they "
                "died is in their logs."
            )

    def _reported(self, whole: Whole) -> None:
        report = whole.report
        if report.packed is not None and report.checkpoint is not None and not whole.is_late:
            write_packed(self._storage, report.checkpoint, report.packed)
        if report.checkpoint is not None:
            add_parts(self._storage, report.checkpoint, whole.parts)
        if whole.is_late:
            return
        self._guard(report)
        self._history.add(report.metrics, report.checkpoint)
        if report.checkpoint is not None:
            self._losses = 0
        self._progress.tell(_line_of(self._size, len(self._history.metrics), report.metrics))
        kept = {name for _, name in self._history.checkpoints}
        self._board.reported(report.metrics, report.checkpoint, kept)
        if self._on_report is not None:
            self._on_report(report.metrics, _checkpoint(self._storage, report.checkpoint))

    def _guard(self, report: Report) -> None:
        guards = self._trainer.guards
        limits = guards if isinstance(guards, Mapping) else dict.fromkeys(guards, math.inf)
        for name, limit in limits.items():
            value = report.metrics.get(name)
            if isinstance(value, int | float) and not (math.isfinite(value) and value <= limit):
                if report.checkpoint is not None:
                    self._storage.delete_folder(report.checkpoint)
                number = len(self._history.metrics) + 1
                raise DivergedError(self._name, name, value, number, self._history.checkpoint)

    def _assignments(self, members: Sequence[Member], generation: int) -> list[Assignment]:
        trainer, size = self._trainer, len(members)
        places = [member.place for member in members if member.place is not None]
        shards = {name: split_dataset(dataset, size) for name, dataset in trainer.datasets.items()}
        head = members[0].actor
        meeting = weft.get(head.meeting.remote(size))
        addresses: list[str] = []
        if trainer.backend != "weft":
            ips = {node["NodeID"]: node["NodeManagerAddress"] for node in weft.nodes()}
            addresses = weft.get(
                [
                    member.actor.free_address.remote(ips[place.node_id])
                    for member, place in zip(members, places, strict=True)
                ]
            )
        own = weft.get_runtime_context().get_node_id()
        checkpoint = self._history.checkpoint
        may_be_unseen = any(place.node_id != own for place in places) or "://" in self._storage.root
        packed = read_packed(self._storage, checkpoint) if checkpoint is not None and may_be_unseen else None
        return [
            Assignment(
                loop=trainer.loop,
                config=dict(trainer.config),
                backend=trainer.backend,
                addresses=tuple(addresses),
                timeout_s=trainer.timeout_s,
                rank=rank,
                nodes=tuple(place.node_id for place in places),
                generation=generation,
                trainer=self._name,
                run_id=self._run_id,
                meeting=meeting,
                shards={name: parts[rank] for name, parts in shards.items()},
                storage=self._storage,
                checkpoint=checkpoint,
                packed=packed,
                first_checkpoint=self._history.checkpoints_made,
            )
            for rank in range(size)
        ]


def _take_over(history: History, storage: Storage, resume: bool | None, config: dict[str, Any]) -> None:
    """What to do with a run of the same name."""
    is_new = storage.read_log(LOG) is None
    if not is_new:
        history.load()
    if not is_new and resume is False:
        count = len(history.metrics)
        history.delete()
        _say(f"the run with {count} reports in {storage.root} is deleted and begins anew (resume=False)")
    elif history.checkpoint is not None:
        change = changed_config(storage, config)
        if change and resume is None:
            raise ValueError(
                f"the run in {storage.root} has another config: {change}. Its result would be that of the old one: "
                "give this run a name of its own, or fit(resume=False) to begin anew, or fit(resume=True) to go on "
                "with the new config"
            )
    if not is_new and resume is None:
        where = f"after report {len(history.metrics)}, from {history.checkpoint}" if history.checkpoint else "anew"
        _say(f"the run in {storage.root} goes on {where}; fit(resume=False) or another name begins one of its own")
    keep_config(storage, config)


def _say(text: str) -> None:
    print(f"weft.train: {text}", file=sys.stderr, flush=True)


def _line_of(workers: int, reports: int, metrics: Mapping[str, Any]) -> str:
    numbers = [f"{key}={value:.4g}" for key, value in metrics.items() if isinstance(value, int | float)]
    return ", ".join([f"{workers} workers", f"report {reports}", *numbers[:SHOWN_METRICS]])


def _checkpoint(storage: Storage, name: str | None) -> Checkpoint | None:
    return Checkpoint(storage=storage, name=name) if name is not None else None


def _stored(checkpoint: Checkpoint, storage: Storage) -> str:
    folder = new_folder(storage)
    checkpoint.write_to(str(folder))
    storage.put_folder(folder, "checkpoint_initial")
    return "checkpoint_initial"
