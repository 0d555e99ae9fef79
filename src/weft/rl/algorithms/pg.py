"""The policy gradient, REINFORCE: https://doi.org/10.1007/BF00992696.

Each iteration collects a fragment of every environment and takes one gradient step that makes actions likelier in
proportion to the discounted return that followed them. There is no critic: the baseline is the mean return, and steps
whose episode has not ended in the fragment are left out, since their return is not known.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax

from weft.library.settings import setting
from weft.rl.advantages import mean_of_valid
from weft.rl.algorithm import Algorithm, stack
from weft.rl.behaviours import Stochastic
from weft.rl.config import AlgorithmConfig
from weft.rl.models import ActorCritic


@dataclasses.dataclass(frozen=True, kw_only=True)
class PGConfig(AlgorithmConfig):
    """The settings of PG. A fragment should be longer than an episode."""

    learning_rate: float = setting(5e-3, "of the optimiser", above=0)
    fragment_steps: int = setting(640, "steps of each environment in one fragment", at_least=1)
    envs_per_worker: int = setting(8, "environments that a worker steps together", at_least=1)
    entropy_weight: float = setting(0.0, "of the entropy bonus", at_least=0)


class PG(Algorithm[PGConfig]):
    """REINFORCE."""

    name = "PG"
    config_class = PGConfig

    def build(self) -> None:
        model = ActorCritic.of(self.encoder, self.decoder, self.config)
        self.behaviour = Stochastic(model)
        optimizer = optax.flatten(optax.adam(self.config.learning_rate))
        params = {name: jnp.asarray(value) for name, value in model.init(self.rng).items()}
        self.learner = {"params": params, "optimizer": optimizer.init(params)}
        self._update = jax.jit(make_update(model, optimizer, self.config), donate_argnums=0)

    def acting_params(self) -> Mapping[str, Any]:
        return self.learner["params"]

    def iterate(self) -> Mapping[str, Any]:
        batch = stack(self.sample())
        with self.learning():
            self.learner, said = self._update(self.learner, batch)
            said = jax.device_get(said)
        self.version += 1
        return said


def returns_to_go(rewards: Any, done: Any, gamma: float) -> tuple[Any, Any]:
    """The discounted rewards from each step to its episode's end, and whether that end is in the fragment."""

    def backward(later: Any, row: Any) -> tuple[Any, Any]:
        (return_after, known_after), (reward, ends) = later, row
        here = (reward + gamma * jnp.where(ends, 0.0, return_after), ends | known_after)
        return here, here

    start = (jnp.zeros_like(rewards[0]), jnp.zeros_like(done[0]))
    _, (returns, known) = jax.lax.scan(backward, start, (rewards, done), reverse=True)
    return returns, known


def make_loss(model: ActorCritic, config: PGConfig) -> Callable[[Any, Any], tuple[Any, dict[str, Any]]]:
    """The policy gradient of a batch of arrays [steps, N, ...], over the steps whose returns are known."""

    def loss(params: Any, batch: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        returns, known = returns_to_go(batch["rewards"], batch["terminated"] | batch["truncated"], config.gamma)
        counts = known & batch["valid"]
        mean = mean_of_valid(returns, counts)
        spread = jnp.sqrt(mean_of_valid((returns - mean) ** 2, counts))
        advantages = (returns - mean) / (spread + 1e-8)
        inputs = model.action_inputs(jnp, params, batch["observations"][:-1])
        distribution = model.distribution(jnp, inputs)
        policy_loss = -mean_of_valid(distribution.log_prob(batch["actions"]) * advantages, counts)
        entropy = mean_of_valid(distribution.entropy(), counts)
        return policy_loss - config.entropy_weight * entropy, {
            "policy_loss": policy_loss,
            "entropy": entropy,
            "return_mean": mean,
        }

    return loss


def make_update(
    model: ActorCritic, optimizer: optax.GradientTransformation, config: PGConfig
) -> Callable[[Any, Any], tuple[Any, dict[str, Any]]]:
    """One gradient step: (learner, batch of arrays [steps, N, ...]) -> (learner, metrics)."""

    loss = config.loss_maker(make_loss)(model, config)

    def update(learner: Any, batch: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        gradients, said = jax.grad(loss, has_aux=True)(learner["params"], batch)
        changes, optimizer_state = optimizer.update(gradients, learner["optimizer"], learner["params"])
        return {"params": optax.apply_updates(learner["params"], changes), "optimizer": optimizer_state}, said

    return update
