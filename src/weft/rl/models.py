"""What an algorithm learns: networks put together for an observation space and an action space.

A model is a frozen description. It makes parameters with `init` and computes with them in NumPy or JAX; the same object
is pickled to the workers and closed over by the learner's compiled function.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from weft.library.settings import SettingError
from weft.rl.custom import CustomNetwork
from weft.rl.distributions import DISTRIBUTIONS, FORBIDDEN
from weft.rl.networks import CNN, MLP, Params, normalize
from weft.rl.spaces import ActionDecoder, ObservationEncoder

if TYPE_CHECKING:
    from weft.rl.config import AlgorithmConfig


@dataclasses.dataclass(frozen=True)
class ActorCritic:
    """A policy and a value. MLPs of their own for vectors; one shared CNN or custom network below both.

    A custom network may be the whole of both: `policy` and `critic` are None then.
    """

    policy: MLP | None
    critic: MLP | None
    torso: CNN | CustomNetwork | None
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
        torso = custom_or_image_torso(encoder, config)
        outputs = sum(decoder.sizes)
        is_whole = isinstance(torso, CustomNetwork) and torso.is_whole
        if is_whole:
            _check_whole(torso.outputs[0], outputs, decoder)  # type: ignore[union-attr]
        layers = (features_of(torso),) if torso and not is_whole else (encoder.feature_size, *config.hidden)
        return cls(
            policy=None if is_whole else MLP("policy", (*layers, outputs), config.activation, final_gain=0.01),
            critic=None if is_whole else MLP("critic", (*layers, 1), config.activation, final_gain=1.0),
            torso=torso,
            action_kind=decoder.kind,
            action_sizes=decoder.sizes,
            mask_size=encoder.mask_size,
            initial_log_std=initial_log_std,
        )

    def init(self, rng: np.random.Generator) -> dict[str, NDArray[np.float32]]:
        params: dict[str, NDArray[np.float32]] = {}
        for part in (self.policy, self.critic, self.torso):
            params |= part.init(rng) if part else {}
        if self.action_kind == "box" and not self._gives_log_std:
            params["log_std"] = np.full(self.action_sizes, self.initial_log_std, np.float32)
        return params

    def action_inputs(self, xp: Any, params: Params, observations: Any) -> Any:
        """The numbers that the action distribution takes."""
        features, mask = self._split(xp, params, observations)
        return self._policy_head(xp, params, features, mask)

    def value(self, xp: Any, params: Params, observations: Any) -> Any:
        features, _ = self._split(xp, params, observations)
        return self._value_head(xp, params, features)

    def action_inputs_and_value(self, xp: Any, params: Params, observations: Any) -> tuple[Any, Any]:
        features, mask = self._split(xp, params, observations)
        return self._policy_head(xp, params, features, mask), self._value_head(xp, params, features)

    def distribution(self, xp: Any, inputs: Any) -> Any:
        return DISTRIBUTIONS[self.action_kind](xp, inputs, self.action_sizes)

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
        return DISTRIBUTIONS[self.action_kind].noise(rng, shape, self.action_sizes)

    def _split(self, xp: Any, params: Params, observations: Any) -> tuple[Any, Any]:
        """What the heads take, or what stands in their place; and the mask of actions."""
        if isinstance(self.torso, CNN):
            return self.torso.apply(xp, params, observations), None
        features, mask = observations, None
        if self.mask_size:
            features, mask = observations[..., : -self.mask_size], observations[..., -self.mask_size :]
        features = normalize(params, features)
        if self.torso:
            seen = features if mask is None else xp.concatenate([features, mask], axis=-1)
            features = self.torso.apply(xp, params, seen)
        return features, mask

    def _policy_head(self, xp: Any, params: Params, features: Any, mask: Any) -> Any:
        outputs = self.policy.apply(xp, params, features) if self.policy else features[0]
        if mask is not None:
            return xp.where(mask > 0, outputs, FORBIDDEN)
        if self.action_kind == "box" and not self._gives_log_std:
            return xp.concatenate([outputs, xp.broadcast_to(params["log_std"], outputs.shape)], axis=-1)
        return outputs

    def _value_head(self, xp: Any, params: Params, features: Any) -> Any:
        return self.critic.apply(xp, params, features)[..., 0] if self.critic else features[1]

    @property
    def _gives_log_std(self) -> bool:
        if self.policy or not isinstance(self.torso, CustomNetwork):
            return False
        return bool(self.torso.outputs[0][-1] == 2 * self.action_sizes[0])


def custom_or_image_torso(encoder: ObservationEncoder, config: AlgorithmConfig) -> CNN | CustomNetwork | None:
    """What lies below a model's heads: a network of the user, convolutions for images, or nothing."""
    if config.network is not None:
        return CustomNetwork("network", config.network, encoder)
    if not encoder.is_image:
        return None
    return CNN("torso", encoder.shape, config.convolutions, config.image_features)  # type: ignore[arg-type]


def features_of(torso: CNN | CustomNetwork) -> int:
    return torso.output if isinstance(torso, CNN) else torso.features


def _check_whole(shape: tuple[int, ...], outputs: int, decoder: ActionDecoder) -> None:
    allowed = ((outputs,), (2 * outputs,)) if decoder.kind == "box" else ((outputs,),)
    if shape not in allowed:
        raise SettingError(
            f"network: actions of {decoder.space} need {' or '.join(str(size[0]) for size in allowed)} numbers an "
            f"observation, but the network gives an array of shape [N, {', '.join(map(str, shape))}]"
        )
