"""Policies with a memory: GRU and LSTM cells, an actor-critic over one, and the way a worker carries its state.

The state of an environment's memory is one row [units]; it is zero at the start of every episode.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from weft.rl.custom import CustomNetwork
from weft.rl.distributions import DISTRIBUTIONS, FORBIDDEN
from weft.rl.networks import MLP, Params, normalize, orthogonal
from weft.rl.spaces import ActionDecoder, ObservationEncoder, SpaceMismatch

if TYPE_CHECKING:
    from weft.rl.config import AlgorithmConfig


@dataclasses.dataclass(frozen=True)
class GRU:
    """A gated recurrent unit: https://arxiv.org/abs/1406.1078."""

    name: str
    inputs: int
    size: int

    @property
    def state_size(self) -> int:
        return self.size

    def init(self, rng: np.random.Generator) -> dict[str, NDArray[np.float32]]:
        return _cell_params(rng, self.name, self.inputs, self.size, 3)

    def apply(self, xp: Any, params: Params, inputs: Any, state: Any) -> tuple[Any, Any]:
        size = self.size
        from_input = inputs @ params[f"{self.name}.input"] + params[f"{self.name}.bias"]
        from_state = state @ params[f"{self.name}.state"]
        gates = _sigmoid(xp, from_input[..., : 2 * size] + from_state[..., : 2 * size])
        update, reset = gates[..., :size], gates[..., size:]
        candidate = xp.tanh(from_input[..., 2 * size :] + reset * from_state[..., 2 * size :])
        after = update * state + (1 - update) * candidate
        return after, after


@dataclasses.dataclass(frozen=True)
class LSTM:
    """Long short-term memory: https://doi.org/10.1162/neco.1997.9.8.1735. The state is the output, then the cell."""

    name: str
    inputs: int
    size: int

    @property
    def state_size(self) -> int:
        return 2 * self.size

    def init(self, rng: np.random.Generator) -> dict[str, NDArray[np.float32]]:
        return _cell_params(rng, self.name, self.inputs, self.size, 4)

    def apply(self, xp: Any, params: Params, inputs: Any, state: Any) -> tuple[Any, Any]:
        size = self.size
        output, cell = state[..., :size], state[..., size:]
        gates = inputs @ params[f"{self.name}.input"] + output @ params[f"{self.name}.state"]
        gates = gates + params[f"{self.name}.bias"]
        opened = _sigmoid(xp, gates[..., : 3 * size])
        into, forget, out = opened[..., :size], opened[..., size : 2 * size], opened[..., 2 * size :]
        cell = forget * cell + into * xp.tanh(gates[..., 3 * size :])
        output = out * xp.tanh(cell)
        return output, xp.concatenate([output, cell], axis=-1)


@dataclasses.dataclass(frozen=True)
class RecurrentActorCritic:
    """Dense layers, a memory, and linear heads for policy and value on what it puts out."""

    torso: MLP | CustomNetwork
    cell: GRU | LSTM
    policy: MLP
    critic: MLP
    action_kind: str
    action_sizes: tuple[int, ...]
    mask_size: int

    @classmethod
    def of(
        cls, encoder: ObservationEncoder, decoder: ActionDecoder, config: AlgorithmConfig, memory: str, units: int
    ) -> RecurrentActorCritic:
        if encoder.is_image and config.network is None:
            raise SpaceMismatch(f"recurrent policies see vectors, but the environment shows {encoder.space}")
        outputs = decoder.sizes[0] if decoder.kind == "box" else sum(decoder.sizes)
        torso: MLP | CustomNetwork
        if config.network is None:
            torso = MLP("torso", (encoder.feature_size, *config.hidden), config.activation, 1.4, activate_final=True)
        else:
            torso = CustomNetwork("network", config.network, encoder)
        features = torso.sizes[-1] if isinstance(torso, MLP) else torso.features
        cell = (GRU if memory == "gru" else LSTM)("memory", features, units)
        return cls(
            torso=torso,
            cell=cell,
            policy=MLP("policy", (units, outputs), final_gain=0.01),
            critic=MLP("critic", (units, 1)),
            action_kind=decoder.kind,
            action_sizes=decoder.sizes,
            mask_size=encoder.mask_size,
        )

    def init(self, rng: np.random.Generator) -> dict[str, NDArray[np.float32]]:
        params = {**self.torso.init(rng), **self.cell.init(rng), **self.policy.init(rng), **self.critic.init(rng)}
        if self.action_kind == "box":
            params["log_std"] = np.zeros(self.action_sizes, np.float32)
        return params

    def step(self, xp: Any, params: Params, observations: Any, state: Any) -> tuple[Any, Any, Any]:
        """(inputs of the action distribution, value, state) after seeing one more observation."""
        features = normalize(params, observations[..., : -self.mask_size] if self.mask_size else observations)
        if self.mask_size and isinstance(self.torso, CustomNetwork):
            features = xp.concatenate([features, observations[..., -self.mask_size :]], axis=-1)
        output, state = self.cell.apply(xp, params, self.torso.apply(xp, params, features), state)
        inputs = self.policy.apply(xp, params, output)
        if self.mask_size:
            inputs = xp.where(observations[..., -self.mask_size :] > 0, inputs, FORBIDDEN)
        if self.action_kind == "box":
            inputs = xp.concatenate([inputs, xp.broadcast_to(params["log_std"], inputs.shape)], axis=-1)
        return inputs, self.critic.apply(xp, params, output)[..., 0], state

    def distribution(self, xp: Any, inputs: Any) -> Any:
        return DISTRIBUTIONS[self.action_kind](xp, inputs, self.action_sizes)

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
        return DISTRIBUTIONS[self.action_kind].noise(rng, shape, self.action_sizes)


class RecurrentStochastic:
    """Draws from a recurrent policy and carries each environment's state from step to step."""

    keeps_next_observations = False
    remembers = True

    def __init__(self, model: RecurrentActorCritic) -> None:
        self.model = model
        self.state: NDArray[np.float32] = np.zeros((0, model.cell.state_size), np.float32)
        self._before = self.state  # as it was before the last step
        self._noise: NDArray[Any] = np.zeros(0)

    def begin(self, rng: np.random.Generator, steps: int, count: int, exploration: float) -> dict[str, NDArray[Any]]:
        self._fit(count)
        self._noise = self.model.noise(rng, (steps, count))
        return {"initial_state": self.state[None].copy()}

    def act(self, params: Params, observations: NDArray[Any], time: int) -> NDArray[Any]:
        return self._step(params, observations).sample(self._noise[time])

    def best(self, params: Params, observations: NDArray[Any], xp: Any = np) -> NDArray[Any]:
        self._fit(len(observations))
        return self._step(params, observations).mode()

    def value(self, params: Params, observation: NDArray[Any], index: int, memory: Any = None) -> float | None:
        state = self.state[index] if memory is None else memory
        return float(self.model.step(np, params, observation[None], state[None])[1][0])

    def ended(self, indices: list[int]) -> None:
        self.state[indices] = 0

    def recorded(self) -> dict[str, NDArray[Any]]:
        return {}

    def unsee(self, indices: list[int]) -> None:
        self.state[indices] = self._before[indices]

    def memory_of(self, index: int) -> Any:
        return self.state[index].copy()

    def recall(self, memories: list[Any]) -> None:
        """Go on with as many episodes as there are memories, each None where its episode begins."""
        self._fit(0)
        self._fit(len(memories))
        for index, memory in enumerate(memories):
            if memory is not None:
                self.state[index] = memory

    def begin_anew(self, started: dict[str, NDArray[Any]], indices: list[int]) -> None:
        started["initial_state"][:, indices] = 0

    def _step(self, params: Params, observations: NDArray[Any]) -> Any:
        """See the observations; the distribution of what to do."""
        self._before = self.state
        inputs, _, self.state = self.model.step(np, params, observations, self.state)
        return self.model.distribution(np, inputs)

    def _fit(self, count: int) -> None:
        if len(self.state) != count:
            self.state = np.zeros((count, self.model.cell.state_size), np.float32)


def _cell_params(
    rng: np.random.Generator, name: str, inputs: int, size: int, gates: int
) -> dict[str, NDArray[np.float32]]:
    bias = np.zeros(gates * size, np.float32)
    if gates == 4:
        bias[size : 2 * size] = 1.0  # an LSTM remembers at first
    return {
        f"{name}.input": np.concatenate([orthogonal(rng, inputs, size, 1.0) for _ in range(gates)], axis=1),
        f"{name}.state": np.concatenate([orthogonal(rng, size, size, 1.0) for _ in range(gates)], axis=1),
        f"{name}.bias": bias,
    }


def _sigmoid(xp: Any, values: Any) -> Any:
    return 0.5 * (xp.tanh(0.5 * values) + 1)
