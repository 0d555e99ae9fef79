"""Networks that put a value on each discrete action, with Rainbow's choices: dueling, noisy, distributional."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from weft.rl.custom import CustomNetwork
from weft.rl.distributions import FORBIDDEN, log_softmax
from weft.rl.models import custom_or_image_torso, features_of
from weft.rl.networks import CNN, MLP, Params
from weft.rl.spaces import ActionDecoder, ObservationEncoder, SpaceMismatch

if TYPE_CHECKING:
    from weft.rl.config import AlgorithmConfig

NOISE_SCALE = 0.5


@dataclasses.dataclass(frozen=True)
class QModel:
    """Q values of all actions; with `atoms` > 1 the distribution of each over a fixed support."""

    torso: MLP | CNN | CustomNetwork
    features: int
    actions: int
    mask_size: int
    dueling: bool
    noisy: bool
    atoms: int
    low: float
    high: float

    @classmethod
    def of(
        cls,
        encoder: ObservationEncoder,
        decoder: ActionDecoder,
        config: AlgorithmConfig,
        *,
        dueling: bool = False,
        noisy: bool = False,
        atoms: int = 1,
        low: float = 0.0,
        high: float = 0.0,
    ) -> QModel:
        if decoder.kind != "discrete":
            raise SpaceMismatch(
                f"Q values need a Discrete action space, but the environment has {decoder.space}; use SAC, TD3 or PPO "
                "for a Box, PPO for several choices"
            )
        torso: MLP | CNN | CustomNetwork | None = custom_or_image_torso(encoder, config)
        if torso is None:
            sizes = (encoder.feature_size, *config.hidden)
            torso = MLP("torso", sizes, config.activation, math.sqrt(2), activate_final=True)
        features = torso.sizes[-1] if isinstance(torso, MLP) else features_of(torso)
        return cls(torso, features, decoder.sizes[0], encoder.mask_size, dueling, noisy, atoms, low, high)

    def init(self, rng: np.random.Generator) -> dict[str, NDArray[np.float32]]:
        params = self.torso.init(rng)
        for head, outputs in self._heads().items():
            limit = 1 / math.sqrt(self.features)
            params[f"{head}.weight"] = rng.uniform(-limit, limit, (self.features, outputs)).astype(np.float32)
            params[f"{head}.bias"] = np.zeros(outputs, np.float32)
            if self.noisy:
                params[f"{head}.bias"] = rng.uniform(-limit, limit, outputs).astype(np.float32)
                scale = np.float32(NOISE_SCALE * limit)
                params[f"{head}.weight_noise"] = np.full((self.features, outputs), scale)
                params[f"{head}.bias_noise"] = np.full(outputs, scale)
        return params

    def layer_noise(self, rng: np.random.Generator, shape: tuple[int, ...] = ()) -> dict[str, NDArray[Any]]:
        """Factorised noise (https://arxiv.org/abs/1706.10295) of the noisy layers, if any; `shape` times.

        In `q_values` it is one draw for all observations, or as many draws as there are observations.
        """
        if not self.noisy:
            return {}
        noise: dict[str, NDArray[Any]] = {}
        for head, outputs in self._heads().items():
            for side, size in (("in", self.features), ("out", outputs)):
                drawn = rng.standard_normal((*shape, size), np.float32)
                noise[f"{head}.{side}"] = np.sign(drawn) * np.sqrt(np.abs(drawn))
        return noise

    def q_values(self, xp: Any, params: Params, observations: Any, noise: Mapping[str, Any]) -> Any:
        outputs = self.outputs(xp, params, observations, noise)
        if self.atoms == 1:
            return outputs[..., 0]
        return (xp.exp(log_softmax(xp, outputs)) * self.support(xp)).sum(axis=-1)

    def outputs(self, xp: Any, params: Params, observations: Any, noise: Mapping[str, Any]) -> Any:
        """[..., actions, atoms]: the value itself for one atom, logits for more."""
        hides_mask = self.mask_size and not isinstance(self.torso, CustomNetwork)
        features = observations[..., : -self.mask_size] if hides_mask else observations
        features = self.torso.apply(xp, params, features)
        shape = (*features.shape[:-1], self.actions, self.atoms)
        advantages = self._head(xp, params, "advantage", features, noise).reshape(shape)
        if not self.dueling:
            return advantages
        value = self._head(xp, params, "value", features, noise).reshape(*features.shape[:-1], 1, self.atoms)
        return value + advantages - advantages.mean(axis=-2, keepdims=True)

    def allowed(self, xp: Any, observations: Any, values: Any) -> Any:
        """The values, with those of masked actions out of the question."""
        return xp.where(observations[..., -self.mask_size :] > 0, values, FORBIDDEN) if self.mask_size else values

    def support(self, xp: Any) -> Any:
        return xp.linspace(self.low, self.high, self.atoms, dtype=np.float32)

    def _heads(self) -> dict[str, int]:
        heads = {"advantage": self.actions * self.atoms}
        return {**heads, "value": self.atoms} if self.dueling else heads

    def _head(self, xp: Any, params: Params, head: str, features: Any, noise: Mapping[str, Any]) -> Any:
        outputs = features @ params[f"{head}.weight"] + params[f"{head}.bias"]
        if not (self.noisy and noise):
            return outputs
        # x (σ ∘ into outᵀ) = ((x ∘ into) σ) ∘ out, which needs no matrix of weights for each draw
        into, out = noise[f"{head}.in"], noise[f"{head}.out"]
        return outputs + ((features * into) @ params[f"{head}.weight_noise"] + params[f"{head}.bias_noise"]) * out
