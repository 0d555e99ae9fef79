"""PPO for several agents, each learning as if the others were part of the world: https://arxiv.org/abs/2103.01955.

`policies` says who learns with whom: "shared" is one policy for all, "independent" one for each agent, and a mapping
from agents to names anything between. Every policy is updated by PPO's own compiled function on its agents' steps, or
with a `memory` by that of recurrent PPO.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from weft.library.settings import SettingError, setting
from weft.rl import environments
from weft.rl.algorithm import Algorithm, stack
from weft.rl.algorithms import recurrent_ppo
from weft.rl.algorithms.ppo import PPOConfig, acting_params, make_optimizer, make_update, start_learner
from weft.rl.behaviours import Stochastic
from weft.rl.models import ActorCritic
from weft.rl.multi_agent import AgentSpaces, PerPolicy, is_multi_agent
from weft.rl.networks import WeightLayout
from weft.rl.policy import Policy
from weft.rl.recurrent import RecurrentActorCritic, RecurrentStochastic
from weft.rl.spaces import ActionDecoder, ObservationEncoder


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultiAgentPPOConfig(PPOConfig):
    """The settings of multi-agent PPO. `minibatch` counts steps of one policy's agents.

    With a memory a minibatch is whole fragments of agents, as many as have so many steps, and one at least.
    """

    policies: str | Mapping[str, str] = setting("independent", "'shared', 'independent', or agents to policy names")
    memory: str = setting("none", "the kind of memory that policies have", one_of=("none", "gru", "lstm"))
    units: int = setting(64, "units of the memory", at_least=1)

    def check(self) -> None:
        super().check()
        if self.memory != "none":
            recurrent_ppo.check_memory(self, ("target_kl", "initial_log_std"))
        if self.memory != "none" and self.devices > 1:
            raise SettingError(
                f"MultiAgentPPOConfig: with a memory devices must be 1, but is {self.devices}: a fragment is not split"
            )


class MultiAgentPPO(Algorithm[MultiAgentPPOConfig]):
    """Proximal policy optimisation for several agents."""

    name = "MultiAgentPPO"
    config_class = MultiAgentPPOConfig

    def spaces(self) -> tuple[Any, Any]:
        probe = environments.make(self.env, self.config.env_config)
        try:
            if not is_multi_agent(probe):
                raise SettingError(
                    f"MultiAgentPPO needs a PettingZoo environment, but {environments.describe(self.env)} has one "
                    "agent; use PPO"
                )
            self.agent_spaces = AgentSpaces(probe)
        finally:
            probe.close()
        return self.agent_spaces.encoder, self.agent_spaces.decoder

    def build(self) -> None:
        config = self.config
        self.policy_of_agent = policy_of_each(config.policies, self.agent_spaces)
        first = {policy: agent for agent, policy in reversed(self.policy_of_agent.items())}
        encoders, decoders = self.agent_spaces.encoders, self.agent_spaces.decoders
        models = {policy: self._model(encoders[agent], decoders[agent]) for policy, agent in first.items()}
        make_behaviour = Stochastic if config.memory == "none" else RecurrentStochastic
        make_policy_update = make_update if config.memory == "none" else recurrent_ppo.make_update
        self.behaviour = PerPolicy(
            lambda policy: make_behaviour(models[policy]), self.policy_of_agent, self.agent_spaces
        )
        optimizer = make_optimizer(config)
        self.learner, self._updates = {}, {}
        for policy in self.behaviour.policies:
            params = {name: jnp.asarray(value) for name, value in models[policy].init(self.rng).items()}
            features = encoders[first[policy]].feature_size
            self.learner[policy] = start_learner(params, optimizer, features, config)
            self._updates[policy] = jax.jit(make_policy_update(models[policy], optimizer, config), donate_argnums=0)

    def _model(self, encoder: ObservationEncoder, decoder: ActionDecoder) -> Any:
        config = self.config
        if config.memory == "none":
            return ActorCritic.of(encoder, decoder, config, config.initial_log_std)
        return RecurrentActorCritic.of(encoder, decoder, config, config.memory, config.units)

    def policy_of(self, agent: str) -> Policy:
        """What one agent acts by, as it is now."""
        assert isinstance(self.behaviour, PerPolicy)
        name = self.policy_of_agent[agent]
        params = acting_params(self.learner[name])
        layout = WeightLayout(params)
        encoder, decoder = self.agent_spaces.encoders[agent], self.agent_spaces.decoders[agent]
        behaviour = self.behaviour.behaviours[name]
        return Policy(behaviour, encoder, decoder, layout, layout.pack(params), self.seed, self.name)

    def acting_params(self) -> Mapping[str, Any]:
        return {
            f"{policy}/{name}": value
            for policy, learner in self.learner.items()
            for name, value in acting_params(learner).items()
        }

    def iterate(self) -> Mapping[str, Any]:
        assert isinstance(self.behaviour, PerPolicy)
        batch = stack(self.sample())
        said: dict[str, Any] = {}
        with self.learning():
            for policy in self.behaviour.policies:
                own = self.behaviour.own(policy, batch)
                orders = self._shuffles(own["valid"])
                self.learner[policy], of_policy = self._updates[policy](self.learner[policy], own, orders)
                said |= {f"{policy}/{name}": value for name, value in of_policy.items()}
            said = jax.device_get(said)
        self.version += 1
        return said

    def _shuffles(self, valid: NDArray[np.bool_]) -> NDArray[np.int32]:
        config = self.config
        if config.memory == "none":
            return shuffles(self.rng, valid, config.epochs, config.minibatch)
        steps, columns = valid.shape
        return recurrent_ppo.column_shuffles(self.rng, columns, config.epochs, max(1, config.minibatch // steps))


def shuffles(rng: np.random.Generator, valid: NDArray[np.bool_], epochs: int, minibatch: int) -> NDArray[np.int32]:
    """[epochs, minibatches, steps] of a policy's part of a batch.

    Where most rows are no steps, as of an agent that seldom has its turn, only those that are get drawn. Their number
    is rounded up to a power of two, by drawing some twice, since every new number of minibatches is compiled anew.
    """
    rows = np.arange(valid.size)
    steps = np.flatnonzero(valid)
    if 0 < 2 * len(steps) < valid.size:
        wanted = min(valid.size, max(minibatch, 1 << (len(steps) - 1).bit_length()))
        rows = np.resize(steps, wanted)
    size = min(minibatch, len(rows))
    count = len(rows) // size
    orders = [rng.permutation(rows)[: count * size] for _ in range(epochs)]
    return np.asarray(orders, np.int32).reshape(epochs, count, size)


def policy_of_each(policies: str | Mapping[str, str], agent_spaces: AgentSpaces) -> dict[str, str]:
    """Which policy each agent follows; agents that share one must have the same spaces."""
    agents = agent_spaces.agents
    if policies == "independent":
        return {agent: agent for agent in agents}
    if policies != "shared" and (isinstance(policies, str) or set(policies) != set(agents)):
        raise SettingError(
            f"MultiAgentPPOConfig: policies must be 'shared', 'independent' or a mapping of the agents {agents}, "
            f"but got {policies!r}"
        )
    chosen = {agent: "shared" if isinstance(policies, str) else policies[agent] for agent in agents}
    first: dict[str, str] = {}
    for agent, policy in chosen.items():
        other = first.setdefault(policy, agent)
        for theirs, own in (
            (agent_spaces.encoders[other].space, agent_spaces.encoders[agent].space),
            (agent_spaces.decoders[other].space, agent_spaces.decoders[agent].space),
        ):
            if own != theirs:
                raise SettingError(
                    f"MultiAgentPPOConfig: agents {other!r} and {agent!r} cannot share the policy {policy!r}: their "
                    f"spaces are {theirs} and {own}"
                )
    return chosen
