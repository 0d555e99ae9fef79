"""Evaluating perturbed policies, for evolution strategies: workers, a tree of aggregators, a shared noise table.

The noise table is one vector of normal numbers, `put` once: it lies in the arena, and a perturbation is an offset into
it that every process reads in place. An aggregator owns some workers, shares a list of offsets out among them, and adds
up the weighted perturbations of its part, so that the driver gets one vector from each aggregator instead of one from
each worker. With no aggregators there is one in the driver. Everything here is NumPy.

EVOLVE-1  A worker that dies costs the evaluations it had not given back; another does them again.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

import weft
from weft.exceptions import ActorDiedError
from weft.rl import environments
from weft.rl.behaviours import Behaviour, Forgetful
from weft.rl.models import ActorCritic
from weft.rl.networks import Params
from weft.rl.rollout import Blueprint
from weft.rl.stepping import EnvironmentList, Episode, open_environments
from weft.rl.watchdog import time_limit
from weft.rl.workers import WORKER_ENVIRONMENT

MOST_DEATHS_IN_A_ROW = 5


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


class Deterministic(Forgetful):
    """The likeliest action of a policy, always."""

    keeps_next_observations = False

    def __init__(self, model: ActorCritic) -> None:
        self.model = model

    def begin(self, rng: np.random.Generator, steps: int, count: int, exploration: float) -> dict[str, NDArray[Any]]:
        return {}

    def act(self, params: Params, observations: NDArray[Any], time: int) -> NDArray[Any]:
        return self.best(params, observations)

    def best(self, params: Params, observations: NDArray[Any], xp: Any = np) -> NDArray[Any]:
        return self.model.distribution(xp, self.model.action_inputs(xp, params, observations)).mode()

    def value(self, params: Params, observation: NDArray[Any], index: int, memory: Any = None) -> float | None:
        return None

    def recorded(self) -> dict[str, NDArray[Any]]:
        return {}


@dataclasses.dataclass
class Evaluations:
    """Rewards and lengths [directions, 2] of the policies on both sides, and what they saw."""

    rewards: NDArray[np.float64]
    lengths: NDArray[np.int64]
    sums: ObservationSums


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
        with time_limit(self._blueprint.timeout_s, lambda: TimeoutError(f"{envs.where()} did not come back")):
            observations = envs.begin(0, seed)
            while not envs.episodes:
                seen.append(observations)
                observations = envs.step(behaviour.best(params, observations)).observations
        if sums is not None:
            rows = np.concatenate(seen).reshape(len(seen), -1)[:, : len(sums.sum)].astype(np.float64)
            sums.add(ObservationSums(len(rows), rows.sum(axis=0), (rows**2).sum(axis=0)))
        return envs.episodes[0]


class Aggregator:
    """Shares evaluations out among its workers, and adds up weighted perturbations."""

    def __init__(
        self, blueprint: Blueprint, indices: list[int], noise: NDArray[np.float32], noise_ref: list[Any], size: int
    ) -> None:
        """`noise_ref` is in a list so that an aggregator that is an actor gets the ref itself, to pass on."""
        self._blueprint, self._noise, self._noise_ref, self._size = blueprint, noise, noise_ref, size
        self._indices = indices
        self.restarted = 0
        self._local = None if indices else EvolutionWorker(blueprint, 0, noise, size)
        self._actors = [self._start(index) for index in indices]

    def evaluate(
        self, weights: NDArray[np.float32], offsets: NDArray[np.int64], sigma: float, seeds: NDArray[np.int64]
    ) -> Evaluations:
        if self._local is not None:
            return self._local.evaluate(weights, offsets, sigma, seeds)
        shared = weft.put(weights)
        parts = np.array_split(np.arange(len(offsets)), len(self._actors))

        def ask(place: int) -> Any:
            part = parts[place]
            return self._actors[place].evaluate.remote(shared, offsets[part], sigma, seeds[part])

        refs = [ask(place) for place in range(len(self._actors))]
        found = [self._result(place, ref, ask) for place, ref in enumerate(refs)]
        sums = found[0].sums
        for part in found[1:]:
            sums.add(part.sums)
        rewards = np.concatenate([part.rewards for part in found])
        return Evaluations(rewards, np.concatenate([part.lengths for part in found]), sums)

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

    def _result(self, place: int, ref: Any, ask: Any) -> Evaluations:
        for attempt in range(MOST_DEATHS_IN_A_ROW):
            try:
                return weft.get(ref)
            except ActorDiedError:
                if attempt + 1 == MOST_DEATHS_IN_A_ROW:
                    raise
                self.restarted += 1
                self._actors[place] = self._start(self._indices[place])
                ref = ask(place)
        raise AssertionError("unreachable")


class Evaluators:
    """The tree: some aggregators with their workers, or one aggregator in this process."""

    def __init__(
        self, blueprint: Blueprint, workers: int, aggregators: int, noise: NDArray[np.float32], size: int
    ) -> None:
        self._size = size
        noise_ref = weft.put(noise) if workers else None
        groups = [list(range(workers))[start :: max(aggregators, 1)] for start in range(max(aggregators, 1))]
        self._local: Aggregator | None = None
        self._actors: list[Any] = []
        if aggregators and workers:
            actor_class: Any = weft.remote(Aggregator)
            options = actor_class.options(num_cpus=0, runtime_env=WORKER_ENVIRONMENT)
            self._actors = [options.remote(blueprint, group, noise_ref, [noise_ref], size) for group in groups if group]
        else:
            self._local = Aggregator(blueprint, list(range(workers)), noise, [noise_ref], size)

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
        sums = found[0].sums
        for part in found[1:]:
            sums.add(part.sums)
        rewards = np.concatenate([part.rewards for part in found])
        return Evaluations(rewards, np.concatenate([part.lengths for part in found]), sums)

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
