"""Evolution strategies (https://arxiv.org/abs/1703.03864) and augmented random search (https://arxiv.org/abs/1803.07055).

Both perturb the policy's weights in random directions, play an episode on both sides of each, and move along the
directions in proportion to how much better one side did. ES ranks the rewards and steps with Adam; ARS keeps the best
directions only, divides by the spread of their rewards, and normalises what the policy sees. No gradient is computed,
and no framework is imported but to write checkpoints and for networks of users.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from weft.library.settings import SettingError, setting
from weft.rl.algorithm import Algorithm
from weft.rl.behaviours import Deterministic
from weft.rl.config import OLD_NAMES, AlgorithmConfig
from weft.rl.evolution import Evaluations, Evaluators, ObservationSums, acting_params, policy_only
from weft.rl.models import ActorCritic
from weft.rl.stepping import SEED_BOUND
from weft.rl.workers import RolloutWorkers


@dataclasses.dataclass(frozen=True, kw_only=True)
class ESConfig(AlgorithmConfig):
    """The settings of ES."""

    old_names: ClassVar[Mapping[str, str]] = {
        **OLD_NAMES,
        "noise_stdev": "sigma",
        "episodes_per_batch": "directions",
        "l2_coeff": "weight_decay",
        "noise_size": "noise_table",
    }

    hidden: tuple[int, ...] = setting((32,), "units of the hidden layers", at_least=1)
    learning_rate: float = setting(0.05, "step along the estimated gradient", above=0)
    sigma: float = setting(0.1, "standard deviation of the perturbations", above=0)
    directions: int = setting(32, "directions tried in an iteration, an episode on both sides of each", at_least=1)
    weight_decay: float = setting(0.005, "share of the weights given up in each step", at_least=0)
    normalize_observations: bool = setting(False, "the policy sees observations in units of their spread")
    noise_table: int = setting(2_000_000, "numbers in the shared noise table", at_least=1000)
    aggregators: int = setting(0, "actors between the driver and the workers; for many workers", at_least=0)
    centre_episodes: int = setting(4, "episodes of the unperturbed policy, whose rewards are reported", at_least=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ARSConfig(ESConfig):
    """The settings of ARS: a linear policy by default."""

    old_names: ClassVar[Mapping[str, str]] = {
        **ESConfig.old_names,
        "num_rollouts": "directions",
        "rollouts_used": "best",
    }

    hidden: tuple[int, ...] = setting((), "units of the hidden layers; none for a linear policy", at_least=1)
    learning_rate: float = setting(0.1, "step along the estimated gradient", above=0)
    sigma: float = setting(0.1, "standard deviation of the perturbations", above=0)
    directions: int = setting(16, "directions tried in an iteration, an episode on both sides of each", at_least=1)
    best: int = setting(8, "directions used, those with the best side", at_least=1)
    weight_decay: float = setting(0.0, "share of the weights given up in each step", at_least=0)
    normalize_observations: bool = setting(True, "the policy sees observations in units of their spread")


class ES(Algorithm[ESConfig]):
    """Evolution strategies."""

    name = "ES"
    config_class = ESConfig

    def build(self) -> None:
        if self.config.make_loss is not None:
            raise SettingError(f"{type(self.config).__name__}: {self.name} minimises no loss and takes no make_loss")
        self.behaviour = Deterministic(ActorCritic.of(self.encoder, self.decoder, self.config))
        self._params = policy_only(self.behaviour, self.rng)
        vector = np.concatenate([value.ravel() for value in self._params.values()])
        if self.config.noise_table < 2 * vector.size:
            raise ValueError(f"a noise table of {self.config.noise_table} is too small for {vector.size} weights")
        if isinstance(self.config, ARSConfig) and not self.config.hidden and self.config.network is None:
            vector = np.zeros_like(vector)  # a linear policy
        size = self.encoder.feature_size
        self.learner = {
            "vector": vector,
            "first": np.zeros_like(vector),
            "second": np.zeros_like(vector),
            "steps": np.zeros((), np.int64),
            "seen": np.zeros(()),
            "sum": np.zeros(size),
            "squares": np.zeros(size),
        }

    def acting_params(self) -> Mapping[str, Any]:
        seen = ObservationSums(float(self.learner["seen"]), self.learner["sum"], self.learner["squares"])
        vector = np.asarray(self.learner["vector"], np.float32)
        if not self.config.normalize_observations:
            seen = ObservationSums.zeros(self.encoder.feature_size)
        return acting_params(vector, self._params, seen)

    def start_workers(self) -> RolloutWorkers:
        """Evaluators with one table of noise between them; the driver plays the centre's episodes."""
        config = self.config
        noise = np.random.default_rng([self.seed, 2**22]).standard_normal(config.noise_table, np.float32)
        size = int(np.size(self.learner["vector"]))
        restarts = config.on_environment_error == "restart"
        self._evaluators = Evaluators(self.blueprint(), config.workers, config.aggregators, noise, size, restarts)
        return RolloutWorkers(
            dataclasses.replace(self.blueprint(), envs=config.centre_episodes), 0, None, config.on_environment_error
        )

    def stop(self) -> None:
        self._evaluators.close()
        super().stop()

    def iterate(self) -> Mapping[str, Any]:
        config = self.config
        limit = config.noise_table - np.size(self.learner["vector"])
        offsets = self.rng.integers(limit, size=config.directions)
        seeds = self.rng.integers(SEED_BOUND, size=config.directions)
        weights = self.weights()
        with self.metrics.span("sample"):
            found = self._evaluators.evaluate(weights, offsets, config.sigma, seeds)
            centre = self.workers.evaluate(weights, config.centre_episodes, int(self.rng.integers(SEED_BOUND)))
        self.metrics.count(int(found.lengths.sum()) + sum(episode.length for episode in centre), centre)
        self.workers.restarted = self._evaluators.restarted
        with self.learning():
            self._see(found)
            moved = self.step(found.rewards, offsets)
        self.version += 1
        return {
            "perturbed_reward_mean": found.rewards.mean(),
            "perturbed_reward_max": found.rewards.max(),
            "step_norm": float(np.linalg.norm(moved)),
            "weight_norm": float(np.linalg.norm(self.learner["vector"])),
        }

    def step(self, rewards: NDArray[np.float64], offsets: NDArray[np.int64]) -> NDArray[Any]:
        """Move the weights; by how much."""
        ranks = centred_ranks(rewards)
        weights = (ranks[:, 0] - ranks[:, 1]) / (2 * len(offsets) * self.config.sigma)
        gradient: NDArray[Any] = self._evaluators.combine(offsets, weights)
        gradient = gradient - self.config.weight_decay * np.asarray(self.learner["vector"])
        moved = self._adam(gradient)
        self.learner = {**self.learner, "vector": np.asarray(self.learner["vector"]) + moved}
        return moved

    def _adam(self, gradient: NDArray[Any]) -> NDArray[Any]:
        steps = int(self.learner["steps"]) + 1
        first = 0.9 * np.asarray(self.learner["first"]) + 0.1 * gradient
        second = 0.999 * np.asarray(self.learner["second"]) + 0.001 * gradient**2
        self.learner = {**self.learner, "first": first, "second": second, "steps": np.asarray(steps)}
        corrected = first / (1 - 0.9**steps), second / (1 - 0.999**steps)
        return (self.config.learning_rate * corrected[0] / (np.sqrt(corrected[1]) + 1e-8)).astype(np.float32)

    def _see(self, found: Evaluations) -> None:
        learner, sums = self.learner, found.sums
        self.learner = {
            **learner,
            "seen": np.asarray(learner["seen"]) + sums.count,
            "sum": np.asarray(learner["sum"]) + sums.sum,
            "squares": np.asarray(learner["squares"]) + sums.squares,
        }


class ARS(ES):
    """Augmented random search."""

    name = "ARS"
    config_class = ARSConfig

    def step(self, rewards: NDArray[np.float64], offsets: NDArray[np.int64]) -> NDArray[Any]:
        assert isinstance(self.config, ARSConfig)
        best = np.argsort(-rewards.max(axis=1))[: self.config.best]
        spread = rewards[best].std() + 1e-8
        weights = (rewards[best, 0] - rewards[best, 1]) / (len(best) * spread)
        moved = np.float32(self.config.learning_rate) * self._evaluators.combine(offsets[best], weights)
        kept = np.asarray(self.learner["vector"]) * np.float32(1 - self.config.weight_decay)
        self.learner = {**self.learner, "vector": kept + moved}
        return moved


def centred_ranks(rewards: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each reward's rank among all, from -0.5 to 0.5; equal rewards share theirs."""
    _, inverse, counts = np.unique(rewards.ravel(), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    middle = last - (counts + 1) / 2
    return (middle[inverse] / max(1, rewards.size - 1) - 0.5).reshape(rewards.shape)
