"""Asynchronous advantage actor-critic: https://arxiv.org/abs/1602.01783.

Every worker samples a fragment and computes the gradient of A2C's loss itself. The driver applies each gradient as soon
as it arrives and sends the newest weights back to that worker alone; nobody waits for the slowest. Gradients are
computed where the samples are, so these workers, unlike all others, import JAX.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from weft.library.settings import setting
from weft.rl.algorithm import Algorithm
from weft.rl.algorithms.a2c import A2CConfig, make_loss, make_optimizer
from weft.rl.behaviours import Stochastic
from weft.rl.models import ActorCritic
from weft.rl.rollout import Blueprint, Fragment, RolloutWorker
from weft.rl.workers import RolloutWorkers


@dataclasses.dataclass(frozen=True, kw_only=True)
class A3CConfig(A2CConfig):
    """The settings of A3C."""

    workers: int = setting(2, "processes that sample and compute gradients", at_least=1)
    updates_per_iteration: int = setting(20, "gradients applied in one train()", at_least=1)


class GradientWorker(RolloutWorker):
    """A rollout worker that gives back the gradient of its fragment instead of its steps."""

    def __init__(self, blueprint: Blueprint, index: int, incarnation: int, config: A3CConfig) -> None:
        super().__init__(blueprint, index, incarnation)
        assert isinstance(blueprint.behaviour, Stochastic)
        loss = config.loss_maker(make_loss)(blueprint.behaviour.model, config)
        self._gradient = jax.jit(jax.grad(loss, has_aux=True))

    def sample(
        self, weights: NDArray[np.float32], version: int = 0, exploration: float = 0.0, steps: int | None = None
    ) -> Fragment:
        fragment = super().sample(weights, version, exploration, steps)
        layout = self._blueprint.layout
        gradients, said = self._gradient(layout.unpack(weights), fragment.arrays)
        fragment.arrays = {
            "gradient": layout.pack(gradients),
            "valid": fragment.arrays["valid"],
            **{name: np.asarray(value) for name, value in said.items()},
        }
        return fragment


class A3C(Algorithm[A3CConfig]):
    """Asynchronous advantage actor-critic."""

    name = "A3C"
    config_class = A3CConfig

    def build(self) -> None:
        model = ActorCritic.of(self.encoder, self.decoder, self.config)
        self.behaviour = Stochastic(model)
        optimizer = make_optimizer(self.config)

        def apply(learner: Any, gradients: Any) -> Any:
            changes, optimizer_state = optimizer.update(gradients, learner["optimizer"], learner["params"])
            return {"params": optax.apply_updates(learner["params"], changes), "optimizer": optimizer_state}

        params = {name: jnp.asarray(value) for name, value in model.init(self.rng).items()}
        self.learner = {"params": params, "optimizer": optimizer.init(params)}
        self._apply = jax.jit(apply, donate_argnums=0)

    def start_workers(self) -> RolloutWorkers:
        """Workers that compute gradients where the experience is."""
        config = self.config
        return RolloutWorkers(
            self.blueprint(),
            config.workers,
            config.cpus_per_worker,
            config.on_environment_error,
            worker_class=GradientWorker,
            arguments=(config,),
        )

    def acting_params(self) -> Mapping[str, Any]:
        return self.learner["params"]

    def iterate(self) -> Mapping[str, Any]:
        said: dict[str, Any] = {}
        applied, lag = 0, 0
        while applied < self.config.updates_per_iteration:
            self._ask()
            with self.metrics.span("sample"):
                arrived = [fragment for _, fragment in self.workers.arrivals() if fragment is not None]
            for fragment in arrived:
                self.metrics.count(fragment.steps, fragment.episodes)
                said = {name: value for name, value in fragment.arrays.items() if value.ndim == 0}
                with self.learning():
                    gradients = self.layout.unpack(fragment.arrays["gradient"])
                    self.learner = self._apply(self.learner, gradients)
                lag += self.version - fragment.version
                self.version += 1
                applied += 1
        return {**said, "gradient_lag": lag / applied}

    def _ask(self) -> None:
        """Ask every worker that has nothing to do, new ones too, for the gradient of its next fragment."""
        for index in range(self.workers.count):
            if not self.workers.asked_of(index):
                self.workers.request(index, self.workers.share(self.weights()), self.version)
