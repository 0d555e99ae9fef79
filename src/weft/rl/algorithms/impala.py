"""IMPALA: actors and a learner that never wait for each other, corrected by V-trace: https://arxiv.org/abs/1802.01561.

Workers send fragments without pause, each made with the newest weights that were there when it was asked for. The
driver queues what arrives; the learner takes as many fragments as make a batch, or nothing. A queue that is full keeps
the workers back: a worker is only asked for its next fragment when there is room for it. V-trace weighs each step by
how likely the present policy would have taken it.

LEARN-1  A batch that is there is begun before anything else is done: counting, asking and receiving more come after.
LEARN-2  It is begun whether or not the last update has ended, and one update at most is begun ahead, so that the
         learner has no pause in which the driver does something else.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax

from weft.library.settings import SettingError, setting
from weft.rl.advantages import mean_of_valid, v_trace
from weft.rl.algorithm import Algorithm, stack
from weft.rl.behaviours import Stochastic
from weft.rl.config import OLD_NAMES, AlgorithmConfig
from weft.rl.devices import Devices
from weft.rl.models import ActorCritic
from weft.rl.networks import WeightLayout
from weft.rl.rollout import Fragment

GLANCE_S = 0.0005  # how often it is seen, while fragments are waited for, whether the running update has ended


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImpalaConfig(AlgorithmConfig):
    """The settings of IMPALA."""

    old_names: ClassVar[Mapping[str, str]] = {
        **OLD_NAMES,
        "entropy_coeff": "entropy_weight",
        "vf_loss_coeff": "value_weight",
        "grad_clip": "gradient_norm",
        "learner_queue_size": "queue_limit",
    }

    workers: int = setting(2, "rollout worker processes", at_least=1)
    envs_per_worker: int = setting(8, "environments that a worker steps together", at_least=1)
    fragment_steps: int = setting(32, "steps of each environment in one fragment", at_least=1)
    fragments_per_update: int = setting(1, "fragments that make a batch", at_least=1)
    queue_limit: int = setting(4, "fragments that may wait for the learner before workers are kept back", at_least=1)
    fragments_ahead: int = setting(2, "fragments asked of a worker at a time, so that it never waits", at_least=1)
    updates_per_iteration: int = setting(20, "updates in one train()", at_least=1)
    learning_rate: float = setting(1e-3, "of the optimiser", above=0)
    rho_limit: float = setting(1.0, "V-trace's limit of the importance weights", above=0)
    c_limit: float = setting(1.0, "V-trace's limit of the traces", above=0)
    entropy_weight: float = setting(0.005, "of the entropy bonus", at_least=0)
    value_weight: float = setting(0.5, "of the value loss", at_least=0)
    gradient_norm: float = setting(1.0, "gradients are scaled down to this norm", above=0)

    devices: int = setting(1, "devices of the learner, among which each batch is split", at_least=1)

    def check(self) -> None:
        self.check_devices(self.devices, self.envs_per_worker * self.fragments_per_update)
        if self.fragments_per_update > self.queue_limit:
            raise SettingError(
                f"ImpalaConfig: a batch needs {self.fragments_per_update} fragments, but queue_limit is "
                f"{self.queue_limit}"
            )


@dataclasses.dataclass(frozen=True)
class Update:
    """An update that the learner was given: its number, what it says, and the weights after it, once it has ended."""

    version: int
    said: Any
    weights: Any


class Impala(Algorithm[ImpalaConfig]):
    """Importance-weighted actor-learner architecture."""

    name = "IMPALA"
    config_class = ImpalaConfig

    def build(self) -> None:
        model = ActorCritic.of(self.encoder, self.decoder, self.config)
        self.behaviour = Stochastic(model, record_inputs=True)
        optimizer = optax.flatten(
            optax.chain(
                optax.clip_by_global_norm(self.config.gradient_norm), optax.adam(self.config.learning_rate, eps=1e-5)
            )
        )
        params = {name: jnp.asarray(value) for name, value in model.init(self.rng).items()}
        self.learner = {"params": params, "optimizer": optimizer.init(params)}
        update, layout = make_update(model, optimizer, self.config), WeightLayout(params)

        def update_and_pack(learner: Any, batch: Any) -> tuple[Any, Any, Any]:
            learner, said = update(learner, batch)
            return learner, said, layout.pack(learner["params"], jnp)

        self._update = jax.jit(update_and_pack, donate_argnums=0)
        self._queue: collections.deque[Fragment] = collections.deque()
        self._running: Update | None = None
        self._newest: Update | None = None
        self._shared: Any = None

    def acting_params(self) -> Mapping[str, Any]:
        return self.learner["params"]

    def iterate(self) -> Mapping[str, Any]:
        idle_s, lag, full = 0.0, 0, 0
        for _ in range(self.config.updates_per_iteration):
            if not self._has_batch():
                with self.metrics.span("sample"):
                    idle_s += self._wait_for_batch()
            with self.learning():
                following, lag_of_batch = self._begin()
                self._finish(self._running)  # the learner goes on with the one that follows
                self._running = following
                self._receive(0.0)
                # The last fragment ahead is asked for when this update has ended, to be made with its weights.
                self._ask(self.config.fragments_ahead - (not self._has_batch()))
            lag += lag_of_batch
            full += len(self._queue) >= self.config.queue_limit
        if self._newest is None:
            self._finish(self._running)
        updates = self.config.updates_per_iteration
        return {
            **(jax.device_get(self._newest.said) if self._newest else {}),
            "fragment_lag": lag / updates / self.config.fragments_per_update,
            "learner_idle_s": idle_s,
            "queue_full": full / updates,
        }

    def restore_extra(self, plain: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        self._queue.clear()
        self._running, self._newest, self._shared = None, None, None

    def _has_batch(self) -> bool:
        needed = self.config.fragments_per_update
        if len(self._queue) < needed:
            self._receive(0.0, up_to=needed)
        return len(self._queue) >= needed

    def _wait_for_batch(self) -> float:
        """Wait for fragments, and for the running update, after which more are asked for; how long there was none."""
        idle_s = 0.0
        while not self._has_batch():
            if self._running and self.workers.asked and not self._running.weights.is_ready():
                self._receive(GLANCE_S, up_to=self.config.fragments_per_update)
                continue
            self._finish(self._running)
            self._running = None
            self._ask(self.config.fragments_ahead)
            began = time.perf_counter()
            self._receive(None, up_to=self.config.fragments_per_update)
            idle_s += time.perf_counter() - began
        return idle_s

    def _begin(self) -> tuple[Update, int]:
        """Give the learner the batch that has waited longest; how many versions its fragments are behind."""
        fragments = [self._queue.popleft() for _ in range(self.config.fragments_per_update)]
        self.learner, said, weights = self._update(self.learner, stack(fragments))
        lag = sum(self.version - fragment.version for fragment in fragments)
        self.version += 1
        for fragment in fragments:  # not when they arrive: nothing shall lie between that and the update
            self.metrics.count(fragment.steps, fragment.episodes)
        return Update(self.version, said, weights), lag

    def _finish(self, update: Update | None) -> None:
        """Wait for the end of an update. What is asked for from then on is made with its weights."""
        if update is not None:
            update.weights.block_until_ready()
            self._newest, self._shared = update, None

    def _receive(self, wait_s: float | None, up_to: float = math.inf) -> None:
        """Queue what has arrived or comes in time (None: one comes), until so many fragments are in the queue."""
        for _, fragment in self.workers.arrivals(wait_s):
            if fragment is not None:
                self._queue.append(fragment)
                if len(self._queue) >= up_to:
                    return

    def _ask(self, ahead: int) -> None:
        """Ask each worker for so many fragments ahead, as far as there is room for them."""
        for index in range(self.workers.count):
            while (
                self.workers.asked_of(index) < ahead
                and self.workers.asked + len(self._queue) < self.config.queue_limit + self.workers.count
            ):
                if self._shared is None:
                    newest = self._newest
                    self._shared = self.workers.share(np.asarray(newest.weights) if newest else self.weights())
                self.workers.request(index, self._shared, self._newest.version if self._newest else self.version)


def make_loss(model: ActorCritic, config: ImpalaConfig) -> Callable[[Any, Any], tuple[Any, dict[str, Any]]]:
    """V-trace's policy gradient, value error and entropy of one batch of arrays [steps, N, ...]."""

    def loss(params: Any, batch: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        inputs, values = model.action_inputs_and_value(jnp, params, batch["observations"])
        distribution = model.distribution(jnp, inputs[:-1])
        log_prob = distribution.log_prob(batch["actions"])
        behaved = model.distribution(jnp, batch["action_inputs"]).log_prob(batch["actions"])
        ratios = jnp.exp(jax.lax.stop_gradient(log_prob) - behaved)
        traced = v_trace(
            ratios,
            batch["rewards"],
            jax.lax.stop_gradient(values),
            batch["terminated"],
            batch["truncated"],
            batch["bootstrap"],
            config.gamma,
            config.rho_limit,
            config.c_limit,
        )
        policy_loss = -mean_of_valid(log_prob * traced.advantages, batch["valid"])
        value_loss = 0.5 * mean_of_valid((values[:-1] - traced.targets) ** 2, batch["valid"])
        entropy = mean_of_valid(distribution.entropy(), batch["valid"])
        total = policy_loss + config.value_weight * value_loss - config.entropy_weight * entropy
        return total, {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "ratio_mean": mean_of_valid(ratios, batch["valid"]),
        }

    return loss


def make_update(
    model: ActorCritic, optimizer: optax.GradientTransformation, config: ImpalaConfig
) -> Callable[[Any, Any], tuple[Any, dict[str, Any]]]:
    """One gradient step: (learner, batch of arrays [steps, N, ...]) -> (learner, metrics)."""

    loss = config.loss_maker(make_loss)(model, config)
    devices = Devices(config.devices)

    def update(learner: Any, batch: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        gradients, said = jax.grad(loss, has_aux=True)(learner["params"], devices.split(batch, axis=1))
        changes, optimizer_state = optimizer.update(gradients, learner["optimizer"], learner["params"])
        return {"params": optax.apply_updates(learner["params"], changes), "optimizer": optimizer_state}, said

    return update
