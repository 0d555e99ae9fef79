"""Advantage actor-critic, synchronous: https://arxiv.org/abs/1602.01783.

Short fragments of many environments, one gradient step on each: the policy by n-step advantages, the critic towards the
n-step returns. `a3c.py` has the asynchronous form; both use the loss that is written here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import optax

from weft.library.settings import setting
from weft.rl.advantages import generalized_advantages, mean_of_valid
from weft.rl.algorithm import Algorithm, stack
from weft.rl.behaviours import Stochastic
from weft.rl.config import OLD_NAMES, AlgorithmConfig
from weft.rl.models import ActorCritic


@dataclasses.dataclass(frozen=True, kw_only=True)
class A2CConfig(AlgorithmConfig):
    """The settings of A2C."""

    old_names: ClassVar[Mapping[str, str]] = {
        **OLD_NAMES,
        "lambda": "gae_lambda",
        "entropy_coeff": "entropy_weight",
        "vf_loss_coeff": "value_weight",
        "grad_clip": "gradient_norm",
    }

    learning_rate: float = setting(2e-3, "of the optimiser", above=0)
    envs_per_worker: int = setting(16, "environments that a worker steps together", at_least=1)
    fragment_steps: int = setting(16, "steps of each environment in one fragment", at_least=1)
    gae_lambda: float = setting(0.95, "of the advantages; 1 gives n-step returns", at_least=0, at_most=1)
    entropy_weight: float = setting(0.0, "of the entropy bonus", at_least=0)
    value_weight: float = setting(0.25, "of the value loss", at_least=0)
    gradient_norm: float = setting(0.5, "gradients are scaled down to this norm", above=0)
    updates_per_iteration: int = setting(10, "gradient steps in one train()", at_least=1)


class A2C(Algorithm[A2CConfig]):
    """Advantage actor-critic."""

    name = "A2C"
    config_class = A2CConfig

    def build(self) -> None:
        model = ActorCritic.of(self.encoder, self.decoder, self.config)
        self.behaviour = Stochastic(model)
        optimizer = make_optimizer(self.config)
        loss = self.config.loss_maker(make_loss)(model, self.config)

        def update(learner: Any, batch: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
            gradients, said = jax.grad(loss, has_aux=True)(learner["params"], batch)
            changes, optimizer_state = optimizer.update(gradients, learner["optimizer"], learner["params"])
            return {"params": optax.apply_updates(learner["params"], changes), "optimizer": optimizer_state}, said

        params = {name: jnp.asarray(value) for name, value in model.init(self.rng).items()}
        self.learner = {"params": params, "optimizer": optimizer.init(params)}
        self._update = jax.jit(update, donate_argnums=0)

    def acting_params(self) -> Mapping[str, Any]:
        return self.learner["params"]

    def iterate(self) -> Mapping[str, Any]:
        said: Mapping[str, Any] = {}
        for _ in range(self.config.updates_per_iteration):
            batch = stack(self.sample())
            with self.learning():
                self.learner, said = self._update(self.learner, batch)
            self.version += 1
        return jax.device_get(said)


def make_optimizer(config: A2CConfig) -> optax.GradientTransformation:
    step = optax.rmsprop(config.learning_rate, decay=0.99, eps=1e-5)
    return optax.flatten(optax.chain(optax.clip_by_global_norm(config.gradient_norm), step))


def make_loss(model: ActorCritic, config: A2CConfig) -> Callable[[Any, Any], tuple[Any, dict[str, Any]]]:
    """Policy gradient, value error and entropy of one batch of arrays [steps, N, ...]."""

    def loss(params: Any, batch: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        inputs, values = model.action_inputs_and_value(jnp, params, batch["observations"])
        advantages = generalized_advantages(
            batch["rewards"],
            jax.lax.stop_gradient(values),
            batch["terminated"],
            batch["truncated"],
            batch["bootstrap"],
            config.gamma,
            config.gae_lambda,
        )
        returns = advantages + jax.lax.stop_gradient(values[:-1])
        distribution = model.distribution(jnp, inputs[:-1])
        policy_loss = -mean_of_valid(distribution.log_prob(batch["actions"]) * advantages, batch["valid"])
        value_loss = mean_of_valid((values[:-1] - returns) ** 2, batch["valid"])
        entropy = mean_of_valid(distribution.entropy(), batch["valid"])
        total = policy_loss + config.value_weight * value_loss - config.entropy_weight * entropy
        return total, {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}

    return loss
