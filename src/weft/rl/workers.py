"""The rollout workers of an algorithm: started, fed with weights, asked for fragments, replaced when they die.

WORKERS-1  A worker that dies, hangs or (where told so) fails in its environment costs its unfinished fragment and
           nothing else: another takes its place, with the same index and a fresh stream of randomness.
WORKERS-2  A worker that fails again and again without one fragment between ends the run with its last error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import weft
from weft.exceptions import ActorDiedError, ActorError, GetTimeoutError
from weft.rl import environments
from weft.rl.offline import RecordedEpisode
from weft.rl.rollout import Blueprint, Fragment, RolloutWorker
from weft.rl.stepping import EnvironmentFailed, Episode

MOST_FAILURES_IN_A_ROW = 5
GRACE_S = 10.0  # how long after the worker's own time limit the driver waits before it kills it

# BLAS threads would fight over the cores that the other workers use; an accelerator is the learner's.
WORKER_ENVIRONMENT = {
    "env_vars": {
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "JAX_PLATFORMS": "cpu",
    }
}


class RolloutWorkers:
    """Some workers, or one in this process when `count` is 0."""

    def __init__(
        self,
        blueprint: Blueprint,
        count: int,
        cpus: float | None,
        on_environment_error: str,
        worker_class: type[RolloutWorker] = RolloutWorker,
        arguments: tuple[Any, ...] = (),
    ) -> None:
        self._blueprint = blueprint
        self._worker_class = worker_class
        self._arguments = arguments
        self._restarts_failures = on_environment_error == "restart"
        self.count = count
        self.restarted = 0
        self._failures_in_a_row = 0
        self._incarnations = [0] * max(count, 1)
        self._local: RolloutWorker | None = None
        self._actors: list[Any] = []
        self._in_flight: dict[Any, int] = {}
        if count == 0:
            self._local = RolloutWorker(blueprint, 0)
            return
        self._cpus = _share_of_cpus(count) if cpus is None else cpus
        self._blueprint_ref = weft.put(blueprint)
        self._actors = [self._start(index) for index in range(count)]

    def sample(
        self, weights: NDArray[np.float32], version: int, exploration: float = 0.0, steps: int | None = None
    ) -> list[Fragment]:
        """One fragment of each worker, in the order of the workers."""
        if self._local is not None:
            return [self._sample_here(weights, version, exploration, steps)]
        shared = weft.put(weights)
        pending = {
            index: actor.sample.remote(shared, version, exploration, steps) for index, actor in enumerate(self._actors)
        }
        fragments: dict[int, Fragment] = {}
        while pending:
            for index, ref in list(pending.items()):
                fragment = self._result(index, ref)
                if fragment is None:
                    pending[index] = self._actors[index].sample.remote(shared, version, exploration, steps)
                else:
                    fragments[index] = fragment
                    del pending[index]
        return [fragments[index] for index in range(self.count)]

    def share(self, weights: NDArray[np.float32]) -> Any:
        """A ref of the weights, for any number of requests."""
        return weft.put(weights)

    @property
    def asked(self) -> int:
        """How many fragments are asked for and have not arrived."""
        return len(self._in_flight)

    def asked_of(self, index: int) -> int:
        return sum(worker == index for worker in self._in_flight.values())

    def request(self, index: int, shared: Any, version: int, exploration: float = 0.0) -> None:
        """Ask one worker for a fragment, to be had from `arrivals`."""
        ref = self._actors[index].sample.remote(shared, version, exploration, None)
        self._in_flight[ref] = index

    def arrivals(self, timeout_s: float | None = None) -> Iterator[tuple[int, Fragment | None]]:
        """(worker, fragment) of what has arrived; None in place of what a worker lost that had to be replaced.

        Waits for at least one unless a timeout is given; if none comes in time every worker counts as hung.
        """
        if not self._in_flight:
            return
        limit = self._blueprint.timeout_s + GRACE_S if timeout_s is None else timeout_s
        ready, _ = weft.wait(list(self._in_flight), num_returns=1, timeout=limit)
        if ready:
            ready, _ = weft.wait(list(self._in_flight), num_returns=len(self._in_flight), timeout=0)
        elif timeout_s is None:
            ready = list(self._in_flight)
        for ref in ready:
            index = self._in_flight.pop(ref, None)
            if index is not None:  # else it was lost with its worker meanwhile
                yield index, self._result(index, ref)

    def evaluate(self, weights: NDArray[np.float32], episodes: int, seed: int) -> list[Episode]:
        """Whole episodes without exploration, shared out among the workers."""
        if self._local is not None:
            return self._local.evaluate(weights, episodes, seed)
        shares = [len(range(index, episodes, self.count)) for index in range(self.count)]
        refs = [
            self._actors[index].evaluate.remote(weights, share, seed + index)
            for index, share in enumerate(shares)
            if share
        ]
        return [episode for result in weft.get(refs) for episode in result]

    def record(
        self, weights: NDArray[np.float32], episodes: int, seed: int, exploration: float | None
    ) -> Iterator[list[RecordedEpisode]]:
        """Whole episodes to learn from later, shared out among the workers."""
        if self._local is not None:
            yield self._local.record(weights, episodes, seed, exploration)
            return
        shares = [len(range(index, episodes, self.count)) for index in range(self.count)]
        refs = [
            self._actors[index].record.remote(weights, share, seed + index, exploration)
            for index, share in enumerate(shares)
            if share
        ]
        for ref in refs:
            yield weft.get(ref)

    def state(self) -> list[dict[str, Any]]:
        if self._local is not None:
            return [self._local.state()]
        return list(weft.get([actor.state.remote() for actor in self._actors]))

    def restore(self, saved: list[dict[str, Any]]) -> None:
        """Continue where the saved workers were; another number of workers begins new episodes."""
        if self._local is not None and len(saved) == 1:
            self._local.restore(saved[0])
        elif len(saved) == self.count:
            weft.get([actor.restore.remote(state) for actor, state in zip(self._actors, saved, strict=True)])

    def statistics(self) -> list[dict[str, Any]]:
        """What each worker's process is and holds."""
        if self._local is not None:
            return [self._local.statistics()]
        return list(weft.get([actor.statistics.remote() for actor in self._actors]))

    def close(self) -> None:
        if self._local is not None:
            self._local.close()
        for actor in self._actors:
            weft.kill(actor)
        self._actors = []
        self._in_flight = {}

    def _start(self, index: int) -> Any:
        actor_class: Any = weft.remote(self._worker_class)
        options = actor_class.options(num_cpus=self._cpus, runtime_env=WORKER_ENVIRONMENT)
        return options.remote(self._blueprint_ref, index, self._incarnations[index], *self._arguments)

    def _sample_here(
        self, weights: NDArray[np.float32], version: int, exploration: float, steps: int | None
    ) -> Fragment:
        assert self._local is not None
        while True:
            try:
                fragment = self._local.sample(weights, version, exploration, steps)
            except EnvironmentFailed as error:
                self._count_failure(error, self._restarts_failures)
                self._incarnations[0] += 1
                self._local = RolloutWorker(self._blueprint, 0, self._incarnations[0])
            else:
                self._failures_in_a_row = 0
                return fragment

    def _result(self, index: int, ref: Any) -> Fragment | None:
        """The fragment, or None after the worker was replaced."""
        try:
            fragment: Fragment = weft.get(ref, timeout=self._blueprint.timeout_s + GRACE_S)
        except EnvironmentFailed as error:
            self._count_failure(error, self._restarts_failures)
        except GetTimeoutError:
            hung = EnvironmentFailed(f"worker {index} did not answer within {self._blueprint.timeout_s + GRACE_S:g} s")
            self._count_failure(hung, self._restarts_failures)
        except ActorDiedError as error:
            self._count_failure(self._cause(index, error), True)
        else:
            self._failures_in_a_row = 0
            return fragment
        self._replace(index)
        return None

    def _cause(self, index: int, error: ActorDiedError) -> Exception:
        """What its constructor raised, if that is why the actor died; else whose worker it was."""
        if isinstance(error.__cause__, EnvironmentFailed):
            return error.__cause__
        died = EnvironmentFailed(f"worker {index} of {environments.describe(self._blueprint.env)} died: {error}")
        died.__cause__ = error
        return died

    def _replace(self, index: int) -> None:
        with contextlib.suppress(ActorError):
            weft.kill(self._actors[index])
        self._in_flight = {ref: worker for ref, worker in self._in_flight.items() if worker != index}
        self._incarnations[index] += 1
        self._actors[index] = self._start(index)

    def _count_failure(self, error: Exception, may_restart: bool) -> None:
        self.restarted += 1
        self._failures_in_a_row += 1
        if not may_restart or self._failures_in_a_row >= MOST_FAILURES_IN_A_ROW:
            raise error


def _share_of_cpus(count: int) -> float:
    """A CPU for each worker, or an equal part of those that are free."""
    free = float(weft.available_resources().get("CPU", 0.0))
    return min(1.0, int(free / count * 100) / 100)
