"""Collective operations between the processes of a group, through the node's shared segment.

>>> import numpy as np, weft
>>> from weft import train
>>> @weft.remote
... def total(meeting, rank):
...     with meeting.join(rank) as group:
...         return group.all_reduce(np.full(3, rank + 1.0))
>>> meeting = train.Meeting(2)
>>> weft.get([total.remote(meeting, rank) for rank in range(2)])[0]
array([3., 3., 3.])

Invariants. GRP-1: all members call the same operations in the same order. GRP-2: the result of a reduction is
bit-equal on all members, and the order of its terms is that of the ranks. GRP-3: an operation that one member cannot
finish for want of another raises on every member that waits for it.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from weft.exceptions import LocalNodeDiedError
from weft.train.arrays import HostArray, host_array
from weft.train.errors import GroupError, GroupTimeoutError, MemberLostError, MismatchError
from weft.util.shared_block import ELEMENT_TYPES, GONE, OPERATIONS, REDUCTIONS, GroupMember, SharedBlock

__all__ = ["Group", "Meeting"]

_MAX_MEMBERS = 256
# Measured: all slots together should stay in the caches, and one should be worth a round.
_ALL_SLOTS_BYTES = 2 << 20
_SLOT_BYTES = range(64 << 10, (1 << 20) + 1)


class Meeting:
    """Where `size` processes of one node meet to become a group. Made by anyone, passed as an argument."""

    def __init__(self, size: int, slot_bytes: int | None = None) -> None:
        if not 1 <= size <= _MAX_MEMBERS:
            raise ValueError(f"size must be from 1 to {_MAX_MEMBERS}, but got {size}")
        if slot_bytes is None:
            slot_bytes = min(max(_ALL_SLOTS_BYTES // size // 64 * 64, _SLOT_BYTES[0]), _SLOT_BYTES[-1])
        if slot_bytes < 64 * size or slot_bytes % 64:
            raise ValueError(f"slot_bytes must be a multiple of 64 and at least {64 * size}, but got {slot_bytes}")
        self.size = size
        self._block = SharedBlock.create(size, slot_bytes)

    def join(self, rank: int, join_timeout_s: float = 60.0, timeout_s: float | None = 1800.0) -> Group:
        """Become member `rank`; returns once all have joined.

        A member waits at most `timeout_s` for another in one operation; None means without bound."""
        if not 0 <= rank < self.size:
            raise ValueError(f"rank must be from 0 to {self.size - 1}, but got {rank}")
        group = Group(self._block.member(rank, join_timeout_s), rank, self.size)
        group._perform("join", None, None)
        group._member.set_timeout(-1.0 if timeout_s is None else timeout_s)
        return group


class Group:
    """This process as one member. Made by `Meeting.join`; ends by `close`, `with`, or when it is collected.

    Arrays are of NumPy, PyTorch (CPU) or JAX, C-contiguous, of float32, float64, bfloat16 or integers. Where it says
    "in place", a JAX array is not written; the result is the array returned. `op` is sum, prod, min, max or mean."""

    def __init__(self, member: GroupMember, rank: int, size: int) -> None:
        self._member = member
        self.rank = rank
        self.size = size

    def __repr__(self) -> str:
        return f"Group(rank={self.rank}, size={self.size})"

    def all_reduce(self, array: Any, op: str = "sum") -> Any:
        """Reduce over all members, in place."""
        host = host_array(array, written=True)
        self._perform("all_reduce", None, host, op=op)
        return _in_place(array, host)

    def reduce(self, array: Any, root: int = 0, op: str = "sum") -> Any:
        """Reduce over all members, in place at the root; the others' arrays stay as they are."""
        host = host_array(array, written=True)
        self._perform("reduce", None, host, op=op, root=root)
        return _in_place(array, host) if self.rank == root else array

    def reduce_scatter(self, array: Any, op: str = "sum", out: Any = None) -> Any:
        """Reduce over all members; this member's share of the first dimension."""
        host = host_array(array, written=False)
        share = self._share(host, "reduce_scatter")
        part = host.new(share) if out is None else _fitting(out, host, share, "out")
        self._perform("reduce_scatter", host, part, op=op)
        return _result(out, part)

    def all_gather(self, array: Any, out: Any = None) -> Any:
        """All members' arrays in the order of their ranks, along a new first dimension."""
        host = host_array(array, written=False)
        shape = (self.size, *host.memory.shape)
        whole = host.new(shape) if out is None else _fitting(out, host, shape, "out")
        self._perform("all_gather", host, whole)
        return _result(out, whole)

    def gather(self, array: Any, root: int = 0) -> Any:
        """As `all_gather` at the root; None elsewhere."""
        host = host_array(array, written=False)
        whole = host.new((self.size, *host.memory.shape)) if self.rank == root else None
        self._perform("gather", host, whole, root=root)
        return None if whole is None else _result(None, whole)

    def scatter(self, out: Any, source: Any = None, root: int = 0) -> Any:
        """Write this member's row of the root's `source` into `out`, in place; only the root has a source."""
        part = host_array(out, written=True)
        host = None
        if self.rank == root:
            if source is None:
                raise ValueError(f"rank {root} is the root of scatter and must give a source")
            host = _fitting(source, part, (self.size, *part.memory.shape), "source", written=False)
        self._perform("scatter", host, part, root=root)
        return _in_place(out, part)

    def broadcast(self, array: Any, root: int = 0) -> Any:
        """The root's array on all members, in place."""
        host = host_array(array, written=True)
        self._perform("broadcast", None, host, root=root)
        return _in_place(array, host)

    def all_to_all(self, array: Any, out: Any = None) -> Any:
        """Part r of this member's first dimension goes to rank r, and comes in at this member's own place there."""
        host = host_array(array, written=False)
        self._share(host, "all_to_all")
        whole = host.new(host.memory.shape) if out is None else _fitting(out, host, host.memory.shape, "out")
        self._perform("all_to_all", host, whole)
        return _result(out, whole)

    def send(self, array: Any, to: int) -> None:
        """Hand an array to one member; returns once it has taken it, so two that both send first never end."""
        self._check_peer(to)
        self._perform("send", host_array(array, written=False), None, peer=to)

    def recv(self, array: Any, source: int) -> Any:
        """Take what one member sends, in place."""
        self._check_peer(source)
        host = host_array(array, written=True)
        self._perform("send", None, host, peer=source)
        return _in_place(array, host)

    def barrier(self) -> None:
        """Wait until all members are here."""
        self._perform("barrier", None, None)

    def close(self) -> None:
        """Leave. Who waits for this member from then on is told."""
        self._member.leave()

    def __enter__(self) -> Group:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _share(self, host: HostArray, operation: str) -> tuple[int, ...]:
        shape = host.memory.shape
        if not shape or shape[0] % self.size:
            raise ValueError(f"{operation} needs a first dimension that {self.size} divides, but got shape {shape}")
        return (shape[0] // self.size, *shape[1:])

    def _check_peer(self, peer: int) -> None:
        if not 0 <= peer < self.size or peer == self.rank:
            raise ValueError(f"the other rank must be from 0 to {self.size - 1} and not {self.rank}, but got {peer}")

    def _perform(
        self,
        operation: str,
        source: HostArray | None,
        target: HostArray | None,
        op: str = "sum",
        root: int = 0,
        peer: int = -1,
    ) -> None:
        described = _described(operation, source, target)
        element = described.element if described else ELEMENT_TYPES[0]
        if op not in REDUCTIONS:
            raise ValueError(f"op must be one of {', '.join(REDUCTIONS)}, but got {op!r}")
        if op == "mean" and "int" in element:
            raise TypeError(f"the mean is for floating point, but got {element}: reduce with sum and divide")
        if not 0 <= root < self.size:
            raise ValueError(f"root must be from 0 to {self.size - 1}, but got {root}")
        failure = self._member.perform(
            OPERATIONS.index(operation),
            ELEMENT_TYPES.index(element),
            REDUCTIONS.index(op),
            root,
            described.memory.shape if described else (),
            source.memory if source else None,
            target.memory if target else None,
            peer,
        )
        if failure is not None:
            raise self._error(operation, failure, peer)

    def _error(self, operation: str, failure: tuple[Any, ...], peer: int) -> Exception:
        what, rank, why, first, other = failure
        where = f"{operation} on rank {self.rank} of {self.size}"
        if what == "mismatch":
            others = f"rank {rank} for {_request(other)}"
            one = 0 if peer < 0 else (self.rank if rank == peer else peer)
            return MismatchError(f"{where}: rank {one} asked for {_request(first)}, but {others}", rank, operation)
        if what == "timed out":
            return GroupTimeoutError(
                f"{where}: rank {rank} did not come in time. Does every member call the same operations, and had all "
                "of them CPUs to start on? timeout_s and join_timeout_s set how long to wait.",
                rank,
                operation,
            )
        if what == "node lost":
            return LocalNodeDiedError(f"{where}: this machine's node daemon is gone")
        if operation == "join" and GONE[why] == "present":
            return GroupError(f"{where}: rank {rank} has already joined this meeting", rank, operation)
        return MemberLostError(
            f"{where}: rank {rank} {GONE[why]}. The group is of no more use: meet again.",
            rank,
            operation,
        )


def _described(operation: str, source: HostArray | None, target: HostArray | None) -> HostArray | None:
    """The array whose type and shape all members must share."""
    if operation in ("all_gather", "gather", "reduce_scatter", "all_to_all"):
        return source
    return target if target is not None else source


def _request(request: tuple[int, int, int, int, tuple[int, ...]]) -> str:
    operation, element, reduction, root, shape = request
    name = OPERATIONS[operation]
    if name in ("barrier", "join"):
        return name
    words = [f"{name} of {ELEMENT_TYPES[element]} {shape}"]
    if "reduce" in name:
        words.append(f"by {REDUCTIONS[reduction]}")
    if name in ("reduce", "gather", "scatter", "broadcast"):
        words.append(f"with root {root}")
    return " ".join(words)


def _in_place(array: Any, host: HostArray) -> Any:
    """The array itself where its own memory was written."""
    return array if not _is_copied(array) else host.restore(host.memory)


def _is_copied(array: Any) -> bool:
    return type(array).__module__.partition(".")[0] in ("jax", "jaxlib")


def _result(out: Any, host: HostArray) -> Any:
    return host.restore(host.memory) if out is None else _in_place(out, host)


def _fitting(array: Any, like: HostArray, shape: tuple[int, ...], name: str, written: bool = True) -> HostArray:
    host = host_array(array, written)
    if host.memory.shape != shape or host.element != like.element:
        raise ValueError(f"{name} must be {like.element} {shape}, but got {host.element} {host.memory.shape}")
    return host
