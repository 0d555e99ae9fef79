"""Groups by name, and their operations in place.

To each name of a group belongs an actor (`_Registry`), which gives the members the meeting (`weft.train.Meeting`) where
they become a group. It ends with the process that has first asked for it.

1. COL-1: the n-th time that a rank joins is the n-th meeting, so a group that was destroyed can be made again, by the
   same registry: whoever leaves does not end it.

Runs in drivers and workers; the groups of a process are for all of its threads.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

import weft
from weft.compat.ray.util.collective.types import Backend, ReduceOp
from weft.train import Group, Meeting
from weft.train.device_exchange import needed

_OPS = {ReduceOp.SUM: "sum", ReduceOp.PRODUCT: "prod", ReduceOp.MIN: "min", ReduceOp.MAX: "max"}
_TIMEOUT_MS = 30_000
_HOST_BACKENDS = (Backend.GLOO, "TORCH_GLOO")
"""Weft's own groups do what gloo is for: arrays in memory of the host."""


class _Registry:
    def __init__(self) -> None:
        self._declared: tuple[int, dict[str, int], float, str] | None = None
        self._joins: Counter[int] = Counter()
        self._meetings: dict[int, Meeting] = {}
        self._came: Counter[int] = Counter()

    def meeting(self, size: int, rank: int, backend: str) -> Meeting:
        turn = self._joins[rank]
        if turn not in self._meetings:
            self._meetings[turn] = Meeting(size, backend=None if backend.upper() in _HOST_BACKENDS else "nccl")
        meeting = self._meetings[turn]
        if size != meeting.size:
            raise ValueError(f"the group has {meeting.size} members, but rank {rank} was to join one of {size}")
        self._joins[rank] += 1
        self._came[turn] += 1
        if self._came[turn] == size:
            del self._meetings[turn]
        return meeting

    def declare(self, size: int, ranks: dict[str, int], timeout_s: float, backend: str) -> bool:
        """False where there is such a group."""
        if self._declared is not None:
            return False
        self._declared = size, ranks, timeout_s, backend
        return True

    def withdraw(self) -> None:
        self._declared = None

    def declared(self, actor_id: str) -> tuple[int, int, float, str] | None:
        """(size, rank, seconds to wait, backend) of a member that was named by `create_collective_group`."""
        if self._declared is None or actor_id not in self._declared[1]:
            return None
        size, ranks, timeout_s, backend = self._declared
        return size, ranks[actor_id], timeout_s, backend


_groups: dict[str, Group] = {}
_declared: set[str] = set()
_registries: dict[tuple[str, str], Any] = {}
_lock = threading.Lock()


def nccl_available() -> bool:
    """Whether PyTorch with NCCL is here, and sees a GPU in this process."""
    return not needed("nccl")


def gloo_available() -> bool:
    return True


def is_backend_available(backend: str) -> bool:
    name = str(backend).upper()
    return name in _HOST_BACKENDS or (name == Backend.NCCL and nccl_available())


def is_group_initialized(group_name: str) -> bool:
    return group_name in _groups


def init_collective_group(
    world_size: int,
    rank: int,
    backend: str = Backend.NCCL,
    group_name: str = "default",
    gloo_timeout: int = _TIMEOUT_MS,
) -> None:
    """Become the member `rank` of a group, of "nccl" or "gloo"; returns once all have joined. RuntimeError where this
    process is in a group of that name; `gloo_timeout` is in milliseconds."""
    _check(world_size, backend, group_name, is_member=True)
    if not 0 <= rank < world_size:
        raise ValueError(f"rank must be from 0 to {world_size - 1}, but got {rank}")
    if group_name in _groups:
        raise RuntimeError(f"this process is in the collective group {group_name!r} already")
    _join(group_name, world_size, rank, gloo_timeout / 1000, backend)


def create_collective_group(
    actors: Sequence[Any],
    world_size: int,
    ranks: Sequence[int],
    backend: str = Backend.NCCL,
    group_name: str = "default",
    gloo_timeout: int = _TIMEOUT_MS,
) -> None:
    """Declare the actors a group, from outside of it: each joins at its first operation. RuntimeError where one of that
    name is declared."""
    _check(world_size, backend, group_name, is_member=False)
    if sorted(ranks) != list(range(world_size)) or len(actors) != world_size:
        raise ValueError(
            f"a group of {world_size} has as many actors, with ranks from 0 on, but got {len(actors)} and {list(ranks)}"
        )
    ranks_of = {actor._actor_id.hex(): rank for actor, rank in zip(actors, ranks, strict=True)}
    if not weft.get(_registry(group_name).declare.remote(world_size, ranks_of, gloo_timeout / 1000, backend)):
        raise RuntimeError(f"the collective group {group_name!r} is declared already: destroy it first")
    _declared.add(group_name)


def destroy_collective_group(group_name: str = "default") -> None:
    """Leave; nothing happens where this process is in no group of that name. Who declared it takes that back."""
    group = _groups.pop(group_name, None)
    if group is not None:
        group.close()
    if group_name in _declared:
        weft.get(_registry(group_name).withdraw.remote())
        _declared.discard(group_name)


def get_rank(group_name: str = "default") -> int:
    """-1 where this process is in no group of that name."""
    return _groups[group_name].rank if group_name in _groups else -1


def get_collective_group_size(group_name: str = "default") -> int:
    """-1 where this process is in no group of that name."""
    return _groups[group_name].size if group_name in _groups else -1


def get_group_handle(group_name: str = "default") -> Group:
    """The group; a member that was declared joins it now. RuntimeError where there is none for this process."""
    with _lock:
        if group_name not in _groups:
            _join_declared(group_name)
        return _groups[group_name]


# ---- operations ------------------------------------------------------------------------------------


def allreduce(tensor: Any, group_name: str = "default", op: ReduceOp = ReduceOp.SUM) -> None:
    """Reduce over all members, in place."""
    get_group_handle(group_name).all_reduce(tensor, _OPS[op])


def reduce(tensor: Any, dst_rank: int = 0, group_name: str = "default", op: ReduceOp = ReduceOp.SUM) -> None:
    """Reduce over all members, in place at one."""
    get_group_handle(group_name).reduce(tensor, dst_rank, _OPS[op])


def broadcast(tensor: Any, src_rank: int = 0, group_name: str = "default") -> None:
    """One member's array on all, in place."""
    get_group_handle(group_name).broadcast(tensor, src_rank)


def allgather(tensor_list: list[Any], tensor: Any, group_name: str = "default") -> None:
    """All members' arrays, into the arrays of the list in the order of the ranks."""
    group = get_group_handle(group_name)
    _check_list(tensor_list, group.size)
    for part, gathered in zip(tensor_list, group.all_gather(tensor), strict=True):
        part[...] = gathered


def reducescatter(
    tensor: Any, tensor_list: list[Any], group_name: str = "default", op: ReduceOp = ReduceOp.SUM
) -> None:
    """Reduce the arrays of the list over all members; this member's into `tensor`."""
    group = get_group_handle(group_name)
    _check_list(tensor_list, group.size)
    tensor[...] = group.reduce_scatter(_stacked(tensor_list), _OPS[op])[0]


def barrier(group_name: str = "default") -> None:
    """Wait until all members are here."""
    get_group_handle(group_name).barrier()


def send(tensor: Any, dst_rank: int, group_name: str = "default") -> None:
    """Hand an array to one member; returns once it has taken it."""
    get_group_handle(group_name).send(tensor, dst_rank)


def recv(tensor: Any, src_rank: int, group_name: str = "default") -> None:
    """Take what one member sends, in place."""
    get_group_handle(group_name).recv(tensor, src_rank)


# ---- inside ----------------------------------------------------------------------------------------


def _registry(group_name: str) -> Any:
    key = weft.get_runtime_context().get_job_id(), group_name
    if key not in _registries:
        named = weft.remote(num_cpus=0)(_Registry).options(name=f"ray.util.collective/{group_name}", get_if_exists=True)
        _registries[key] = named.remote()
    return _registries[key]


def _check(world_size: int, backend: str, group_name: str, is_member: bool) -> None:
    if world_size < 1:
        raise ValueError(f"world_size must be at least 1, but got {world_size}")
    name = str(backend).upper()
    missing = "" if name in _HOST_BACKENDS else "it is none of nccl and gloo"
    if name == Backend.NCCL:
        missing = needed("nccl") if is_member else ""
    if missing:
        raise RuntimeError(
            f'the backend {backend!r} of the collective group {group_name!r} is not there: {missing}. "nccl" is for '
            'tensors on GPUs, "gloo" for arrays in memory of the host.'
        )


def _join(group_name: str, size: int, rank: int, timeout_s: float, backend: str) -> None:
    meeting = weft.get(_registry(group_name).meeting.remote(size, rank, backend))
    _groups[group_name] = meeting.join(rank, timeout_s)


def _join_declared(group_name: str) -> None:
    declared = weft.get(_registry(group_name).declared.remote(weft.get_runtime_context().get_actor_id() or ""))
    if declared is None:
        raise RuntimeError(
            f"this process is in no collective group {group_name!r}: call init_collective_group in each member, or "
            "create_collective_group with their handles"
        )
    _join(group_name, *declared)


def _check_list(tensors: list[Any], size: int) -> None:
    if len(tensors) != size:
        raise RuntimeError(f"the list must have an array for each of {size} members, but has {len(tensors)}")


def _stacked(tensors: list[Any]) -> Any:
    if type(tensors[0]).__module__ == "torch":
        import torch

        return torch.stack(tensors)
    return np.stack(tensors)
