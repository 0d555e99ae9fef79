"""Deep Q-learning and its improvements, each a switch: https://arxiv.org/abs/1312.5602.

double         https://arxiv.org/abs/1509.06461   the online network chooses, the target network values
dueling        https://arxiv.org/abs/1511.06581   a value and advantages instead of Q values
prioritized    https://arxiv.org/abs/1511.05952   replay by error
n_steps        several rewards before a value
noisy          https://arxiv.org/abs/1706.10295   exploration by noise in the weights
atoms > 1      https://arxiv.org/abs/1707.06887   distributions of returns instead of means
all of them    https://arxiv.org/abs/1710.02298   `Rainbow`
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from weft.library.settings import SettingError, setting
from weft.rl.behaviours import EpsilonGreedy
from weft.rl.distributions import log_softmax, pick
from weft.rl.off_policy import OffPolicy, OffPolicyConfig
from weft.rl.q_models import QModel

MUCH_OUTSIDE = 0.2  # of the returns: an untrained network has a few hundredths there


@dataclasses.dataclass(frozen=True, kw_only=True)
class DQNConfig(OffPolicyConfig):
    """The settings of DQN: steady ones, with which all of five seeds reach 475 on CartPole."""

    old_names: ClassVar[Mapping[str, str]] = {
        **OffPolicyConfig.old_names,
        "double_q": "double",
        "num_atoms": "atoms",
        "target_network_update_freq": "target_interval",
        "exploration_final_eps": "final_exploration",
        "exploration_initial_eps": "initial_exploration",
        "target_update_interval": "target_interval",
        "max_grad_norm": "gradient_norm",
        "v_min": "value_low",
        "v_max": "value_high",
    }

    learning_rate: float = setting(5e-4, "of the optimiser", above=0)
    hidden: tuple[int, ...] = setting((256, 256), "units of the hidden layers", at_least=1)
    activation: str = setting("relu", "of the hidden layers", one_of=("tanh", "relu", "elu", "silu"))
    envs_per_worker: int = setting(4, "environments that a worker steps together", at_least=1)
    fragment_steps: int = setting(32, "steps of each environment between gradient steps", at_least=1)
    updates_per_step: float = setting(0.5, "gradient steps for each step of an environment", above=0)
    n_steps: int = setting(3, "rewards summed before a value is used", at_least=1)
    double: bool = setting(True, "the online network chooses the action whose value the target network gives")
    dueling: bool = setting(False, "a value and advantages instead of Q values")
    noisy: bool = setting(False, "explore by noise in the last layers' weights instead of random actions")
    atoms: int = setting(1, "points of the distribution of returns; 1 learns only the mean", at_least=1)
    value_low: float = setting(0.0, "least return of the distribution; what lies below counts as this, with a warning")
    value_high: float = setting(100.0, "largest return of the distribution; what lies above counts as this")
    target_interval: int = setting(200, "gradient steps between copies to the target network", at_least=1)
    initial_exploration: float = setting(1.0, "chance of a random action at first", at_least=0, at_most=1)
    final_exploration: float = setting(0.01, "chance of a random action later", at_least=0, at_most=1)
    exploration_timesteps: int = setting(10_000, "steps over which exploration falls", at_least=1)
    gradient_norm: float = setting(10.0, "gradients are scaled down to this norm", above=0)

    def check(self) -> None:
        super().check()
        if self.atoms > 1 and self.value_high <= self.value_low:
            raise SettingError(
                f"{type(self).__name__}: value_high must be above value_low={self.value_low}, but got {self.value_high}"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RainbowConfig(DQNConfig):
    """DQN with everything on."""

    learning_rate: float = setting(1e-3, "of the optimiser", above=0)
    hidden: tuple[int, ...] = setting((128, 128), "units of the hidden layers", at_least=1)
    target_interval: int = setting(100, "gradient steps between copies to the target network", at_least=1)
    dueling: bool = setting(True, "a value and advantages instead of Q values")
    prioritized: bool = setting(True, "draw transitions of large error more often")
    noisy: bool = setting(True, "explore by noise in the last layers' weights instead of random actions")
    atoms: int = setting(51, "points of the distribution of returns; 1 learns only the mean", at_least=1)
    priority_alpha: float = setting(0.5, "how much priorities matter", at_least=0, at_most=1)


class LayerNoise(NamedTuple):
    """Draws of the noisy layers' noise, independent of each other: what learns, what values, and what chooses."""

    online: Any
    target: Any
    choosing: Any


class DQN(OffPolicy[DQNConfig]):
    """Deep Q-learning.

    >>> with DQN(env="CartPole-v1", seed=1) as algorithm:
    ...     action = algorithm.policy.act([0.0, 0.0, 0.0, 0.0])
    >>> action in (0, 1)
    True
    """

    name = "DQN"
    config_class = DQNConfig

    def build_learner(self) -> None:
        config = self.config
        self.model = QModel.of(
            self.encoder,
            self.decoder,
            config,
            dueling=config.dueling,
            noisy=config.noisy,
            atoms=config.atoms,
            low=config.value_low,
            high=config.value_high,
        )
        self.behaviour = EpsilonGreedy(self.model)
        self._learnt_from: Mapping[str, NDArray[Any]] | None = None  # a batch
        self._has_warned = False
        optimizer = optax.flatten(
            optax.chain(optax.clip_by_global_norm(config.gradient_norm), optax.adam(config.learning_rate, eps=1e-5))
        )
        params = {name: jnp.asarray(value) for name, value in self.model.init(self.rng).items()}
        self.learner = {
            "params": params,
            "target": jax.tree.map(jnp.copy, params),
            "optimizer": optimizer.init(params),
            "steps": jnp.zeros((), jnp.int32),
        }
        self._update = jax.jit(make_update(self.model, optimizer, config), donate_argnums=0)

    def acting_params(self) -> Mapping[str, Any]:
        return self.learner["params"]

    def exploration(self) -> float:
        config = self.config
        if config.noisy:
            return 0.0 if len(self.replay) >= config.learning_starts else 1.0
        progress = min(1.0, self.metrics.timesteps / config.exploration_timesteps)
        return config.initial_exploration + progress * (config.final_exploration - config.initial_exploration)

    def train(self) -> dict[str, Any]:
        result = super().train()
        if self.config.atoms > 1 and self._learnt_from is not None:
            outside = share_outside(self.model, jax.device_get(self.learner["target"]), self._learnt_from)
            result["learner"]["returns_outside"] = outside
            if outside > MUCH_OUTSIDE and not self._has_warned:
                self._has_warned = True
                warnings.warn(
                    f"{self.name}: {outside:.0%} of the returns that it learns lie below value_low="
                    f"{self.config.value_low:g} or above value_high={self.config.value_high:g}, and count as these; "
                    "set them to the least and the largest discounted return that there can be, or set reward_scale",
                    stacklevel=2,
                )
        return result

    def learn_from(self, batches: Mapping[str, NDArray[Any]]) -> tuple[Mapping[str, Any], Any]:
        self._learnt_from = {name: array[0] for name, array in batches.items()}
        updates = len(batches["rewards"])
        noise = LayerNoise(*(self.model.layer_noise(self.rng, (updates,)) for _ in LayerNoise._fields))
        self.learner, said, errors = self._update(self.learner, batches, noise)
        return said, errors


class Rainbow(DQN):
    """DQN with all of its improvements."""

    name = "Rainbow"
    config_class = RainbowConfig


def make_loss(model: QModel, config: DQNConfig) -> Callable[..., tuple[Any, Any]]:
    """(params, the target's params, batch, noise) -> each transition's loss and its error."""
    errors_of = distribution_errors if config.atoms > 1 else value_errors

    def losses(params: Any, target: Any, batch: Any, noise: LayerNoise) -> tuple[Any, Any]:
        return errors_of(model, config, params, target, batch, noise)

    return losses


def best_next(model: QModel, config: DQNConfig, params: Any, target: Any, batch: Any, noise: LayerNoise) -> Any:
    """The action after each transition: chosen by the online network for double Q-learning, else by the target."""
    chooser, drawn = (params, noise.choosing) if config.double else (target, noise.target)
    values = model.q_values(jnp, chooser, batch["next_observations"], drawn)
    return model.allowed(jnp, batch["next_observations"], values).argmax(axis=-1)


def value_errors(
    model: QModel, config: DQNConfig, params: Any, target: Any, batch: Any, noise: LayerNoise
) -> tuple[Any, Any]:
    """Huber losses and temporal-difference errors of a batch."""
    action_after = best_next(model, config, params, target, batch, noise)
    after = pick(jnp, model.q_values(jnp, target, batch["next_observations"], noise.target), action_after)
    goal = jax.lax.stop_gradient(batch["rewards"] + batch["discounts"] * after)
    errors = goal - pick(jnp, model.q_values(jnp, params, batch["observations"], noise.online), batch["actions"])
    return optax.huber_loss(errors), errors


def distribution_errors(
    model: QModel, config: DQNConfig, params: Any, target: Any, batch: Any, noise: LayerNoise
) -> tuple[Any, Any]:
    """Cross-entropies to the projected distributions of returns; the errors are the divergences from them.

    A divergence is the cross-entropy less what no prediction could save, so only what can still be learnt has priority.
    """
    action_after = best_next(model, config, params, target, batch, noise)
    outputs = model.outputs(jnp, target, batch["next_observations"], noise.target)
    after = jnp.exp(log_softmax(jnp, _of_action(outputs, action_after)))
    goal = jax.lax.stop_gradient(project(model, batch["rewards"], batch["discounts"], after))
    logits = _of_action(model.outputs(jnp, params, batch["observations"], noise.online), batch["actions"])
    losses = -(goal * log_softmax(jnp, logits)).sum(axis=-1)
    return losses, losses + jax.scipy.special.xlogy(goal, goal).sum(axis=-1)


def project(model: QModel, rewards: Any, discounts: Any, probabilities: Any) -> Any:
    """Probabilities of reward + discount × support, shared out among the two nearest points of the support."""
    support = model.support(jnp)
    gap = (model.high - model.low) / (model.atoms - 1)
    moved = jnp.clip(rewards[:, None] + discounts[:, None] * support, model.low, model.high)
    nearness = jnp.clip(1 - jnp.abs(moved[:, None, :] - support[None, :, None]) / gap, 0, 1)
    return (nearness * probabilities[:, None, :]).sum(axis=-1)


def share_outside(model: QModel, params: Mapping[str, Any], batch: Mapping[str, NDArray[Any]]) -> float:
    """How much of the probability of a batch's projected returns lies outside the support, and is moved to its ends."""
    outputs = model.outputs(np, params, batch["next_observations"], {})
    probabilities = np.exp(log_softmax(np, outputs))
    values = (probabilities * model.support(np)).sum(axis=-1)
    best = model.allowed(np, batch["next_observations"], values).argmax(axis=-1)
    after = probabilities[np.arange(len(best)), best]
    moved = batch["rewards"][:, None] + batch["discounts"][:, None] * model.support(np)
    slack = 1e-3 * (model.high - model.low)
    return float((after * ((moved < model.low - slack) | (moved > model.high + slack))).sum(axis=-1).mean())


def _of_action(outputs: Any, actions: Any) -> Any:
    return jnp.take_along_axis(outputs, actions[:, None, None], axis=1)[:, 0]


def make_update(
    model: QModel, optimizer: optax.GradientTransformation, config: DQNConfig
) -> Callable[[Any, Any, Any], tuple[Any, dict[str, Any], Any]]:
    """(learner, batches [updates, batch, ...], noise) -> (learner, metrics, errors [updates, batch])."""
    losses_of = config.loss_maker(make_loss)(model, config)

    def update(learner: Any, batches: Mapping[str, Any], noise: Any) -> tuple[Any, dict[str, Any], Any]:
        def step(learner: Any, row: Any) -> tuple[Any, Any]:
            batch, noise = row

            def loss(params: Any) -> tuple[Any, Any]:
                losses, errors = losses_of(params, learner["target"], batch, noise)
                return (batch["weights"] * losses).mean(), errors

            (total, errors), gradients = jax.value_and_grad(loss, has_aux=True)(learner["params"])
            changes, optimizer_state = optimizer.update(gradients, learner["optimizer"], learner["params"])
            params = optax.apply_updates(learner["params"], changes)
            steps = learner["steps"] + 1
            copies = steps % config.target_interval == 0
            target = jax.tree.map(lambda new, old: jnp.where(copies, new, old), params, learner["target"])
            after = {"params": params, "target": target, "optimizer": optimizer_state, "steps": steps}
            return after, (total, errors)

        learner, (losses, errors) = jax.lax.scan(step, learner, (batches, noise))
        return learner, {"loss": losses.mean(), "error": jnp.abs(errors).mean()}, errors

    return update
