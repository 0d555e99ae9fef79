"""Soft actor-critic with a temperature that finds itself: https://arxiv.org/abs/1812.05905.

The policy is rewarded for its entropy too; how much, the temperature, is learnt so that the entropy stays at a target.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from weft.library.settings import setting
from weft.rl.behaviours import Squashed
from weft.rl.continuous_models import ContinuousModel, split
from weft.rl.off_policy import OffPolicy, OffPolicyConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class SACConfig(OffPolicyConfig):
    """The settings of SAC."""

    old_names: ClassVar[Mapping[str, str]] = {
        **OffPolicyConfig.old_names,
        "critic_learning_rate": "learning_rate",
        "initial_alpha": "initial_temperature",
    }

    hidden: tuple[int, ...] = setting((256, 256), "units of the hidden layers", at_least=1)
    activation: str = setting("relu", "of the hidden layers", one_of=("tanh", "relu", "elu", "silu"))
    learning_rate: float = setting(1e-3, "of all optimisers", above=0)
    fragment_steps: int = setting(32, "steps of each environment between gradient steps", at_least=1)
    batch: int = setting(128, "transitions in a gradient step", at_least=1)
    tau: float = setting(0.005, "how far the targets follow in a gradient step", above=0, at_most=1)
    noise_correlation: float = setting(
        0.0, "of a step's exploration with the next step's, within a fragment", at_least=0, at_most=1
    )
    random_timesteps: int = setting(1000, "steps of uniform actions at first", at_least=0)
    initial_temperature: float = setting(1.0, "weight of the entropy at first", above=0)
    target_entropy: float | None = setting(None, "entropy to hold; None for minus the number of dimensions")


class SAC(OffPolicy[SACConfig]):
    """Soft actor-critic."""

    name = "SAC"
    config_class = SACConfig

    def build_learner(self) -> None:
        config = self.config
        model = ContinuousModel.of(self.encoder, self.decoder, config, critics=2, policy_outputs=2)
        self.behaviour = Squashed(model, config.noise_correlation)
        params = {name: jnp.asarray(value) for name, value in model.init(self.rng).items()}
        policy, critic = split(params)
        optimizer = optax.flatten(optax.adam(config.learning_rate))
        temperature = {"log": jnp.log(jnp.asarray(config.initial_temperature))}
        self.learner = {
            "policy": policy,
            "critic": critic,
            "target": jax.tree.map(jnp.copy, critic),
            "temperature": temperature,
            "optimizers": {
                "policy": optimizer.init(policy),
                "critic": optimizer.init(critic),
                "temperature": optimizer.init(temperature),
            },
        }
        self._update = jax.jit(make_update(model, optimizer, config), donate_argnums=0)

    def acting_params(self) -> Mapping[str, Any]:
        return self.learner["policy"]

    def exploration(self) -> float:
        return -1.0 if self.metrics.timesteps < self.config.random_timesteps else 0.0

    def learn_from(self, batches: Mapping[str, NDArray[Any]]) -> tuple[Mapping[str, Any], Any]:
        noise = self.rng.standard_normal((*batches["actions"].shape[:2], 2, batches["actions"].shape[2]), np.float32)
        self.learner, said, errors = self._update(self.learner, batches, noise)
        return said, errors


def make_loss(model: ContinuousModel, config: SACConfig) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The loss of the critics, with each transition's error, and the loss of the policy."""

    def critic_loss(critic: Any, learner: Any, batch: Any, noise: Any) -> tuple[Any, Any]:
        after = batch["next_observations"]
        action, log_prob = model.distribution(jnp, learner["policy"], after).sample_with_log_prob(noise)
        value_after = model.values(jnp, learner["target"], after, action).min(axis=0)
        value_after = value_after - jnp.exp(learner["temperature"]["log"]) * log_prob
        goal = batch["rewards"] + batch["discounts"] * value_after
        errors = model.values(jnp, critic, batch["observations"], batch["actions"]) - goal
        return (batch["weights"] * (errors**2).sum(axis=0)).mean(), errors[0]

    def policy_loss(policy: Any, learner: Any, batch: Any, noise: Any) -> tuple[Any, Any]:
        action, log_prob = model.distribution(jnp, policy, batch["observations"]).sample_with_log_prob(noise)
        values = model.values(jnp, learner["critic"], batch["observations"], action).min(axis=0)
        return (jnp.exp(learner["temperature"]["log"]) * log_prob - values).mean(), -log_prob.mean()

    return critic_loss, policy_loss


def make_update(
    model: ContinuousModel, optimizer: optax.GradientTransformation, config: SACConfig
) -> Callable[[Any, Any, Any], tuple[Any, dict[str, Any], Any]]:
    """(learner, batches [updates, batch, ...], noise [updates, batch, 2, size]) -> (learner, metrics, errors)."""
    target_entropy = -float(model.action_size) if config.target_entropy is None else config.target_entropy

    critic_loss, policy_loss = config.loss_maker(make_loss)(model, config)

    def temperature_loss(temperature: Any, entropy: Any) -> Any:
        return temperature["log"] * (entropy - target_entropy)

    def improved(learner: Any, name: str, gradients: Any) -> Any:
        changes, state = optimizer.update(gradients, learner["optimizers"][name], learner[name])
        new = optax.apply_updates(learner[name], changes)
        return {**learner, name: new, "optimizers": {**learner["optimizers"], name: state}}

    def step(learner: Any, row: Any) -> tuple[Any, Any]:
        batch, noise = row
        critic_grad = jax.value_and_grad(critic_loss, has_aux=True)
        (loss, errors), gradients = critic_grad(learner["critic"], learner, batch, noise[:, 0])
        learner = improved(learner, "critic", gradients)
        gradients, entropy = jax.grad(policy_loss, has_aux=True)(learner["policy"], learner, batch, noise[:, 1])
        learner = improved(learner, "policy", gradients)
        learner = improved(learner, "temperature", jax.grad(temperature_loss)(learner["temperature"], entropy))
        target = jax.tree.map(lambda old, new: old + config.tau * (new - old), learner["target"], learner["critic"])
        return {**learner, "target": target}, (loss, entropy, errors)

    def update(learner: Any, batches: Mapping[str, Any], noise: Any) -> tuple[Any, dict[str, Any], Any]:
        learner, (losses, entropies, errors) = jax.lax.scan(step, learner, (batches, noise))
        temperature = jnp.exp(learner["temperature"]["log"])
        said = {"critic_loss": losses.mean(), "entropy": entropies.mean(), "temperature": temperature}
        return learner, said, errors

    return update
