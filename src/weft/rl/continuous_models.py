"""Networks for continuous actions in [-1, 1]: policies, and critics that value an action in a state."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from weft.rl.custom import CustomNetwork, Headed
from weft.rl.distributions import SquashedGaussian
from weft.rl.networks import MLP, Params
from weft.rl.spaces import ActionDecoder, ObservationEncoder, SpaceMismatch

if TYPE_CHECKING:
    from weft.rl.config import AlgorithmConfig


@dataclasses.dataclass(frozen=True)
class ContinuousModel:
    """A policy and one or two critics. `policy_outputs` is 1 for a deterministic policy, 2 for means and deviations."""

    policy: MLP | Headed
    critics: tuple[MLP | Headed, ...]
    action_size: int
    policy_outputs: int

    @classmethod
    def of(
        cls,
        encoder: ObservationEncoder,
        decoder: ActionDecoder,
        config: AlgorithmConfig,
        *,
        critics: int,
        policy_outputs: int,
    ) -> ContinuousModel:
        if decoder.kind != "box" or not decoder.bounded or (encoder.is_image and config.network is None):
            raise SpaceMismatch(
                f"continuous control needs vectors to see and a bounded Box to act in, but the environment has "
                f"{encoder.space} and {decoder.space}; use PPO, or DQN for a Discrete action space"
            )
        size = decoder.sizes[0]

        def network(name: str, outputs: int, beside: int, gain: float) -> MLP | Headed:
            if config.network is None:
                sizes = (encoder.feature_size + beside, *config.hidden, outputs)
                return MLP(name, sizes, config.activation, final_gain=gain)
            custom = CustomNetwork(f"{name}.network", config.network, encoder)
            layers = config.hidden[-1:] if beside else ()
            head = MLP(name, (custom.features + beside, *layers, outputs), config.activation, final_gain=gain)
            return Headed(custom, head, beside)

        return cls(
            policy=network("policy", size * policy_outputs, 0, 0.01),
            critics=tuple(network(f"critic{index}", 1, size, 1.0) for index in range(critics)),
            action_size=size,
            policy_outputs=policy_outputs,
        )

    def init(self, rng: np.random.Generator) -> dict[str, NDArray[np.float32]]:
        params = self.policy.init(rng)
        for critic in self.critics:
            params |= critic.init(rng)
        return params

    def action(self, xp: Any, params: Params, observations: Any) -> Any:
        """What a deterministic policy does."""
        return xp.tanh(self.policy.apply(xp, params, observations))

    def distribution(self, xp: Any, params: Params, observations: Any) -> SquashedGaussian:
        """What a stochastic policy may do."""
        return SquashedGaussian(xp, self.policy.apply(xp, params, observations), (self.action_size,))

    def values(self, xp: Any, params: Params, observations: Any, actions: Any) -> Any:
        """[critics, ...]: what each critic thinks."""
        inputs = xp.concatenate([observations, actions], axis=-1)
        return xp.stack([critic.apply(xp, params, inputs)[..., 0] for critic in self.critics])


def split(params: Params) -> tuple[dict[str, Any], dict[str, Any]]:
    """The policy's parameters and the critics'."""
    policy = {name: value for name, value in params.items() if name.startswith("policy.")}
    return policy, {name: value for name, value in params.items() if name not in policy}
