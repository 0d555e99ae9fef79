"""The actor that has some of a parameter server's parameters. Its methods run on its event loop, none in parallel.

A push waits here until its worker may go on, and returns the parameters as of then: one call a step and shard. The
parameters are put into the object store once a version, whoever asks; workers of the same node read them in place.

Whether a worker that is waited for has died is asked of its node when a push has waited for `LOOK_S`.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import weft
from weft.train.errors import GroupError, GroupTimeoutError
from weft.train.optimizers import Optimizer
from weft.train.server_state import ServerState
from weft.util.shared_block import ELEMENT_TYPES, REDUCTIONS, reduce_arrays

__all__ = ["ParameterShard", "Process", "Published", "ShardState"]

LOOK_S = 0.5
MOST_PROCESSES = 10_000
MOST_ARRAYS = 256
"""That the native reduction takes at once."""

Arrays = dict[str, npt.NDArray[Any]]
Process = tuple[str, int]
"""(node id, pid)"""
Published = tuple[int, list[Any]]
"""(version, [ref of the parameters]); in a list, so that the ref travels and not the parameters."""


@dataclass
class ShardState:
    """What a checkpoint keeps of a shard; `memory` is the optimizer's."""

    parameters: Arrays
    memory: dict[str, Any]
    version: int = 0


class ParameterShard:
    def __init__(self, initial: ShardState, optimizer: Optimizer, state: ServerState, timeout_s: float) -> None:
        # What came in lies in shared memory, where it cannot be written.
        self._parameters = {name: np.array(value) for name, value in initial.parameters.items()}
        self._memory = {
            name: copy.deepcopy(initial.memory[name]) if name in initial.memory else optimizer.begin(value)
            for name, value in self._parameters.items()
        }
        self._sums = {name: np.empty_like(value) for name, value in self._parameters.items()}
        self._optimizer, self._state, self._timeout_s = optimizer, state, timeout_s
        state.version = initial.version
        self._processes: dict[str, Process] = {}
        self._published: Published | None = None
        self._holds: set[str] = set()
        self._held_at = 0
        self._failure: Exception | None = None
        self._waiting: set[asyncio.Future[bool]] = set()
        """Of those that wait for a change: True by a change, False by the time for a look."""
        self._looking = asyncio.Lock()

    # ---- workers ----

    async def join(self, rank: int, token: str, process: Process) -> Published:
        self._state.joined(rank, token)
        self._processes[token] = process
        self._advance()
        return self._publish()

    async def leave(self, rank: int, token: str) -> None:
        self._gone(rank, token)

    async def pull(self) -> Published:
        return self._publish()

    async def push(self, rank: int, token: str, gradients: Mapping[str, Any], weight: float) -> Published:
        """Returns once the worker may go on."""
        if not self._state.is_current(rank, token):
            raise GroupError(f"push of rank {rank}: another process has joined as rank {rank} since", rank, "push")
        self._state.pushed(rank, (gradients, weight))
        self._advance()
        await self._until(lambda: self._state.may_go_on(rank), lambda: self._late(rank))
        return self._publish()

    def _late(self, rank: int) -> Exception:
        missing = self._state.held_up_by(rank)
        return GroupTimeoutError(
            f"push of rank {rank} waited {self._timeout_s} s for rank {', '.join(map(str, missing))}. Do all workers "
            "push equally often, or leave, and had all of them CPUs to start on? timeout_s sets how long to wait.",
            missing[0] if missing else rank,
            "push",
        )

    # ---- steps ----

    def _advance(self) -> None:
        """Take the steps that are due, and wake those that wait."""
        while self._failure is None and not self._is_held:
            gradients = self._state.take_step()
            if gradients is None:
                break
            self._published = None
            try:
                self._step(gradients)
            except Exception as error:  # half of the parameters may have moved: nobody may go on with them
                self._failure = error
        for waiting in self._waiting:
            _tell(waiting, True)
        self._waiting.clear()

    def _step(self, gradients: Sequence[tuple[Mapping[str, Any], float]]) -> None:
        weights = [weight for _, weight in gradients]
        for name, parameter in self._parameters.items():
            mean = self._sums[name]
            _mean([gradient[name] for gradient, _ in gradients], weights, mean)
            self._optimizer.update(parameter, mean, self._memory[name])

    def _publish(self) -> Published:
        if self._failure is not None:
            raise self._failure
        if self._published is None:
            self._published = (self._state.version, [weft.put(self._parameters)])
        return self._published

    # ---- waiting ----

    async def _until(self, condition: Callable[[], bool], late: Callable[[], Exception]) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_s
        while not condition() and self._failure is None:
            if loop.time() > deadline:
                raise late()
            change = loop.create_future()
            self._waiting.add(change)
            timer = loop.call_later(LOOK_S, _tell, change, False)
            try:
                has_changed = await change
            finally:
                timer.cancel()
                self._waiting.discard(change)
            if not has_changed:
                await self._look_for_the_dead()

    async def _look_for_the_dead(self) -> None:
        if self._looking.locked():
            return
        async with self._looking:
            joined = {rank: self._state.token_of(rank) for rank in self._state.awaited}
            alive = await asyncio.to_thread(_living_processes)
        for rank, token in joined.items():
            if token is not None and self._processes[token] not in alive:
                self._gone(rank, token)

    def _gone(self, rank: int, token: str) -> None:
        self._state.left(rank, token)
        self._processes.pop(token, None)
        self._advance()

    # ---- checkpoints ----

    @property
    def _is_held(self) -> bool:
        return bool(self._holds) and self._state.version >= self._held_at

    async def hold(self, token: str, at_most_s: float) -> int:
        """Take no step; the version. Ends by `release`, or by itself."""
        if not self._holds:
            self._held_at = self._state.version
        self._holds.add(token)
        asyncio.get_running_loop().call_later(at_most_s, self._end_hold, token)
        return self._state.version

    async def snapshot(self, version: int) -> ShardState:
        """As of this version or a later one; the steps until there are taken although it is held."""
        self._held_at = max(self._held_at, version)
        self._advance()

        def late() -> Exception:
            return GroupTimeoutError(
                f"a checkpoint waited {self._timeout_s} s for version {version}, but the shard is at "
                f"{self._state.version}",
                -1,
                "save",
            )

        await self._until(lambda: self._state.version >= version, late)
        if self._failure is not None:
            raise self._failure
        return ShardState(self._parameters, self._memory, self._state.version)

    async def release(self, token: str) -> None:
        self._end_hold(token)

    def _end_hold(self, token: str) -> None:
        self._holds.discard(token)
        self._advance()


def _tell(waiting: asyncio.Future[bool], has_changed: bool) -> None:
    if not waiting.done():
        waiting.set_result(has_changed)


def _mean(arrays: list[npt.NDArray[Any]], weights: Sequence[float], out: npt.NDArray[Any]) -> None:
    """Weighted, in the order of the arrays; in one pass where all weigh the same."""
    if len(set(weights)) == 1 and out.dtype.name in ELEMENT_TYPES and len(arrays) <= MOST_ARRAYS:
        reduce_arrays(ELEMENT_TYPES.index(out.dtype.name), REDUCTIONS.index("mean"), arrays, out)
        return
    shares = [weight / sum(weights) for weight in weights]
    np.multiply(arrays[0], shares[0], out=out)
    for array, share in zip(arrays[1:], shares[1:], strict=True):
        out += array * out.dtype.type(share)


def _living_processes() -> set[Process]:
    from weft.util.state import list_workers

    return {(row.node_id, row.pid) for row in list_workers(limit=MOST_PROCESSES) if row.is_alive}
