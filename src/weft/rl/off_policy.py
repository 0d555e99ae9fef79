"""What the algorithms that learn from replay share: collect, remember, draw batches, save the memory.

An iteration is some rounds; a round samples a fragment of every environment, then takes its gradient steps in one
compiled function that scans over all of the round's batches. Priorities are set after the round, so within a round they
are as old as the round.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import jax
import numpy as np
from numpy.typing import NDArray

from weft.library.settings import SettingError, setting
from weft.rl.algorithm import Algorithm
from weft.rl.config import OLD_NAMES, AlgorithmConfig
from weft.rl.offline import read_episodes, transitions
from weft.rl.replay import NStep, PrioritizedReplay, Replay
from weft.rl.rollout import shaped


@dataclasses.dataclass(frozen=True, kw_only=True)
class OffPolicyConfig(AlgorithmConfig):
    """The settings common to algorithms with replay."""

    old_names: ClassVar[Mapping[str, str]] = {
        **OLD_NAMES,
        "buffer_size": "replay_capacity",
        "train_batch_size": "batch",
        "batch_size": "batch",
        "n_step": "n_steps",
        "prioritized_replay": "prioritized",
        "prioritized_replay_alpha": "priority_alpha",
        "prioritized_replay_beta": "priority_beta",
        "final_prioritized_replay_beta": "final_priority_beta",
    }

    envs_per_worker: int = setting(1, "environments that a worker steps together", at_least=1)
    fragment_steps: int = setting(64, "steps of each environment between gradient steps", at_least=1)
    rounds_per_iteration: int = setting(8, "rounds of sampling and learning in one train()", at_least=1)
    updates_per_step: float = setting(1.0, "gradient steps for each step of an environment", above=0)
    batch: int = setting(64, "transitions in a gradient step", at_least=1)
    replay_capacity: int = setting(100_000, "transitions remembered", at_least=1)
    learning_starts: int = setting(1000, "transitions before the first gradient step", at_least=1)
    n_steps: int = setting(1, "rewards summed before a value is used", at_least=1)
    prioritized: bool = setting(False, "draw transitions of large error more often")
    priority_alpha: float = setting(0.6, "how much priorities matter", at_least=0, at_most=1)
    priority_beta: float = setting(0.4, "how much the weights correct for them at first", at_least=0, at_most=1)
    final_priority_beta: float = setting(1.0, "how much they do later; 1 corrects wholly", at_least=0, at_most=1)
    priority_beta_updates: int = setting(50_000, "gradient steps until then", at_least=1)
    episodes: str | None = setting(
        None, "learn from the recorded episodes of this folder and step no environment; see weft.rl.offline"
    )
    checkpoint_replay: bool = setting(True, "checkpoints hold the memory, which exact resuming needs")

    def check(self) -> None:
        if self.episodes is None and self.learning_starts > self.replay_capacity:
            raise SettingError(
                f"{type(self).__name__}: learning_starts is {self.learning_starts}, but the memory holds only "
                f"{self.replay_capacity}"
            )

    @property
    def updates_in_round(self) -> int:
        """Gradient steps after each fragment."""
        steps = self.fragment_steps * self.envs_per_worker * max(self.workers, 1)
        return max(1, round(steps * self.updates_per_step))

    def priority_beta_after(self, updates: int) -> float:
        """How much the weights correct for priorities after so many gradient steps."""
        progress = min(1.0, updates / self.priority_beta_updates)
        return self.priority_beta + progress * (self.final_priority_beta - self.priority_beta)


ConfigT = TypeVar("ConfigT", bound=OffPolicyConfig)


class OffPolicy(Algorithm[ConfigT]):
    """An algorithm that learns from replay. Subclasses build a learner and say how it learns from batches."""

    def build(self) -> None:
        config = self.config
        self.replay: Replay = (
            PrioritizedReplay(config.replay_capacity, config.priority_alpha)
            if config.prioritized
            else Replay(config.replay_capacity)
        )
        self._n_step = [NStep(config.n_steps, config.gamma) for _ in range(max(config.workers, 1))]
        self._restarted = 0
        self._updates = 0  # gradient steps so far
        if config.episodes is not None:
            self.replay = self._recorded(config.episodes)
        self.build_learner()

    @abc.abstractmethod
    def build_learner(self) -> None:
        """Set `self.behaviour` and `self.learner`."""

    @abc.abstractmethod
    def exploration(self) -> float:
        """How much the behaviour explores now."""

    @abc.abstractmethod
    def learn_from(self, batches: Mapping[str, NDArray[Any]]) -> tuple[Mapping[str, Any], Any]:
        """Gradient steps on batches [updates, batch, ...]: what to report, and each transition's error."""

    def iterate(self) -> Mapping[str, Any]:
        config = self.config
        said: Mapping[str, Any] = {}
        for _ in range(config.rounds_per_iteration):
            if config.episodes is None:
                self._collect()
                if len(self.replay) < config.learning_starts:
                    continue
            with self.learning():
                shape = (config.updates_in_round, config.batch)
                places, batches = self.replay.sample(self.rng, shape, config.priority_beta_after(self._updates))
                said, errors = self.learn_from(batches)
                if config.prioritized:
                    self.replay.set_priorities(places, np.asarray(errors))
            self.version += 1
            self._updates += config.updates_in_round
        return {**jax.device_get(said), "replay_size": len(self.replay), "exploration": self.exploration()}

    def _collect(self) -> None:
        fragments = self.sample(self.exploration())
        if self.workers.restarted != self._restarted:  # rows that wait for a successor have lost it
            self._restarted = self.workers.restarted
            for n_step in self._n_step:
                n_step.waiting = {}
        for fragment in fragments:
            self.replay.add(self._n_step[fragment.worker].transitions(fragment.arrays))

    def _recorded(self, folder: str) -> Replay:
        """A memory that holds all recorded episodes."""
        config = self.config
        known = transitions(read_episodes(folder, self.encoder, self.decoder), config.n_steps, config.gamma)
        known["rewards"] = shaped(known["rewards"], config.reward_scale, config.reward_clip)
        count = len(known["rewards"])
        memory: Replay = Replay(count)
        if config.prioritized:
            memory = PrioritizedReplay(count, config.priority_alpha)
        memory.add(known)
        return memory

    def extra_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        learnt = {"updates": self._updates}
        if not self.config.checkpoint_replay or self.config.episodes is not None:
            return learnt, {}
        plain, arrays = self.replay.state()
        waiting = {
            f"waiting.{index}.{name}": array
            for index, n_step in enumerate(self._n_step)
            for name, array in n_step.waiting.items()
        }
        return {**learnt, "replay": plain}, {**{f"replay.{name}": array for name, array in arrays.items()}, **waiting}

    def restore_extra(self, plain: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        self._updates = plain.get("updates", 0)
        if "replay" not in plain:
            return
        stored = {name.removeprefix("replay."): array for name, array in arrays.items() if name.startswith("replay.")}
        self.replay.restore(plain["replay"], stored)
        for index, n_step in enumerate(self._n_step):
            prefix = f"waiting.{index}."
            n_step.waiting = {
                name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)
            }
