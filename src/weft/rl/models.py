"""What an algorithm learns: networks put together for an observation space and an action space.

A model is a frozen description. It makes parameters with `init` and computes with them in NumPy or JAX; the same object
is pickled to the workers and closed over by the learner's compiled function.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.rl.config import AlgorithmConfig
from weft.rl.distributions import DISTRIBUTIONS, FORBIDDEN
from weft.rl.networks import CNN, MLP, Params, normalize
from weft.rl.spaces import ActionDecoder, ObservationEncoder


@dataclasses.dataclass(frozen=True)
class ActorCritic:
    """A policy and a value. MLPs of their own for vectors; one shared CNN below both for images."""

    policy: MLP
    critic: MLP
    torso: CNN | None
    action_kind: str
    action_sizes: tuple[int, ...]
    mask_size: int
    initial_log_std: float

    @classmethod
    def of(
        cls,
        encoder: ObservationEncoder,
        decoder: ActionDecoder,
        config: AlgorithmConfig,
        initial_log_std: float = 0.0,
    ) -> ActorCritic:
        torso = image_torso(encoder, config)
        layers = (torso.output,) if torso else (encoder.feature_size, *config.hidden)
        outputs = decoder.sizes[0] if decoder.kind == "box" else sum(decoder.sizes)
        return cls(
            policy=MLP("policy", (*layers, outputs), config.activation, final_gain=0.01),
            critic=MLP("critic", (*layers, 1), config.activation, final_gain=1.0),
            torso=torso,
            action_kind=decoder.kind,
            action_sizes=decoder.sizes,
            mask_size=encoder.mask_size,
            initial_log_std=initial_log_std,
        )

    def init(self, rng: np.random.Generator) -> dict[str, NDArray[np.float32]]:
        params = {**self.policy.init(rng), **self.critic.init(rng)}
        if self.torso:
            params |= self.torso.init(rng)
        if self.action_kind == "box":
            params["log_std"] = np.full(self.action_sizes, self.initial_log_std, np.float32)
        return params

    def action_inputs(self, xp: Any, params: Params, observations: Any) -> Any:
        """The numbers that the action distribution takes."""
        features, mask = self._split(xp, params, observations)
        return self._policy_head(xp, params, features, mask)

    def value(self, xp: Any, params: Params, observations: Any) -> Any:
        features, _ = self._split(xp, params, observations)
        return self.critic.apply(xp, params, features)[..., 0]

    def action_inputs_and_value(self, xp: Any, params: Params, observations: Any) -> tuple[Any, Any]:
        features, mask = self._split(xp, params, observations)
        return self._policy_head(xp, params, features, mask), self.critic.apply(xp, params, features)[..., 0]

    def distribution(self, xp: Any, inputs: Any) -> Any:
        return DISTRIBUTIONS[self.action_kind](xp, inputs, self.action_sizes)

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
        return DISTRIBUTIONS[self.action_kind].noise(rng, shape, self.action_sizes)

    def _split(self, xp: Any, params: Params, observations: Any) -> tuple[Any, Any]:
        if self.torso:
            return self.torso.apply(xp, params, observations), None
        if self.mask_size:
            features, mask = observations[..., : -self.mask_size], observations[..., -self.mask_size :]
            return normalize(params, features), mask
        return normalize(params, observations), None

    def _policy_head(self, xp: Any, params: Params, features: Any, mask: Any) -> Any:
        outputs = self.policy.apply(xp, params, features)
        if mask is not None:
            return xp.where(mask > 0, outputs, FORBIDDEN)
        if self.action_kind == "box":
            return xp.concatenate([outputs, xp.broadcast_to(params["log_std"], outputs.shape)], axis=-1)
        return outputs


def image_torso(encoder: ObservationEncoder, config: AlgorithmConfig) -> CNN | None:
    """The convolutions below a model's heads, where observations are images."""
    if not encoder.is_image:
        return None
    return CNN("torso", encoder.shape, config.convolutions, config.image_features)  # type: ignore[arg-type]
