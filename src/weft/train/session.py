"""What a training loop can call: `report`, `get_checkpoint`, `get_context`, `get_dataset_shard`.

One process runs one worker of one trainer, so the session is a global of the process. Outside of a trainer the loop is
the only worker: `report` does nothing, there is no checkpoint, and collective operations have one member.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from weft.train.shares import share_of

if TYPE_CHECKING:
    from weft.library.checkpoint import Checkpoint
    from weft.train.group import Group

__all__ = ["TrainContext", "get_checkpoint", "get_context", "get_dataset_shard", "report", "set_current"]


class TrainContext:
    """Who this worker is. All of it stays as it is while a loop runs; with other workers the loop starts anew."""

    def __init__(self, rank: int, nodes: Sequence[str], generation: int, trainer: str, meeting: Any) -> None:
        """`nodes`: on which each worker is."""
        own = nodes[rank]
        self.rank, self.size = rank, len(nodes)
        self.local_rank, self.local_size = nodes[:rank].count(own), nodes.count(own)
        self.node_rank = list(dict.fromkeys(nodes)).index(own)
        self.generation = generation
        """How often the workers have changed since `fit` began."""
        self.trainer = trainer
        self.addresses: tuple[str, ...] = ()
        """Where the workers can listen, for backends that need it."""
        self._meeting = meeting
        self._group: Group | None = None

    @property
    def group(self) -> Group:
        """For collective operations between the workers; all of them must use it for the first time together."""
        if self._group is None:
            if self._meeting is None:
                from weft.train.group import Meeting

                self._meeting = Meeting(1)
            self._group = self._meeting.join(self.rank)
        return self._group

    def share(self, total: int) -> slice:
        """This worker's part of a batch of so many rows, whatever the number of workers is."""
        return share_of(total, self.rank, self.size)

    def get_world_rank(self) -> int:
        """Which worker this is, from 0 on."""
        return self.rank

    def get_world_size(self) -> int:
        """How many workers there are."""
        return self.size

    def get_local_rank(self) -> int:
        """Which of the workers on this node it is."""
        return self.local_rank

    def get_local_world_size(self) -> int:
        """How many workers are on this node."""
        return self.local_size

    def get_node_rank(self) -> int:
        """Which of the nodes that have workers this one is, in the order of the workers."""
        return self.node_rank

    def close(self) -> None:
        """Leaves the workers' group, if it was joined."""
        if self._group is not None:
            self._group.close()
            self._group = None


class Session(Protocol):
    context: TrainContext
    checkpoint: Checkpoint | None
    shards: Mapping[str, Any]

    def report(self, metrics: Mapping[str, Any], checkpoint: Any) -> None: ...


_current: Session | None = None


def set_current(session: Session | None) -> None:
    global _current
    _current = session


def report(metrics: Mapping[str, Any] | None = None, *, checkpoint: Any = None, **named: Any) -> None:
    """Report metrics, as a dictionary or by name, and perhaps a checkpoint: a dictionary, a folder or a Checkpoint.
    Rank 0's metrics count; of the checkpoints, those of all ranks that give one with their n-th report are one, which
    is there when all of it is.

    A dictionary is pickled at once, a folder copied; the writing goes on behind. When a checkpoint is given, the loop
    may end here by an exception (let it through) and start anew from the checkpoint with other workers."""
    if metrics is not None and not isinstance(metrics, Mapping):
        raise TypeError(f"report takes a dictionary of metrics, or metrics by name, but got {metrics!r}")
    if _current is not None:
        _current.report({**(metrics or {}), **named}, checkpoint)


def get_checkpoint() -> Checkpoint | None:
    """Where to go on from; None at the beginning."""
    return _current.checkpoint if _current is not None else None


def get_context() -> TrainContext:
    """Who this worker is among the others. Outside of a training: the only worker."""
    return _current.context if _current is not None else TrainContext(0, ("",), 0, "", None)


def get_dataset_shard(name: str) -> Any:
    """This worker's part of a dataset of the trainer."""
    if _current is None:
        raise RuntimeError(f"there is no trainer in this process: get_dataset_shard({name!r}) is for training loops")
    if name not in _current.shards:
        known = ", ".join(sorted(_current.shards)) or "none"
        raise KeyError(f"the trainer has no dataset {name!r}, only: {known}. Give it as datasets={{{name!r}: …}}")
    return _current.shards[name]
