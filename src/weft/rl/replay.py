"""Replay memory: transitions in arrays that are overwritten from the oldest, drawn uniformly or by priority.

A transition is an observation, an action, the discounted rewards of the next n steps (`rewards`), the observation after
them, and the factor by which a value there counts (`discounts`: gamma^n, or 0 after an episode's end).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


class NStep:
    """Turns the fragments of one worker into n-step transitions. The last n - 1 rows wait for the next fragment."""

    FIELDS = ("observations", "actions", "rewards", "terminated", "truncated", "valid", "next_observations")

    def __init__(self, n: int, gamma: float) -> None:
        self._n, self._gamma = n, gamma
        self.waiting: dict[str, NDArray[Any]] = {}

    def transitions(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        steps = len(arrays["rewards"])
        rows = {name: arrays[name][:steps] for name in self.FIELDS}
        if self.waiting and self.waiting["rewards"].shape[1] == rows["rewards"].shape[1]:
            rows = {name: np.concatenate([self.waiting[name], array]) for name, array in rows.items()}
        count = max(0, len(rows["rewards"]) - self._n + 1)
        self.waiting = {name: array[count:].copy() for name, array in rows.items()} if self._n > 1 else {}
        done = rows["terminated"] | rows["truncated"]
        envs = rows["rewards"].shape[1]
        rewards = np.zeros((count, envs), np.float32)
        running = np.ones((count, envs), np.bool_)  # the episode has gone on up to here
        factor = np.ones((count, envs), np.float32)
        last = np.zeros((count, envs), np.int64)
        for ahead in range(self._n):
            rewards += np.where(running, factor * rows["rewards"][ahead : ahead + count], 0)
            factor = np.where(running, factor * np.float32(self._gamma), factor)
            last = np.where(running, ahead, last)
            running = running & ~done[ahead : ahead + count]
        time, env = np.nonzero(rows["valid"][:count])
        ends = (time + last[time, env], env)
        return {
            "observations": rows["observations"][time, env],
            "actions": rows["actions"][time, env],
            "rewards": rewards[time, env],
            "next_observations": rows["next_observations"][ends],
            "discounts": np.where(rows["terminated"][ends], np.float32(0), factor[time, env]),
        }


class Replay:
    """The memory, drawn from uniformly."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._arrays: dict[str, NDArray[Any]] = {}
        self._next = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, transitions: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
        """Store them over the oldest; where they lie."""
        count = len(transitions["rewards"])
        if count > self.capacity:
            raise ValueError(f"{count} transitions at once do not fit a replay of {self.capacity}")
        if not self._arrays:
            self._arrays = {
                name: np.zeros((self.capacity, *array.shape[1:]), array.dtype) for name, array in transitions.items()
            }
        places = (self._next + np.arange(count)) % self.capacity
        for name, array in transitions.items():
            self._arrays[name][places] = array
        self._next = (self._next + count) % self.capacity
        self._size = min(self._size + count, self.capacity)
        return places

    def sample(
        self, rng: np.random.Generator, shape: tuple[int, ...], beta: float
    ) -> tuple[NDArray[np.int64], dict[str, NDArray[Any]]]:
        """Transitions of `shape`, whose last axis is a batch, and where they lie."""
        places = rng.integers(self._size, size=shape)
        return places, self._at(places)

    def set_priorities(self, places: NDArray[np.int64], errors: NDArray[Any]) -> None:
        """Uniform replay has none."""

    def state(self) -> tuple[dict[str, int], dict[str, NDArray[Any]]]:
        return {"next": self._next, "size": self._size}, {
            name: array[: self._size] for name, array in self._arrays.items()
        }

    def restore(self, plain: Mapping[str, int], arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
        """Take over a memory, of one that does not fit the newest part; the rows of it that were kept."""
        upcoming, size = plain["next"], plain["size"]
        rows = np.arange(size)
        if size != self.capacity and (upcoming != size or size > self.capacity):  # a ring of another size
            rows = ((upcoming + rows) % size)[-self.capacity :]
            upcoming = len(rows)
        self._size, self._next = len(rows), upcoming % self.capacity
        self._arrays = {}
        for name, array in arrays.items():
            self._arrays[name] = np.zeros((self.capacity, *array.shape[1:]), array.dtype)
            self._arrays[name][: self._size] = array[rows]
        return rows

    def _at(self, places: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        found = {name: array[places] for name, array in self._arrays.items()}
        found["weights"] = np.ones(places.shape, np.float32)
        return found


class PrioritizedReplay(Replay):
    """Drawn from in proportion to priority^alpha, with weights that correct for it: https://arxiv.org/abs/1511.05952.

    A batch has one draw of each of as many equal parts of the priorities' sum; its largest weight is 1.
    """

    def __init__(self, capacity: int, alpha: float) -> None:
        super().__init__(capacity)
        self._alpha = alpha
        self._leaves = 1 << max(1, (capacity - 1).bit_length())
        self._sums = np.zeros(2 * self._leaves)  # node i has the children 2 i and 2 i + 1; leaves come last
        self._most = 1.0

    def add(self, transitions: Mapping[str, NDArray[Any]], errors: NDArray[Any] | None = None) -> NDArray[np.int64]:
        """New transitions get the highest priority there has been, unless their errors are known."""
        places = super().add(transitions)
        if errors is None:
            self._set(places, np.full(len(places), self._most))
        else:
            self.set_priorities(places, errors)
        return places

    def sample(
        self, rng: np.random.Generator, shape: tuple[int, ...], beta: float
    ) -> tuple[NDArray[np.int64], dict[str, NDArray[Any]]]:
        batch = shape[-1]
        strata = (np.arange(batch) + rng.random(shape)) / batch
        places = self._descend(strata.ravel()).reshape(shape)
        found = self._at(places)
        chances = self._sums[self._leaves + places] / self._sums[1]
        weights = (self._size * chances) ** -beta
        found["weights"] = (weights / weights.max(axis=-1, keepdims=True)).astype(np.float32)
        return places, found

    def set_priorities(self, places: NDArray[np.int64], errors: NDArray[Any]) -> None:
        priorities = (np.abs(errors.astype(np.float64)).ravel() + 1e-6) ** self._alpha
        self._most = max(self._most, float(priorities.max(initial=0.0)))
        self._set(places.ravel(), priorities)

    def state(self) -> tuple[dict[str, int], dict[str, NDArray[Any]]]:
        plain, arrays = super().state()
        leaves = self._sums[self._leaves : self._leaves + self._size]
        return plain, {**arrays, "priorities": leaves, "most": np.asarray([self._most])}

    def restore(self, plain: Mapping[str, int], arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
        stored = {name: array for name, array in arrays.items() if name not in ("priorities", "most")}
        rows = super().restore(plain, stored)
        self._most = float(arrays["most"][0])
        self._sums[:] = 0
        self._set(np.arange(self._size), arrays["priorities"][rows])
        return rows

    def _set(self, places: NDArray[np.int64], priorities: NDArray[np.float64]) -> None:
        nodes = self._leaves + places
        self._sums[nodes] = priorities
        while nodes.size and nodes[0] > 1:
            nodes = np.unique(nodes >> 1)
            self._sums[nodes] = self._sums[2 * nodes] + self._sums[2 * nodes + 1]

    def _descend(self, fractions: NDArray[np.float64]) -> NDArray[np.int64]:
        """For each fraction of the whole sum, the leaf in which it falls."""
        targets = fractions * self._sums[1]
        nodes = np.ones(len(targets), np.int64)
        while nodes[0] < self._leaves:
            left = self._sums[2 * nodes]
            right = targets >= left
            targets = np.where(right, targets - left, targets)
            nodes = 2 * nodes + right
        return np.minimum(nodes - self._leaves, self._size - 1)
