"""Evaluating perturbed policies, for evolution strategies: workers, a tree of aggregators, a shared noise table.

The noise table is one vector of normal numbers, `put` once: it lies in the arena, and a perturbation is an offset into
it that every process reads in place. An aggregator owns some workers, shares a list of offsets out among them, and adds
up the weighted perturbations of its part, so that the driver gets one vector from each aggregator instead of one from
each worker. With no aggregators there is one in the driver. Everything here is NumPy.

EVOLVE-1  A worker or an aggregator that dies costs the evaluations it had not given back; another does them again.
EVOLVE-2  What is not a number is no evaluation: it raises EnvironmentFailed, or restarts the worker where told so.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

import weft
from weft.exceptions import ActorDiedError, GetTimeoutError
from weft.rl import environments
from weft.rl.behaviours import Behaviour, Deterministic
from weft.rl.rollout import Blueprint
from weft.rl.stepping import EnvironmentFailed, EnvironmentList, Episode, open_environments
from weft.rl.watchdog import time_limit
from weft.rl.workers import GRACE_S, MOST_FAILURES_IN_A_ROW, WORKER_ENVIRONMENT


@dataclasses.dataclass
class ObservationSums:
    """Count, sum and sum of squares of observations, to normalise others by."""

    count: float
    sum: NDArray[np.float64]
    squares: NDArray[np.float64]

    @classmethod
    def zeros(cls, size: int) -> ObservationSums:
        return cls(0.0, np.zeros(size), np.zeros(size))

    def add(self, other: ObservationSums) -> None:
        """Sums that came from another process are read-only, so new arrays take their place."""
        self.count += other.count
        self.sum = self.sum + other.sum
        self.squares = self.squares + other.squares

    def filter(self) -> dict[str, NDArray[np.float32]]:
        """The parameters by which networks normalise what they see."""
        if self.count < 2:
            return {
                "filter.mean": np.zeros(len(self.sum), np.float32),
                "filter.scale": np.ones(len(self.sum), np.float32),
            }
        mean = self.sum / self.count
        variance = np.maximum(self.squares / self.count - mean**2, 0)
        scale = np.where(variance > 1e-8, 1 / np.sqrt(variance + 1e-8), 1.0)
        return {"filter.mean": mean.astype(np.float32), "filter.scale": scale.astype(np.float32)}


@dataclasses.dataclass
class Evaluations:
    """Rewards and lengths [directions, 2] of the policies on both sides, and what they saw."""

    rewards: NDArray[np.float64]
    lengths: NDArray[np.int64]
    sums: ObservationSums

    @classmethod
    def joined(cls, parts: list[Evaluations]) -> Evaluations:
        """Those of several workers, in their order."""
        sums = ObservationSums.zeros(len(parts[0].sums.sum))
        for part in parts:
            sums.add(part.sums)
        rewards = np.concatenate([part.rewards for part in parts])
        return cls(rewards, np.concatenate([part.lengths for part in parts]), sums)


class EvolutionWorker:
    """Plays whole episodes with perturbed weights."""

    def __init__(self, blueprint: Blueprint, index: int, noise: NDArray[np.float32], size: int) -> None:
        self._blueprint = blueprint
        self._noise = noise
        self._size = size
        self._label = f"{environments.describe(blueprint.env)} in worker {index}"
        opened = open_environments(
            lambda: environments.make(blueprint.env, blueprint.env_config, blueprint.episode_limit),
            1,
            np.random.default_rng(0),
            self._label,
        )
        if not isinstance(opened, EnvironmentList):
            raise TypeError(f"{self._label} is a vector environment; evolution plays single ones")
        self._environments = opened

    def evaluate(
        self, weights: NDArray[np.float32], offsets: NDArray[np.int64], sigma: float, seeds: NDArray[np.int64]
    ) -> Evaluations:
        """One episode on each side of each direction. The first `size` weights are perturbed."""
        rewards, lengths = np.zeros((len(offsets), 2)), np.zeros((len(offsets), 2), np.int64)
        sums = ObservationSums.zeros(self._environments.encoder.feature_size)
        for row, (offset, seed) in enumerate(zip(offsets.tolist(), seeds.tolist(), strict=True)):
            direction = sigma * self._noise[offset : offset + self._size]
            for column, sign in enumerate((1, -1)):
                perturbed = weights.copy()
                perturbed[: self._size] += sign * direction
                episode = self.play(perturbed, seed, sums)
                rewards[row, column], lengths[row, column] = episode.reward, episode.length
        return Evaluations(rewards, lengths, sums)

    def play(self, weights: NDArray[np.float32], seed: int, sums: ObservationSums | None = None) -> Episode:
        """One episode."""
        params = self._blueprint.layout.unpack(weights)
        behaviour, envs = self._blueprint.behaviour, self._environments
        envs.episodes = []
        seen = []
        with time_limit(self._blueprint.timeout_s, lambda: EnvironmentFailed(f"{envs.where()} did not come back")):
            observations = envs.begin(0, seed)
            while not envs.episodes:
                seen.append(observations)
                step = envs.step(behaviour.best(params, observations))
                if not np.isfinite(step.rewards).all():
                    raise EnvironmentFailed(f"{self._label}: at step {len(seen) - 1} the reward is {step.rewards[0]}")
                observations = step.observations
        self._see(np.concatenate(seen), sums)
        return envs.episodes[0]

    def _see(self, seen: NDArray[Any], sums: ObservationSums | None) -> None:
        """Add what an episode showed to the sums; nothing that is not a number."""
        rows = seen.reshape(len(seen), -1)
        finite = np.isfinite(rows).all(axis=1)
        if not finite.all():
            step = int(np.argmin(finite))
            raise EnvironmentFailed(f"{self._label}: at step {step} the observation is not finite: {rows[step]}")
        if sums is not None:
            rows = rows[:, : len(sums.sum)].astype(np.float64)
            sums.add(ObservationSums(len(rows), rows.sum(axis=0), (rows**2).sum(axis=0)))


class Aggregator:
    """Shares evaluations out among its workers, and adds up weighted perturbations."""

    def __init__(
        self,
        blueprint: Blueprint,
        indices: list[int],
        noise: NDArray[np.float32],
        noise_ref: list[Any],
        size: int,
        restarts_failures: bool,
    ) -> None:
        """`noise_ref` is in a list so that an aggregator that is an actor gets the ref itself, to pass on."""
        self._blueprint, self._noise, self._noise_ref, self._size = blueprint, noise, noise_ref, size
        self._indices = indices
        self._restarts_failures = restarts_failures
        self.restarted = 0
        self._local = None if indices else EvolutionWorker(blueprint, 0, noise, size)
        self._actors = [self._start(index) for index in indices]

    def evaluate(
        self, weights: NDArray[np.float32], offsets: NDArray[np.int64], sigma: float, seeds: NDArray[np.int64]
    ) -> Evaluations:
        if self._local is not None:
            return self._evaluated_here(weights, offsets, sigma, seeds)
        shared = weft.put(weights)
        parts = np.array_split(np.arange(len(offsets)), len(self._actors))

        def ask(place: int) -> Any:
            part = parts[place]
            return self._actors[place].evaluate.remote(shared, offsets[part], sigma, seeds[part])

        refs = [ask(place) for place in range(len(self._actors))]
        limit_s = 2 * self._blueprint.timeout_s * max(map(len, parts)) + GRACE_S
        return Evaluations.joined([self._result(place, ref, ask, limit_s) for place, ref in enumerate(refs)])

    def combine(self, offsets: NDArray[np.int64], weights: NDArray[np.float64]) -> NDArray[np.float32]:
        """The sum of weight × perturbation."""
        total = np.zeros(self._size, np.float32)
        for offset, weight in zip(offsets.tolist(), weights.tolist(), strict=True):
            total += np.float32(weight) * self._noise[offset : offset + self._size]
        return total

    def close(self) -> None:
        for actor in self._actors:
            with contextlib.suppress(ActorDiedError):
                weft.kill(actor)

    def _start(self, index: int) -> Any:
        actor_class: Any = weft.remote(EvolutionWorker)
        options = actor_class.options(num_cpus=0, runtime_env=WORKER_ENVIRONMENT)
        return options.remote(self._blueprint, index, self._noise_ref[0], self._size)

    def _evaluated_here(self, *arguments: Any) -> Evaluations:
        for attempt in itertools.count(1):
            assert self._local is not None
            try:
                return self._local.evaluate(*arguments)
            except EnvironmentFailed as error:
                self._count_failure(error, attempt)
                self._local = EvolutionWorker(self._blueprint, 0, self._noise, self._size)
        raise AssertionError("unreachable")

    def _result(self, place: int, ref: Any, ask: Callable[[int], Any], limit_s: float) -> Evaluations:
        for attempt in itertools.count(1):
            try:
                return weft.get(ref, timeout=limit_s)
            except (ActorDiedError, EnvironmentFailed) as error:
                self._count_failure(error, attempt)
            except GetTimeoutError:
                hung = f"worker {self._indices[place]} did not answer within {limit_s:g} s"
                self._count_failure(EnvironmentFailed(hung), attempt)
            with contextlib.suppress(ActorDiedError):
                weft.kill(self._actors[place])
            self._actors[place] = self._start(self._indices[place])
            ref = ask(place)
        raise AssertionError("unreachable")

    def _count_failure(self, error: Exception, attempt: int) -> None:
        cause = error.__cause__ if isinstance(error.__cause__, EnvironmentFailed) else error
        is_final = isinstance(error, EnvironmentFailed) and not self._restarts_failures
        if is_final or attempt == MOST_FAILURES_IN_A_ROW:
            raise cause
        self.restarted += 1


class Evaluators:
    """The tree: some aggregators with their workers, or one aggregator in this process."""

    def __init__(
        self,
        blueprint: Blueprint,
        workers: int,
        aggregators: int,
        noise: NDArray[np.float32],
        size: int,
        restarts_failures: bool = False,
    ) -> None:
        noise_ref = weft.put(noise) if workers else None
        groups = [list(range(workers))[start :: max(aggregators, 1)] for start in range(max(aggregators, 1))]
        self._local: Aggregator | None = None
        self._actors: list[Any] = []
        if aggregators and workers:
            actor_class: Any = weft.remote(Aggregator)
            # What an aggregator is asked depends on nothing that it holds, so another can begin it anew.
            options = actor_class.options(
                num_cpus=0, max_restarts=-1, max_task_retries=-1, runtime_env=WORKER_ENVIRONMENT
            )
            self._actors = [
                options.remote(blueprint, group, noise_ref, [noise_ref], size, restarts_failures)
                for group in groups
                if group
            ]
        else:
            self._local = Aggregator(blueprint, list(range(workers)), noise, [noise_ref], size, restarts_failures)

    @property
    def restarted(self) -> int:
        return self._local.restarted if self._local else 0

    def evaluate(
        self, weights: NDArray[np.float32], offsets: NDArray[np.int64], sigma: float, seeds: NDArray[np.int64]
    ) -> Evaluations:
        if self._local is not None:
            return self._local.evaluate(weights, offsets, sigma, seeds)
        shared = weft.put(weights)
        parts = np.array_split(np.arange(len(offsets)), len(self._actors))
        found = weft.get(
            [
                actor.evaluate.remote(shared, offsets[part], sigma, seeds[part])
                for actor, part in zip(self._actors, parts, strict=True)
            ]
        )
        return Evaluations.joined(found)

    def combine(self, offsets: NDArray[np.int64], weights: NDArray[np.float64]) -> NDArray[np.float32]:
        if self._local is not None:
            return self._local.combine(offsets, weights)
        parts = np.array_split(np.arange(len(offsets)), len(self._actors))
        refs = [
            actor.combine.remote(offsets[part], weights[part]) for actor, part in zip(self._actors, parts, strict=True)
        ]
        return np.sum(weft.get(refs), axis=0)

    def close(self) -> None:
        if self._local is not None:
            self._local.close()
        if self._actors:
            weft.get([actor.close.remote() for actor in self._actors])
            for actor in self._actors:
                weft.kill(actor)
            self._actors = []


def acting_params(vector: NDArray[np.float32], params: Mapping[str, Any], sums: ObservationSums) -> dict[str, Any]:
    """The vector's parameters by name and the observation filter: what a `Deterministic` policy acts with."""
    acting: dict[str, Any] = {}
    offset = 0
    for name, value in params.items():
        acting[name] = vector[offset : offset + np.size(value)].reshape(np.shape(value))
        offset += np.size(value)
    return {**acting, **sums.filter()}


def policy_only(behaviour: Behaviour, rng: np.random.Generator) -> dict[str, NDArray[np.float32]]:
    """Initial parameters of the policy, without the critic that evolution has no use for."""
    assert isinstance(behaviour, Deterministic)
    params = {name: value for name, value in behaviour.model.init(rng).items() if not name.startswith("critic.")}
    return {name: np.zeros_like(value) if name.startswith("log_std") else value for name, value in params.items()}
