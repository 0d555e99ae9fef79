"""Ape-X's other processes: a part of the memory, and the workers that fill it. NumPy alone."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
from numpy.typing import NDArray

import weft
from weft.exceptions import ActorError
from weft.rl.replay import NStep, PrioritizedReplay
from weft.rl.rollout import Blueprint, Fragment, RolloutWorker

MOST_UNWRITTEN = 2  # fragments that a shard has not taken yet, after which its worker waits


class ReplayShard:
    """Holds some of the transitions. Restarted, it begins empty, and priorities of the places before are void.

    `life` tells one incarnation from the next: it goes out with each draw and comes back with its priorities.
    """

    def __init__(self, capacity: int, alpha: float, seed: int) -> None:
        self._life = secrets.randbits(63)
        self._replay = PrioritizedReplay(capacity, alpha)
        self._rng = np.random.default_rng([seed, 2**23])

    def add(self, transitions: dict[str, NDArray[Any]], errors: NDArray[Any]) -> int:
        """Store them; how many there are."""
        self._replay.add(transitions, errors)
        return len(self._replay)

    def draw(self, shape: tuple[int, int], beta: float) -> tuple[int, NDArray[np.int64], dict[str, Any]] | None:
        """This life, where batches [updates, batch, ...] lie, and the batches; None while there is less than one."""
        if len(self._replay) < shape[1]:
            return None
        return self._life, *self._replay.sample(self._rng, shape, beta)

    def set_priorities(self, life: int, places: NDArray[np.int64], errors: NDArray[Any]) -> None:
        if life == self._life:
            self._replay.set_priorities(places, errors)


class ShardedWorker(RolloutWorker):
    """A rollout worker that sends its transitions to the shards, with the errors it sees in them."""

    def __init__(
        self, blueprint: Blueprint, index: int, incarnation: int, shards: list[Any], n_steps: int, gamma: float
    ) -> None:
        super().__init__(blueprint, index, incarnation)
        self._shards = shards
        self._n_step = NStep(n_steps, gamma)
        self._unwritten: list[Any] = []

    def sample(
        self, weights: NDArray[np.float32], version: int = 0, exploration: float = 0.0, steps: int | None = None
    ) -> Fragment:
        fragment = super().sample(weights, version, exploration, steps)
        transitions = self._n_step.transitions(fragment.arrays)
        if len(transitions["rewards"]):
            behaviour: Any = self._blueprint.behaviour
            errors = behaviour.errors(self._blueprint.layout.unpack(weights), transitions)
            shard = self._shards[(self._fragments + self._index) % len(self._shards)]
            self._unwritten.append(shard.add.remote(transitions, errors))
        while len(self._unwritten) > MOST_UNWRITTEN:
            self._wait_for_shard()
        fragment.arrays = {"valid": fragment.arrays["valid"]}
        return fragment

    def _wait_for_shard(self) -> None:
        try:
            weft.get(self._unwritten.pop(0))
        except ActorError:
            return  # the shard died and is restarted; what it held is lost
