"""Deep deterministic policy gradient, and TD3, which is DDPG with three remedies.

DDPG  https://arxiv.org/abs/1509.02971
TD3   https://arxiv.org/abs/1802.09477   two critics of which the smaller counts, a policy that learns every second
                                         step, and target actions blurred by noise
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
from weft.rl.behaviours import NoisyDeterministic
from weft.rl.continuous_models import ContinuousModel, split
from weft.rl.off_policy import OffPolicy, OffPolicyConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class DDPGConfig(OffPolicyConfig):
    """The settings of DDPG."""

    old_names: ClassVar[Mapping[str, str]] = {
        **OffPolicyConfig.old_names,
        "critic_lr": "critic_learning_rate",
        "actor_lr": "learning_rate",
        "actor_hiddens": "hidden",
        "twin_q": "twin_critics",
        "smooth_target_policy": "target_noise",
    }

    hidden: tuple[int, ...] = setting((256, 256), "units of the hidden layers", at_least=1)
    activation: str = setting("relu", "of the hidden layers", one_of=("tanh", "relu", "elu", "silu"))
    learning_rate: float = setting(1e-3, "of the policy's optimiser", above=0)
    critic_learning_rate: float = setting(1e-3, "of the critics' optimiser", above=0)
    fragment_steps: int = setting(32, "steps of each environment between gradient steps", at_least=1)
    batch: int = setting(128, "transitions in a gradient step", at_least=1)
    tau: float = setting(0.005, "how far the targets follow in a gradient step", above=0, at_most=1)
    noise: float = setting(0.1, "standard deviation of exploration, where actions reach from -1 to 1", at_least=0)
    noise_correlation: float = setting(
        0.0, "of a step's exploration with the next step's, within a fragment", at_least=0, at_most=1
    )
    random_timesteps: int = setting(1000, "steps of uniform actions at first", at_least=0)
    twin_critics: bool = setting(False, "two critics, of which the smaller value counts")
    policy_delay: int = setting(1, "gradient steps of the critics for one of the policy", at_least=1)
    target_noise: float = setting(0.0, "standard deviation of the noise on target actions", at_least=0)
    target_noise_limit: float = setting(0.5, "largest noise on target actions", at_least=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TD3Config(DDPGConfig):
    """DDPG with its three remedies."""

    twin_critics: bool = setting(True, "two critics, of which the smaller value counts")
    policy_delay: int = setting(2, "gradient steps of the critics for one of the policy", at_least=1)
    target_noise: float = setting(0.2, "standard deviation of the noise on target actions", at_least=0)


class DDPG(OffPolicy[DDPGConfig]):
    """Deep deterministic policy gradient."""

    name = "DDPG"
    config_class = DDPGConfig

    def build_learner(self) -> None:
        config = self.config
        critics = 2 if config.twin_critics else 1
        model = ContinuousModel.of(self.encoder, self.decoder, config, critics=critics, policy_outputs=1)
        self.behaviour = NoisyDeterministic(model, config.noise_correlation)
        params = {name: jnp.asarray(value) for name, value in model.init(self.rng).items()}
        policy, critic = split(params)
        optimizers = (
            optax.flatten(optax.adam(config.learning_rate)),
            optax.flatten(optax.adam(config.critic_learning_rate)),
        )
        self.learner = {
            "policy": policy,
            "critic": critic,
            "target": jax.tree.map(jnp.copy, params),
            "policy_optimizer": optimizers[0].init(policy),
            "critic_optimizer": optimizers[1].init(critic),
            "steps": jnp.zeros((), jnp.int32),
        }
        self._update = jax.jit(make_update(model, *optimizers, config), donate_argnums=0)

    def acting_params(self) -> Mapping[str, Any]:
        return self.learner["policy"]

    def exploration(self) -> float:
        return -1.0 if self.metrics.timesteps < self.config.random_timesteps else self.config.noise

    def learn_from(self, batches: Mapping[str, NDArray[Any]]) -> tuple[Mapping[str, Any], Any]:
        noise = self.rng.standard_normal(batches["actions"].shape, np.float32) * np.float32(self.config.target_noise)
        noise = np.clip(noise, -self.config.target_noise_limit, self.config.target_noise_limit)
        self.learner, said, errors = self._update(self.learner, batches, noise)
        return said, errors


class TD3(DDPG):
    """Twin delayed DDPG."""

    name = "TD3"
    config_class = TD3Config


def make_loss(model: ContinuousModel, config: DDPGConfig) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The loss of the critics, with each transition's error, and the loss of the policy."""

    def critic_loss(critic: Any, learner: Any, batch: Any, noise: Any) -> tuple[Any, Any]:
        target, after = learner["target"], batch["next_observations"]
        action_after = jnp.clip(model.action(jnp, target, after) + noise, -1, 1)
        value_after = model.values(jnp, target, after, action_after).min(axis=0)
        goal = batch["rewards"] + batch["discounts"] * value_after
        errors = model.values(jnp, critic, batch["observations"], batch["actions"]) - goal
        return (batch["weights"] * (errors**2).sum(axis=0)).mean(), errors[0]

    def policy_loss(policy: Any, critic: Any, batch: Any) -> Any:
        actions = model.action(jnp, policy, batch["observations"])
        return -model.values(jnp, critic, batch["observations"], actions)[0].mean()

    return critic_loss, policy_loss


def make_update(
    model: ContinuousModel,
    policy_optimizer: optax.GradientTransformation,
    critic_optimizer: optax.GradientTransformation,
    config: DDPGConfig,
) -> Callable[[Any, Any, Any], tuple[Any, dict[str, Any], Any]]:
    """(learner, batches [updates, batch, ...], noise on target actions) -> (learner, metrics, errors)."""

    critic_loss, policy_loss = config.loss_maker(make_loss)(model, config)

    def improve_policy(learner: Any, batch: Any) -> tuple[Any, Any]:
        loss, gradients = jax.value_and_grad(policy_loss)(learner["policy"], learner["critic"], batch)
        changes, state = policy_optimizer.update(gradients, learner["policy_optimizer"], learner["policy"])
        learner = {**learner, "policy": optax.apply_updates(learner["policy"], changes), "policy_optimizer": state}
        params = {**learner["policy"], **learner["critic"]}
        target = jax.tree.map(lambda old, new: old + config.tau * (new - old), learner["target"], params)
        return {**learner, "target": target}, loss

    def step(learner: Any, row: Any) -> tuple[Any, Any]:
        batch, noise = row
        value_and_gradient = jax.value_and_grad(critic_loss, has_aux=True)
        (loss, errors), gradients = value_and_gradient(learner["critic"], learner, batch, noise)
        changes, state = critic_optimizer.update(gradients, learner["critic_optimizer"], learner["critic"])
        critic = optax.apply_updates(learner["critic"], changes)
        learner = {**learner, "critic": critic, "critic_optimizer": state, "steps": learner["steps"] + 1}
        if config.policy_delay == 1:
            learner, of_policy = improve_policy(learner, batch)
        else:
            due = learner["steps"] % config.policy_delay == 0
            rest = lambda learner, batch: (learner, jnp.zeros(()))  # noqa: E731
            learner, of_policy = jax.lax.cond(due, improve_policy, rest, learner, batch)
        return learner, (loss, of_policy, errors)

    def update(learner: Any, batches: Mapping[str, Any], noise: Any) -> tuple[Any, dict[str, Any], Any]:
        learner, (losses, of_policy, errors) = jax.lax.scan(step, learner, (batches, noise))
        value = -of_policy.mean() * config.policy_delay
        return learner, {"critic_loss": losses.mean(), "value": value}, errors

    return update
