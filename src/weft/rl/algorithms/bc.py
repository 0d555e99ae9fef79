"""Behaviour cloning: do what was done in recorded episodes (Pomerleau 1991, https://doi.org/10.1162/neco.1991.3.1.88).

The policy is fitted to the recorded actions by maximum likelihood; rewards do not matter. The environment is stepped
only to evaluate.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from weft.library.settings import SettingError, setting
from weft.rl.algorithm import Algorithm
from weft.rl.behaviours import Stochastic
from weft.rl.config import AlgorithmConfig
from weft.rl.models import ActorCritic
from weft.rl.offline import read_episodes


@dataclasses.dataclass(frozen=True, kw_only=True)
class BCConfig(AlgorithmConfig):
    """The settings of behaviour cloning."""

    episodes: str | None = setting(None, "folder of the recorded episodes; see weft.rl.offline")
    batch: int = setting(256, "steps in a gradient step", at_least=1)
    updates_per_iteration: int = setting(100, "gradient steps in one train()", at_least=1)
    learning_rate: float = setting(1e-3, "of the optimiser", above=0)
    best_share: float = setting(
        1.0, "share of the episodes to learn from, those of the highest rewards", above=0, at_most=1
    )
    evaluation_interval: int = setting(1, "evaluate every so many iterations; 0 never", at_least=0)

    def check(self) -> None:
        if self.episodes is None:
            raise SettingError("BCConfig: episodes must name a folder of recorded episodes, but is None")


class BC(Algorithm[BCConfig]):
    """Behaviour cloning."""

    name = "BC"
    config_class = BCConfig

    def build(self) -> None:
        config = self.config
        assert config.episodes is not None
        episodes = read_episodes(config.episodes, self.encoder, self.decoder)
        episodes = sorted(episodes, key=lambda episode: -episode.reward)[
            : max(1, round(config.best_share * len(episodes)))
        ]
        self._data = {
            "observations": np.concatenate([episode.observations[:-1] for episode in episodes]),
            "actions": np.concatenate([episode.actions for episode in episodes]),
        }
        model = ActorCritic.of(self.encoder, self.decoder, config)
        self.behaviour = Stochastic(model)
        optimizer = optax.flatten(optax.adam(config.learning_rate))
        params = {name: jnp.asarray(value) for name, value in model.init(self.rng).items()}
        self.learner = {"params": params, "optimizer": optimizer.init(params)}
        self._update = jax.jit(make_update(model, optimizer, config), donate_argnums=0)

    def acting_params(self) -> Mapping[str, Any]:
        return self.learner["params"]

    def iterate(self) -> Mapping[str, Any]:
        config = self.config
        with self.learning():
            rows = self.rng.integers(len(self._data["actions"]), size=(config.updates_per_iteration, config.batch))
            batches = {name: array[rows] for name, array in self._data.items()}
            self.learner, said = self._update(self.learner, batches)
            said = jax.device_get(said)
        self.version += 1
        return {**said, "steps_recorded": len(self._data["actions"])}


def make_loss(model: ActorCritic, config: BCConfig) -> Callable[[Any, Any], tuple[Any, dict[str, Any]]]:
    """How unlikely the recorded actions are."""

    def loss(params: Any, batch: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        distribution = model.distribution(jnp, model.action_inputs(jnp, params, batch["observations"]))
        total = -distribution.log_prob(batch["actions"]).mean()
        return total, {"loss": total, "entropy": distribution.entropy().mean()}

    return loss


def make_update(
    model: ActorCritic, optimizer: optax.GradientTransformation, config: BCConfig
) -> Callable[[Any, Any], tuple[Any, dict[str, Any]]]:
    """(learner, batches [updates, batch, ...]) -> (learner, metrics)."""
    loss = config.loss_maker(make_loss)(model, config)

    def step(learner: Any, batch: Any) -> tuple[Any, Any]:
        gradients, said = jax.grad(loss, has_aux=True)(learner["params"], batch)
        changes, state = optimizer.update(gradients, learner["optimizer"], learner["params"])
        return {"params": optax.apply_updates(learner["params"], changes), "optimizer": state}, said

    def update(learner: Any, batches: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        learner, said = jax.lax.scan(step, learner, batches)
        return learner, jax.tree.map(jnp.mean, said)

    return update
