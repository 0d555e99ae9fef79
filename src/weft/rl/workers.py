"""The rollout workers of an algorithm: started, fed with weights, asked for fragments, replaced when they die.

WORKERS-1  A worker that dies, hangs or (where told so) gives what its spaces rule out costs its unfinished fragment and
           nothing else: another takes its place, with the same index and a fresh stream of randomness.
WORKERS-2  Workers that fail MOST_FAILURES_IN_A_ROW times without one fragment between end the run with the last error.
WORKERS-3  A single environment that raises does not cost its worker, where it may be restarted (`stepping.py`).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import weft
from weft.exceptions import ActorDiedError, ActorError, GetTimeoutError
from weft.rl import environments
from weft.rl.offline import RecordedEpisode
from weft.rl.rollout import Blueprint, Fragment, RolloutWorker
from weft.rl.stepping import EnvironmentFailed, Episode

logger = logging.getLogger("weft.rl")

MOST_FAILURES_IN_A_ROW = 5
REPLACED: Any = object()  # in the place of an answer
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
        self.environments_restarted = 0
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
        return self._of_each(
            lambda actor, _: actor.sample.remote(shared, version, exploration, steps),
            range(self.count),
            self._limit_s(),
        )

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
        limit_s = self._limit_s() if timeout_s is None else timeout_s
        ready, _ = weft.wait(list(self._in_flight), num_returns=1, timeout=limit_s)
        if ready:
            ready, _ = weft.wait(list(self._in_flight), num_returns=len(self._in_flight), timeout=0)
        elif timeout_s is None:
            ready = list(self._in_flight)
        for ref in ready:
            index = self._in_flight.pop(ref, None)
            if index is not None:  # else it was lost with its worker meanwhile
                fragment = self._result(index, ref, self._limit_s())
                yield index, None if fragment is REPLACED else fragment

    def evaluate(self, weights: NDArray[np.float32], episodes: int, seed: int) -> list[Episode]:
        """Whole episodes without exploration, shared out among the workers."""
        if self._local is not None:
            return self._local.evaluate(weights, episodes, seed)
        played = self._play(lambda actor, share, seed: actor.evaluate.remote(weights, share, seed), episodes, seed)
        return [episode for part in played for episode in part]

    def record(
        self, weights: NDArray[np.float32], episodes: int, seed: int, exploration: float | None
    ) -> list[RecordedEpisode]:
        """Whole episodes to learn from later, shared out among the workers."""
        if self._local is not None:
            return self._local.record(weights, episodes, seed, exploration)
        recorded = self._play(
            lambda actor, share, seed: actor.record.remote(weights, share, seed, exploration), episodes, seed
        )
        return [episode for part in recorded for episode in part]

    def state(self) -> list[dict[str, Any]]:
        if self._local is not None:
            return [self._local.state()]
        return self._of_each(lambda actor, _: actor.state.remote(), range(self.count))

    def restore(self, saved: list[dict[str, Any]]) -> None:
        """Continue where the saved workers were; another number of workers begins new episodes."""
        if self._local is not None and len(saved) == 1:
            self._local.restore(saved[0])
        elif len(saved) == self.count:
            self._of_each(lambda actor, index: actor.restore.remote(saved[index]), range(self.count))

    def statistics(self) -> list[dict[str, Any]]:
        """What each worker's process is and holds."""
        if self._local is not None:
            return [self._local.statistics()]
        return self._of_each(lambda actor, _: actor.statistics.remote(), range(self.count))

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
                self._note_failures(fragment)
                return fragment

    def _limit_s(self) -> float:
        """How long the driver waits for what a worker does within its own time limit."""
        return self._blueprint.timeout_s + GRACE_S

    def _play(self, ask: Callable[[Any, int, int], Any], episodes: int, seed: int) -> list[Any]:
        """Share whole episodes out; each worker first ends the fragments that it was asked for before."""
        shares = [len(range(index, episodes, self.count)) for index in range(self.count)]
        return self._of_each(
            lambda actor, index: ask(actor, shares[index], seed + index),
            [index for index, share in enumerate(shares) if share],
            self._limit_s() * (1 + self.asked),
        )

    def _of_each(
        self, ask: Callable[[Any, int], Any], indices: Iterable[int], limit_s: float | None = None
    ) -> list[Any]:
        """What these workers answer, in this order; one that is replaced meanwhile is asked again."""
        pending = {index: ask(self._actors[index], index) for index in indices}
        answers = dict.fromkeys(pending)
        while pending:
            for index, ref in list(pending.items()):
                answer = self._result(index, ref, limit_s)
                if answer is REPLACED:
                    pending[index] = ask(self._actors[index], index)
                else:
                    answers[index] = answer
                    del pending[index]
        return list(answers.values())

    def _result(self, index: int, ref: Any, limit_s: float | None) -> Any:
        """What the worker answers, or REPLACED after another has taken its place."""
        try:
            answer = weft.get(ref, timeout=limit_s)
        except EnvironmentFailed as error:
            self._count_failure(error, self._restarts_failures)
        except GetTimeoutError:
            hung = EnvironmentFailed(f"worker {index} did not answer within {limit_s:g} s")
            self._count_failure(hung, self._restarts_failures)
        except ActorDiedError as error:
            self._count_failure(self._cause(index, error), True)
        else:
            self._failures_in_a_row = 0
            if isinstance(answer, Fragment):
                self._note_failures(answer)
            return answer
        self._replace(index)
        return REPLACED

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

    def _note_failures(self, fragment: Fragment) -> None:
        if fragment.failures and not self.environments_restarted:
            logger.warning("an environment raised and was made anew (on_environment_error): %s", fragment.failures[0])
        self.environments_restarted += len(fragment.failures)

    def _count_failure(self, error: Exception, may_restart: bool) -> None:
        self.restarted += 1
        self._failures_in_a_row += 1
        if not may_restart or self._failures_in_a_row >= MOST_FAILURES_IN_A_ROW:
            raise error


def _share_of_cpus(count: int) -> float:
    """A CPU for each worker, or an equal part of those that are free."""
    free = float(weft.available_resources().get("CPU", 0.0))
    return min(1.0, int(free / count * 100) / 100)
