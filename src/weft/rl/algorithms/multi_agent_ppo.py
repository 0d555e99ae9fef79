"""PPO for several agents, each learning as if the others were part of the world: https://arxiv.org/abs/2103.01955.

`policies` says who learns with whom: "shared" is one policy for all, "independent" one for each agent, and a mapping
from agents to names anything between. Every policy is updated by PPO's own compiled function on its agents' steps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from weft.rl import environments
from weft.rl.algorithm import Algorithm, stack
from weft.rl.algorithms.ppo import PPOConfig, make_optimizer, make_update, start_learner
from weft.rl.behaviours import Stochastic
from weft.rl.models import ActorCritic
from weft.rl.multi_agent import PerPolicy, as_parallel, is_multi_agent
from weft.rl.settings import SettingError, setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultiAgentPPOConfig(PPOConfig):
    """The settings of multi-agent PPO. `minibatch` counts steps of one policy's agents."""

    policies: str | Mapping[str, str] = setting("independent", "'shared', 'independent', or agents to policy names")


class MultiAgentPPO(Algorithm[MultiAgentPPOConfig]):
    """Proximal policy optimisation for several agents."""

    name = "MultiAgentPPO"
    config_class = MultiAgentPPOConfig

    def build(self) -> None:
        config = self.config
        self._agents = self._names_of_agents()
        self._policy_of = policy_of_each(config.policies, self._agents)
        model = ActorCritic.of(self.encoder, self.decoder, config, config.initial_log_std)
        self.behaviour = PerPolicy(lambda: Stochastic(model), self._policy_of, self._agents)
        optimizer = make_optimizer(config)
        self.learner = {}
        for policy in self.behaviour.policies:
            params = {name: jnp.asarray(value) for name, value in model.init(self.rng).items()}
            self.learner[policy] = start_learner(params, optimizer, self.encoder.feature_size, config)
        self._update = jax.jit(make_update(model, optimizer, config), donate_argnums=0)

    def acting_params(self) -> Mapping[str, Any]:
        return {
            f"{policy}/{name}": value
            for policy, learner in self.learner.items()
            for name, value in learner["params"].items()
        }

    def iterate(self) -> Mapping[str, Any]:
        assert isinstance(self.behaviour, PerPolicy)
        batch = stack(self.sample())
        said: dict[str, Any] = {}
        with self.metrics.span("learn"):
            for policy in self.behaviour.policies:
                columns = self.behaviour.columns(policy, batch["rewards"].shape[1])
                own = {name: array[:, columns] for name, array in batch.items()}
                orders = self._shuffles(own["rewards"].size)
                self.learner[policy], of_policy = self._update(self.learner[policy], own, orders)
                said |= {f"{policy}/{name}": value for name, value in of_policy.items()}
            said = jax.device_get(said)
        self.version += 1
        return said

    def _shuffles(self, steps: int) -> NDArray[np.int32]:
        size = min(self.config.minibatch, steps)
        count = steps // size
        orders = [self.rng.permutation(steps)[: count * size] for _ in range(self.config.epochs)]
        return np.asarray(orders, np.int32).reshape(self.config.epochs, count, size)

    def _names_of_agents(self) -> list[str]:
        probe = environments.make(self.env, self.config.env_config)
        try:
            if not is_multi_agent(probe):
                raise SettingError(
                    f"MultiAgentPPO needs a PettingZoo environment, but {environments.describe(self.env)} has one "
                    "agent; use PPO"
                )
            return list(as_parallel(probe).possible_agents)
        finally:
            probe.close()


def policy_of_each(policies: str | Mapping[str, str], agents: list[str]) -> dict[str, str]:
    """Which policy each agent follows."""
    if policies == "shared":
        return dict.fromkeys(agents, "shared")
    if policies == "independent":
        return {agent: agent for agent in agents}
    if isinstance(policies, str) or set(policies) != set(agents):
        raise SettingError(
            f"MultiAgentPPOConfig: policies must be 'shared', 'independent' or a mapping of the agents {agents}, "
            f"but got {policies!r}"
        )
    return dict(policies)
