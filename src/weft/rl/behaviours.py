"""How a worker chooses actions, in NumPy alone: one class a family of algorithms.

A behaviour is pickled to each worker. For every fragment the worker calls `begin` once, which draws all the randomness
that the fragment needs, then `act` for each step, and `ended` for episodes that end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from weft.rl.distributions import pick
from weft.rl.networks import Params


class Behaviour(Protocol):
    """What a rollout worker needs to know of a policy."""

    keeps_next_observations: bool  # True for replay: each step's true successor is recorded
    remembers: bool  # False where the methods that speak of a memory do nothing

    def begin(self, rng: np.random.Generator, steps: int, count: int, exploration: float) -> dict[str, NDArray[Any]]:
        """Prepare a fragment; what it gives back becomes part of the fragment."""
        ...

    def act(self, params: Params, observations: NDArray[Any], time: int) -> NDArray[Any]:
        """The actions [N, ...] for a step."""
        ...

    def best(self, params: Params, observations: NDArray[Any], xp: Any = np) -> NDArray[Any]:
        """The actions without exploration."""
        ...

    def value(self, params: Params, observation: NDArray[Any], index: int, memory: Any = None) -> float | None:
        """The value of the last observation of environment `index`, whose episode was truncated; None if unused.

        `memory` is what `memory_of` gave then, where that is not now.
        """
        ...

    def ended(self, indices: list[int]) -> None:
        """The episodes of these environments are over."""
        ...

    def recorded(self) -> dict[str, NDArray[Any]]:
        """What `act` noted, [steps, N, ...] each; asked for at the fragment's end."""
        ...

    def unsee(self, indices: list[int]) -> None:
        """What these environments showed in the last `act` or `best` was not acted on: forget it again."""
        ...

    def memory_of(self, index: int) -> Any:
        """What is remembered of the running episode of an environment."""
        ...

    def begin_anew(self, started: dict[str, NDArray[Any]], indices: list[int]) -> None:
        """The fragment's first steps in these environments begin episodes, though others ran when it began."""
        ...


class Forgetful:
    """What behaviours without a memory share."""

    remembers = False

    def ended(self, indices: list[int]) -> None:
        """Nothing is remembered."""

    def unsee(self, indices: list[int]) -> None:
        """Nothing is remembered."""

    def memory_of(self, index: int) -> Any:
        return None

    def begin_anew(self, started: dict[str, NDArray[Any]], indices: list[int]) -> None:
        """Nothing is remembered."""


class Stochastic(Forgetful):
    """Draws from the action distribution of an actor-critic model.

    `record_inputs` keeps the distribution's inputs of each step, which off-policy corrections need.
    """

    keeps_next_observations = False

    def __init__(self, model: Any, record_inputs: bool = False) -> None:
        self.model = model
        self.record_inputs = record_inputs
        self._noise: NDArray[Any] = np.zeros(0)
        self._inputs: list[NDArray[Any]] = []

    def begin(self, rng: np.random.Generator, steps: int, count: int, exploration: float) -> dict[str, NDArray[Any]]:
        self._noise = self.model.noise(rng, (steps, count))
        self._inputs = []
        return {}

    def act(self, params: Params, observations: NDArray[Any], time: int) -> NDArray[Any]:
        inputs = self.model.action_inputs(np, params, observations)
        if self.record_inputs:
            self._inputs.append(inputs)
        return self.model.distribution(np, inputs).sample(self._noise[time])

    def best(self, params: Params, observations: NDArray[Any], xp: Any = np) -> NDArray[Any]:
        inputs = self.model.action_inputs(xp, params, observations)
        return self.model.distribution(xp, inputs).mode()

    def value(self, params: Params, observation: NDArray[Any], index: int, memory: Any = None) -> float | None:
        return float(self.model.value(np, params, observation[None])[0])

    def recorded(self) -> dict[str, NDArray[Any]]:
        return {"action_inputs": np.stack(self._inputs)} if self.record_inputs else {}


class Deterministic(Forgetful):
    """The likeliest action of a policy, always."""

    keeps_next_observations = False

    def __init__(self, model: Any) -> None:
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


class _Replayed(Forgetful):
    """What the behaviours of replay algorithms share: no values, no records."""

    keeps_next_observations = True

    def value(self, params: Params, observation: NDArray[Any], index: int, memory: Any = None) -> float | None:
        return None

    def recorded(self) -> dict[str, NDArray[Any]]:
        return {}


class EpsilonGreedy(_Replayed):
    """The action of the highest Q value, or any allowed one with probability `exploration`."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self._explore: NDArray[np.bool_] = np.zeros(0, np.bool_)
        self._noise: NDArray[Any] = np.zeros(0)
        self._layer_noise: dict[str, NDArray[Any]] = {}

    def begin(self, rng: np.random.Generator, steps: int, count: int, exploration: float) -> dict[str, NDArray[Any]]:
        self._explore = rng.random((steps, count)) < exploration
        self._noise = rng.random((steps, count, self.model.actions), np.float32)
        self._layer_noise = self.model.layer_noise(rng, (steps, count))
        return {}

    def act(self, params: Params, observations: NDArray[Any], time: int) -> NDArray[Any]:
        explore = self._explore[time]
        if explore.all():
            values = self._noise[time]
        else:
            layer_noise = {name: drawn[time] for name, drawn in self._layer_noise.items()}
            values = self.model.q_values(np, params, observations, layer_noise)
            values = np.where(explore[:, None], self._noise[time], values)
        return self.model.allowed(np, observations, values).argmax(axis=-1)

    def best(self, params: Params, observations: NDArray[Any], xp: Any = np) -> NDArray[Any]:
        values = self.model.q_values(xp, params, observations, {})
        return self.model.allowed(xp, observations, values).argmax(axis=-1)

    def errors(self, params: Params, transitions: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        """Temporal-difference errors of n-step transitions, as first priorities."""
        after = self.model.q_values(np, params, transitions["next_observations"], {})
        after = self.model.allowed(np, transitions["next_observations"], after).max(axis=-1)
        values = pick(np, self.model.q_values(np, params, transitions["observations"], {}), transitions["actions"])
        return transitions["rewards"] + transitions["discounts"] * after - values


class NoisyDeterministic(_Replayed):
    """A deterministic continuous policy plus normal noise of standard deviation `exploration`.

    An `exploration` below 0 draws uniform actions: for the first steps of a run. `correlation` is that of the noise of
    one step with the noise of the next.
    """

    def __init__(self, model: Any, correlation: float = 0.0) -> None:
        self.model = model
        self.correlation = correlation
        self._noise: NDArray[Any] = np.zeros(0)
        self._uniform = False

    def begin(self, rng: np.random.Generator, steps: int, count: int, exploration: float) -> dict[str, NDArray[Any]]:
        self._uniform = exploration < 0
        noise = correlated_normal(rng, (steps, count, self.model.action_size), self.correlation)
        self._noise = uniform_of_normal(noise) if self._uniform else noise * np.float32(exploration)
        return {}

    def act(self, params: Params, observations: NDArray[Any], time: int) -> NDArray[Any]:
        if self._uniform:
            return self._noise[time]
        return np.clip(self.model.action(np, params, observations) + self._noise[time], -1, 1)

    def best(self, params: Params, observations: NDArray[Any], xp: Any = np) -> NDArray[Any]:
        return self.model.action(xp, params, observations)

    def errors(self, params: Params, transitions: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        """Temporal-difference errors of n-step transitions, as first priorities; needs the critic's parameters."""
        action_after = self.model.action(np, params, transitions["next_observations"])
        after = self.model.values(np, params, transitions["next_observations"], action_after)[0]
        values = self.model.values(np, params, transitions["observations"], transitions["actions"])[0]
        return transitions["rewards"] + transitions["discounts"] * after - values


class Squashed(_Replayed):
    """Draws from a squashed normal distribution; an `exploration` below 0 draws uniform actions.

    `correlation` is that of the draws of one step with those of the next; each alone is distributed as without it.
    """

    def __init__(self, model: Any, correlation: float = 0.0) -> None:
        self.model = model
        self.correlation = correlation
        self._noise: NDArray[Any] = np.zeros(0)
        self._uniform = False

    def begin(self, rng: np.random.Generator, steps: int, count: int, exploration: float) -> dict[str, NDArray[Any]]:
        self._uniform = exploration < 0
        noise = correlated_normal(rng, (steps, count, self.model.action_size), self.correlation)
        self._noise = uniform_of_normal(noise) if self._uniform else noise
        return {}

    def act(self, params: Params, observations: NDArray[Any], time: int) -> NDArray[Any]:
        if self._uniform:
            return self._noise[time]
        return self.model.distribution(np, params, observations).sample(self._noise[time])

    def best(self, params: Params, observations: NDArray[Any], xp: Any = np) -> NDArray[Any]:
        return self.model.distribution(xp, params, observations).mode()


def correlated_normal(rng: np.random.Generator, shape: tuple[int, ...], correlation: float) -> NDArray[np.float32]:
    """Standard normal numbers; along the first axis each has this correlation with the next."""
    noise = rng.standard_normal(shape, np.float32)
    if correlation:
        fresh = np.float32(math.sqrt(1 - correlation**2))
        for step in range(1, len(noise)):
            noise[step] = np.float32(correlation) * noise[step - 1] + fresh * noise[step]
    return noise


def uniform_of_normal(noise: NDArray[np.float32]) -> NDArray[np.float32]:
    """Numbers uniform in [-1, 1] made of standard normal ones: the larger stays the larger."""
    return np.array([math.erf(value) for value in (noise / math.sqrt(2)).ravel().tolist()], np.float32).reshape(
        noise.shape
    )
