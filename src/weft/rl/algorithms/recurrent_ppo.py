"""PPO with a memory, for environments that do not show everything: https://arxiv.org/abs/1707.06347.

As PPO, but a minibatch is some environments' whole fragments: the loss runs the memory through them from the state that
the worker had at their start, and clears it where episodes begin.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from weft.library.settings import SettingError, setting
from weft.rl.advantages import generalized_advantages
from weft.rl.algorithm import Algorithm, stack
from weft.rl.algorithms.ppo import PPOConfig, acting_params, make_loss, see, start_learner
from weft.rl.recurrent import RecurrentActorCritic, RecurrentStochastic


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecurrentPPOConfig(PPOConfig):
    """The settings of recurrent PPO. `minibatch` counts environments here, not steps."""

    hidden: tuple[int, ...] = setting((64,), "units of the layers before the memory", at_least=1)
    envs_per_worker: int = setting(8, "environments that a worker steps together", at_least=1)
    fragment_steps: int = setting(128, "steps of each environment in one fragment", at_least=1)
    minibatch: int = setting(2, "environments in a minibatch, each with its whole fragment", at_least=1)
    learning_rate: float = setting(5e-4, "of the optimiser", above=0)
    epochs: int = setting(16, "passes over each batch", at_least=1)
    normalize_observations: bool = setting(True, "networks see observations in units of their spread so far")
    memory: str = setting("gru", "the kind of memory", one_of=("gru", "lstm"))
    units: int = setting(64, "units of the memory", at_least=1)

    devices: int = setting(1, "devices of the learner", one_of=(1,))

    def check(self) -> None:
        check_memory(self, ("target_kl", "initial_log_std", "anneal_timesteps"))
        environments = self.envs_per_worker * max(self.workers, 1)
        if environments % self.minibatch:
            raise SettingError(
                f"RecurrentPPOConfig: minibatch must divide the {environments} environments, but is {self.minibatch}"
            )


def check_memory(config: PPOConfig, unused: tuple[str, ...]) -> None:
    """Raise SettingError where one of these is set, of which PPO with a memory makes no use."""
    defaults = {field.name: field.default for field in dataclasses.fields(config)}
    for name in unused:
        if getattr(config, name) != defaults[name]:
            raise SettingError(f"{type(config).__name__}: with a memory {name} must be {defaults[name]!r}, its default")


class RecurrentPPO(Algorithm[RecurrentPPOConfig]):
    """Proximal policy optimisation with a memory."""

    name = "RecurrentPPO"
    config_class = RecurrentPPOConfig

    def build(self) -> None:
        config = self.config
        model = RecurrentActorCritic.of(self.encoder, self.decoder, config, config.memory, config.units)
        self.behaviour = RecurrentStochastic(model)
        clip = optax.clip_by_global_norm(config.gradient_norm)
        optimizer = optax.flatten(optax.chain(clip, optax.adam(config.learning_rate, eps=1e-5)))
        params = {name: jnp.asarray(value) for name, value in model.init(self.rng).items()}
        self.learner = start_learner(params, optimizer, self.encoder.feature_size, config)
        self._update = jax.jit(make_update(model, optimizer, config), donate_argnums=0)

    def acting_params(self) -> Mapping[str, Any]:
        return acting_params(self.learner)

    def iterate(self) -> Mapping[str, Any]:
        batch = stack(self.sample())
        with self.learning():
            orders = column_shuffles(self.rng, batch["rewards"].shape[1], self.config.epochs, self.config.minibatch)
            self.learner, said = self._update(self.learner, batch, orders)
            said = jax.device_get(said)
        self.version += 1
        return said


def column_shuffles(rng: np.random.Generator, columns: int, epochs: int, size: int) -> NDArray[np.int32]:
    """[minibatches of all epochs, columns of each]: whole fragments, since a memory runs through them."""
    size = min(size, columns)
    count = columns // size
    orders = [rng.permutation(columns)[: count * size] for _ in range(epochs)]
    return np.asarray(orders, np.int32).reshape(-1, size)


def unroll(model: RecurrentActorCritic, params: Any, observations: Any, starts: Any, state: Any) -> tuple[Any, Any]:
    """Inputs and values [steps, N] from a memory that begins at `state` and is cleared before rows that start."""

    def step(state: Any, row: Any) -> tuple[Any, Any]:
        observation, begins = row
        inputs, value, state = model.step(jnp, params, observation, jnp.where(begins[:, None], 0.0, state))
        return state, (inputs, value)

    _, (inputs, values) = jax.lax.scan(step, state, (observations, starts))
    return inputs, values


def make_update(
    model: RecurrentActorCritic, optimizer: optax.GradientTransformation, config: PPOConfig
) -> Callable[[Any, Any, Any], tuple[Any, dict[str, Any]]]:
    """(learner, arrays [steps, N, ...], environments of each minibatch) -> (learner, metrics)."""

    def evaluate(params: Any, minibatch: Mapping[str, Any]) -> tuple[Any, Any]:
        starts, state = minibatch["starts"][:-1], minibatch["initial_state"][0]
        return unroll(model, params, minibatch["observations"], starts, state)

    loss = config.loss_maker(make_loss)(model, config, evaluate)

    def prepare(params: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
        done = batch["terminated"] | batch["truncated"] | ~batch["valid"]
        starts = jnp.concatenate([jnp.zeros_like(done[:1]), done])
        inputs, values = unroll(model, params, batch["observations"], starts, batch["initial_state"][0])
        advantages = generalized_advantages(
            batch["rewards"],
            values,
            batch["terminated"],
            batch["truncated"],
            batch["bootstrap"],
            config.gamma,
            config.gae_lambda,
        )
        return {
            "observations": batch["observations"][:-1],
            "initial_state": batch["initial_state"],
            "starts": starts,
            "actions": batch["actions"],
            "valid": batch["valid"],
            "log_probs": model.distribution(jnp, inputs[:-1]).log_prob(batch["actions"]),
            "advantages": advantages,
            "returns": advantages + values[:-1],
        }

    def update(learner: Any, batch: Mapping[str, Any], shuffles: Any) -> tuple[Any, dict[str, Any]]:
        known = learner.get("filter", {})  # no gradient is taken of it
        rows = prepare(acting_params(learner), batch)

        def loss_of(params: Any, minibatch: Any) -> tuple[Any, dict[str, Any]]:
            return loss({**params, **known}, minibatch)

        def minibatch_step(carry: Any, environments: Any) -> tuple[Any, Any]:
            params, optimizer_state = carry
            minibatch = {name: array[:, environments] for name, array in rows.items()}
            gradients, said = jax.grad(loss_of, has_aux=True)(params, minibatch)
            changes, optimizer_state = optimizer.update(gradients, optimizer_state, params)
            return (optax.apply_updates(params, changes), optimizer_state), said

        start = (learner["params"], learner["optimizer"])
        (params, optimizer_state), said = jax.lax.scan(minibatch_step, start, shuffles)
        learner = {**learner, "params": params, "optimizer": optimizer_state}
        return see(learner, rows["observations"], rows["valid"]), jax.tree.map(jnp.mean, said)

    return update
