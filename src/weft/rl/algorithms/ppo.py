"""Proximal policy optimisation: https://arxiv.org/abs/1707.06347.

Each iteration collects a fragment of every environment with the present policy, then improves the policy by several
epochs of minibatch steps on the clipped objective. The whole update is one compiled function: values and advantages,
then a scan over the minibatches of all epochs.
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

from weft.library.settings import SettingError, setting
from weft.rl.advantages import generalized_advantages, mean_of_valid
from weft.rl.algorithm import Algorithm, stack
from weft.rl.behaviours import Stochastic
from weft.rl.config import OLD_NAMES, AlgorithmConfig
from weft.rl.devices import Devices
from weft.rl.models import ActorCritic


@dataclasses.dataclass(frozen=True, kw_only=True)
class PPOConfig(AlgorithmConfig):
    """The settings of PPO. A batch is fragment_steps × envs_per_worker × workers steps.

    >>> PPOConfig(env="CartPole-v1", workers=2).batch
    2048
    """

    old_names: ClassVar[Mapping[str, str]] = {
        **OLD_NAMES,
        "num_sgd_iter": "epochs",
        "sgd_batchsize": "minibatch",
        "sgd_minibatch_size": "minibatch",
        "lambda": "gae_lambda",
        "clip_param": "clip",
        "entropy_coeff": "entropy_weight",
        "vf_loss_coeff": "value_weight",
        "grad_clip": "gradient_norm",
        "n_steps": "fragment_steps",
        "n_epochs": "epochs",
        "batch_size": "minibatch",
        "clip_range": "clip",
        "ent_coef": "entropy_weight",
        "vf_coef": "value_weight",
        "max_grad_norm": "gradient_norm",
    }

    epochs: int = setting(10, "passes over each batch", at_least=1)
    minibatch: int = setting(64, "steps in a minibatch", at_least=1)
    clip: float = setting(0.2, "how far the probability ratio may move from 1", above=0)
    gae_lambda: float = setting(0.95, "of the advantages", at_least=0, at_most=1)
    entropy_weight: float = setting(0.0, "of the entropy bonus", at_least=0)
    value_weight: float = setting(0.5, "of the value loss", at_least=0)
    gradient_norm: float = setting(0.5, "gradients are scaled down to this norm", above=0)
    target_kl: float | None = setting(
        None, "no more steps on a batch once the policy has moved one and a half times this far", above=0
    )
    anneal_timesteps: int | None = setting(None, "the learning rate falls linearly to 0 over these steps", above=0)
    normalize_observations: bool = setting(False, "networks see observations in units of their spread so far")
    initial_log_std: float = setting(0.0, "logarithm of the first standard deviation of continuous actions")

    devices: int = setting(1, "devices of the learner, among which each minibatch is split", at_least=1)

    def check(self) -> None:
        environments = self.envs_per_worker * max(self.workers, 1)
        self.check_devices(self.devices, environments, self.minibatch if self.devices > 1 else None)
        if self.batch < self.minibatch:
            raise SettingError(f"PPOConfig: minibatch is {self.minibatch}, but a batch has only {self.batch} steps")

    @property
    def batch(self) -> int:
        """How many steps are played for one update."""
        return self.fragment_steps * self.envs_per_worker * max(self.workers, 1)


class PPO(Algorithm[PPOConfig]):
    """Proximal policy optimisation.

    >>> with PPO(env="CartPole-v1", seed=1, fragment_steps=32) as algorithm:
    ...     result = algorithm.train()
    >>> result["training_iteration"], result["timesteps_total"]
    (1, 256)
    """

    name = "PPO"
    config_class = PPOConfig

    def build(self) -> None:
        config = self.config
        model = ActorCritic.of(self.encoder, self.decoder, config, config.initial_log_std)
        self.behaviour = Stochastic(model)
        optimizer = make_optimizer(config)
        params = {name: jnp.asarray(value) for name, value in model.init(self.rng).items()}
        self.learner = start_learner(params, optimizer, self.encoder.feature_size, config)
        self._update = jax.jit(make_update(model, optimizer, config), donate_argnums=0)

    def acting_params(self) -> Mapping[str, Any]:
        return acting_params(self.learner)

    def iterate(self) -> Mapping[str, Any]:
        batch = stack(self.sample())
        with self.learning():
            self.learner, said = self._update(self.learner, batch, self._shuffles(batch["rewards"].size))
            said = jax.device_get(said)
        self.version += 1
        return said

    def _shuffles(self, steps: int) -> NDArray[np.int32]:
        """[epochs, minibatches, steps]: drawn here, since a sort and a generator would double the compile time."""
        epochs, size = self.config.epochs, min(self.config.minibatch, steps)
        count = steps // size
        orders = [self.rng.permutation(steps)[: count * size] for _ in range(epochs)]
        return np.asarray(orders, np.int32).reshape(epochs, count, size)


def start_learner(
    params: dict[str, Any], optimizer: optax.GradientTransformation, features: int, config: PPOConfig
) -> dict[str, Any]:
    """What the learner holds at first: what is trained, and beside it the filter of observations, which is counted."""
    learner = {"params": params, "optimizer": optimizer.init(params)}
    if not config.normalize_observations:
        return learner
    seen = {"count": jnp.zeros(()), "mean": jnp.zeros(features), "squares": jnp.zeros(features)}
    return {**learner, "filter": {"filter.mean": jnp.zeros(features), "filter.scale": jnp.ones(features)}, "seen": seen}


def acting_params(learner: Mapping[str, Any]) -> dict[str, Any]:
    """What the networks take: what is trained and the filter, if there is one."""
    return {**learner["params"], **learner.get("filter", {})}


def see(learner: dict[str, Any], observations: Any, valid: Any) -> dict[str, Any]:
    """Let the filter, if there is one, know these observations [..., features]."""
    if "seen" not in learner:
        return learner
    seen = learner["seen"]
    size = seen["mean"].shape[0]
    rows, weights = observations[..., :size].reshape(-1, size), valid.reshape(-1, 1).astype(jnp.float32)
    count = seen["count"] + weights.sum()
    away = (rows - seen["mean"]) * weights
    mean = seen["mean"] + away.sum(axis=0) / count
    squares = seen["squares"] + (away * (rows - mean)).sum(axis=0)
    scale = jnp.minimum(1 / jnp.sqrt(squares / count + 1e-8), 1e3)
    known = {"filter.mean": mean, "filter.scale": scale}
    return {**learner, "filter": known, "seen": {"count": count, "mean": mean, "squares": squares}}


def make_optimizer(config: PPOConfig) -> optax.GradientTransformation:
    rate: Any = config.learning_rate
    if config.anneal_timesteps is not None:
        updates = config.anneal_timesteps / config.batch * config.epochs * (config.batch // config.minibatch)
        rate = optax.linear_schedule(config.learning_rate, 0.0, max(1, int(updates)))
    return optax.flatten(optax.chain(optax.clip_by_global_norm(config.gradient_norm), optax.adam(rate, eps=1e-5)))


def make_loss(
    model: Any, config: PPOConfig, evaluate: Callable[[Any, Any], tuple[Any, Any]]
) -> Callable[[Any, Any], tuple[Any, dict[str, Any]]]:
    """The clipped objective of a minibatch; the setting `make_loss` puts another function in this one's place."""

    def loss(params: Any, minibatch: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        inputs, values = evaluate(params, minibatch)
        distribution = model.distribution(jnp, inputs)
        valid = minibatch["valid"]
        log_ratio = distribution.log_prob(minibatch["actions"]) - minibatch["log_probs"]
        ratio = jnp.exp(log_ratio)
        advantages = minibatch["advantages"]
        mean = mean_of_valid(advantages, valid)
        spread = jnp.sqrt(mean_of_valid((advantages - mean) ** 2, valid))
        advantages = (advantages - mean) / (spread + 1e-8)
        clipped = jnp.clip(ratio, 1 - config.clip, 1 + config.clip)
        policy_loss = -mean_of_valid(jnp.minimum(ratio * advantages, clipped * advantages), valid)
        value_loss = 0.5 * mean_of_valid((values - minibatch["returns"]) ** 2, valid)
        entropy = mean_of_valid(distribution.entropy(), valid)
        total = policy_loss + config.value_weight * value_loss - config.entropy_weight * entropy
        return total, {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "kl": mean_of_valid(ratio - 1 - log_ratio, valid),
            "clipped": mean_of_valid((jnp.abs(ratio - 1) > config.clip).astype(jnp.float32), valid),
        }

    return loss


def make_prepare(model: ActorCritic, config: PPOConfig) -> Callable[[Any, Mapping[str, Any]], dict[str, Any]]:
    """(params, arrays [steps, N, ...]) -> what minibatches are made from."""

    def prepare(params: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
        """The batch as single steps, with the advantages and old log-probabilities that its minibatches need."""
        inputs, values = model.action_inputs_and_value(jnp, params, batch["observations"])
        advantages = generalized_advantages(
            batch["rewards"],
            values,
            batch["terminated"],
            batch["truncated"],
            batch["bootstrap"],
            config.gamma,
            config.gae_lambda,
        )
        steps = {
            "observations": batch["observations"][:-1],
            "actions": batch["actions"],
            "valid": batch["valid"],
            "log_probs": model.distribution(jnp, inputs[:-1]).log_prob(batch["actions"]),
            "advantages": advantages,
            "returns": advantages + values[:-1],
        }
        return {name: array.reshape(-1, *array.shape[2:]) for name, array in steps.items()}

    return prepare


def make_update(
    model: ActorCritic, optimizer: optax.GradientTransformation, config: PPOConfig
) -> Callable[[Any, Any, Any], tuple[Any, dict[str, Any]]]:
    """One PPO update: (learner, arrays [steps, N, ...], orders [epochs, minibatches, steps]) -> (learner, metrics)."""

    def evaluate(params: Any, minibatch: Mapping[str, Any]) -> tuple[Any, Any]:
        return model.action_inputs_and_value(jnp, params, minibatch["observations"])

    loss = config.loss_maker(make_loss)(model, config, evaluate)
    prepare = make_prepare(model, config)
    devices = Devices(config.devices)

    def update(learner: Any, batch: Mapping[str, Any], shuffles: Any) -> tuple[Any, dict[str, Any]]:
        known = learner.get("filter", {})  # no gradient is taken of it
        steps = devices.whole(prepare(acting_params(learner), devices.split(batch, axis=1)))

        def loss_of(params: Any, minibatch: Any) -> tuple[Any, dict[str, Any]]:
            return loss({**params, **known}, minibatch)

        def minibatch_step(carry: Any, indices: Any) -> tuple[Any, Any]:
            params, optimizer_state, go_on = carry
            minibatch = devices.split({name: array[indices] for name, array in steps.items()}, axis=0)
            gradients, said = jax.grad(loss_of, has_aux=True)(params, minibatch)
            changes, new_state = optimizer.update(gradients, optimizer_state, params)
            new_params = optax.apply_updates(params, changes)
            if config.target_kl is None:
                return (new_params, new_state, go_on), said
            go_on = go_on & (said["kl"] < 1.5 * config.target_kl)  # this minibatch is not learnt from, if it is too far
            keep = lambda new, old: jnp.where(go_on, new, old)  # noqa: E731
            return (*jax.tree.map(keep, (new_params, new_state), (params, optimizer_state)), go_on), said

        start = (learner["params"], learner["optimizer"], jnp.asarray(True))
        flat = shuffles.reshape(-1, shuffles.shape[-1])
        (params, optimizer_state, _), said = jax.lax.scan(minibatch_step, start, flat)
        learner = {**learner, "params": params, "optimizer": optimizer_state}
        return see(learner, steps["observations"], steps["valid"]), jax.tree.map(jnp.mean, said)

    return update
