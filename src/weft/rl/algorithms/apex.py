"""Ape-X, distributed prioritized replay, over DQN and DDPG: https://arxiv.org/abs/1803.00933.

Workers explore each in its own measure, put the first priorities on what they see themselves, and send it straight to
the replay shards, actors that hold a part of the memory each. The learner keeps a request at every shard, learns from
whichever answers first, and sends the new priorities back to it. Nobody waits for anybody, with two exceptions: a
worker that is ahead of its shard waits for it, and workers pause when the learner falls behind `updates_per_step`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

import jax
import numpy as np
from numpy.typing import NDArray

import weft
from weft.exceptions import ActorError
from weft.library.settings import SettingError, setting
from weft.rl.algorithms.ddpg import DDPG, DDPGConfig
from weft.rl.algorithms.dqn import DQN, DQNConfig
from weft.rl.off_policy import OffPolicy, OffPolicyConfig
from weft.rl.replay_shard import ReplayShard, ShardedWorker
from weft.rl.workers import WORKER_ENVIRONMENT, RolloutWorkers

FRAGMENTS_AHEAD = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class ApexDQNConfig(DQNConfig):
    """The settings of Ape-X DQN."""

    workers: int = setting(3, "rollout worker processes", at_least=1)
    shards: int = setting(2, "actors that hold the memory", at_least=1)
    prioritized: bool = setting(True, "draw transitions of large error more often", one_of=(True,))
    final_priority_beta: float = setting(0.4, "how much they do later; 1 corrects wholly", at_least=0, at_most=1)
    learning_rate: float = setting(1e-3, "of the optimiser", above=0)
    hidden: tuple[int, ...] = setting((128, 128), "units of the hidden layers", at_least=1)
    target_interval: int = setting(100, "gradient steps between copies to the target network", at_least=1)
    dueling: bool = setting(True, "a value and advantages instead of Q values")
    updates_per_round: int = setting(16, "gradient steps on one answer of a shard", at_least=1)
    rounds_per_iteration: int = setting(16, "answers of shards learnt from in one train()", at_least=1)
    most_exploration: float = setting(0.4, "chance of a random action of the boldest worker", above=0, at_most=1)
    ladder: float = setting(7.0, "the shyest worker explores with most_exploration to this power plus 1", at_least=0)
    checkpoint_replay: bool = setting(False, "checkpoints do not hold the memory, which lies in other processes")

    def check(self) -> None:
        super().check()
        refuse_unused(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ApexDDPGConfig(DDPGConfig):
    """The settings of Ape-X DDPG."""

    workers: int = setting(3, "rollout worker processes", at_least=1)
    shards: int = setting(2, "actors that hold the memory", at_least=1)
    prioritized: bool = setting(True, "draw transitions of large error more often", one_of=(True,))
    final_priority_beta: float = setting(0.4, "how much they do later; 1 corrects wholly", at_least=0, at_most=1)
    n_steps: int = setting(3, "rewards summed before a value is used", at_least=1)
    updates_per_round: int = setting(16, "gradient steps on one answer of a shard", at_least=1)
    rounds_per_iteration: int = setting(16, "answers of shards learnt from in one train()", at_least=1)
    checkpoint_replay: bool = setting(False, "checkpoints do not hold the memory, which lies in other processes")

    def check(self) -> None:
        super().check()
        refuse_unused(self)


def refuse_unused(config: OffPolicyConfig) -> None:
    """Raise SettingError where something is set of which Ape-X makes no use."""
    name = type(config).__name__
    if config.episodes is not None:
        raise SettingError(
            f"{name}: episodes must be None, but is {config.episodes!r}: Ape-X learns from what its workers play; use "
            "DQN, DDPG, TD3 or SAC to learn from recorded episodes"
        )
    if config.checkpoint_replay:
        raise SettingError(
            f"{name}: checkpoint_replay must be False: the memory lies in other processes and is in no checkpoint; use "
            "DQN, DDPG or TD3 for runs that go on exactly"
        )


ConfigT = TypeVar("ConfigT", bound=OffPolicyConfig)


class Apex(OffPolicy[ConfigT]):
    """What both have in common. Their memory lies in other processes and is not part of checkpoints.

    The last worker explores least; the rewards reported are those of its episodes.
    """

    def start_workers(self) -> RolloutWorkers:
        config: Any = self.config
        capacity = max(1, config.replay_capacity // config.shards)
        shard_class: Any = weft.remote(ReplayShard)
        options = shard_class.options(num_cpus=0, max_restarts=-1, runtime_env=WORKER_ENVIRONMENT)
        self._shards = [
            options.remote(capacity, config.priority_alpha, self.seed + index) for index in range(config.shards)
        ]
        self._drawing: dict[Any, int] = {}
        self._shared: Any = None
        return RolloutWorkers(
            self.blueprint(),
            config.workers,
            config.cpus_per_worker,
            config.on_environment_error,
            worker_class=ShardedWorker,
            arguments=(self._shards, config.n_steps, config.gamma),
        )

    def exploration_of(self, worker: int) -> float:
        """How much one of the workers explores: the last one least."""
        raise NotImplementedError

    def iterate(self) -> Mapping[str, Any]:
        config: Any = self.config
        said: Mapping[str, Any] = {}
        learnt, lag = 0, 0
        while learnt < config.rounds_per_iteration:
            self._receive(wait=self.metrics.timesteps < config.learning_starts)
            if self.metrics.timesteps < config.learning_starts:
                continue
            drawn = self._next_batches()
            if drawn is None:
                continue
            shard, life, places, batches = drawn
            with self.learning():
                said, errors = self.learn_from(batches)
                self._shards[shard].set_priorities.remote(life, places, np.asarray(errors))
            learnt += 1
            self._updates += config.updates_per_round
            self.version += 1
            self._shared = None
            lag += self.workers.asked
        return {**jax.device_get(said), "updates": self._updates, "fragments_in_flight": lag / learnt}

    def stop(self) -> None:
        super().stop()
        for shard in self._shards:
            weft.kill(shard)
        self._shards, self._drawing = [], {}

    def extra_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {"updates": self._updates}, {}

    def restore_extra(self, plain: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        self._updates = plain["updates"]

    def _receive(self, wait: bool) -> None:
        """Count what workers have done, and ask those for more that are not too far ahead of the learner."""
        self._ask()
        with self.metrics.span("sample"):
            for _, fragment in self.workers.arrivals(None if wait else 0.0):
                if fragment is not None:
                    shyest = fragment.worker == self.workers.count - 1
                    self.metrics.count(fragment.steps, fragment.episodes if shyest else ())
        self._ask()

    def _ask(self) -> None:
        config = self.config
        allowed = 2 * config.learning_starts + self._updates / config.updates_per_step
        for index in range(self.workers.count):
            while self.workers.asked_of(index) < FRAGMENTS_AHEAD and self.metrics.timesteps < allowed:
                if self._shared is None:
                    self._shared = self.workers.share(self.weights())
                self.workers.request(index, self._shared, self.version, self.exploration_of(index))

    def _next_batches(self) -> tuple[int, int, NDArray[np.int64], dict[str, NDArray[Any]]] | None:
        """A shard, and what it has drawn: the first to answer; None if it has too little or was just restarted."""
        config: Any = self.config
        beta = config.priority_beta_after(self._updates)
        for index in set(range(len(self._shards))) - set(self._drawing.values()):
            ref = self._shards[index].draw.remote((config.updates_per_round, config.batch), beta)
            self._drawing[ref] = index
        ready, _ = weft.wait(list(self._drawing), num_returns=1)
        shard = self._drawing.pop(ready[0])
        try:
            drawn = weft.get(ready[0])
        except ActorError:
            return None
        return None if drawn is None else (shard, *drawn)


class ApexDQN(Apex[ApexDQNConfig], DQN):
    """Ape-X over deep Q-learning."""

    name = "ApexDQN"
    config_class = ApexDQNConfig

    def exploration(self) -> float:
        return self.exploration_of(0)

    def exploration_of(self, worker: int) -> float:
        config = self.config
        if self.metrics.timesteps < config.learning_starts:
            return 1.0
        shyness = worker / (config.workers - 1) if config.workers > 1 else 1.0
        return float(config.most_exploration ** (1 + config.ladder * shyness))


class ApexDDPG(Apex[ApexDDPGConfig], DDPG):
    """Ape-X over deep deterministic policy gradients. Workers need the critic too, for the first priorities."""

    name = "ApexDDPG"
    config_class = ApexDDPGConfig

    def acting_params(self) -> Mapping[str, Any]:
        return {**self.learner["policy"], **self.learner["critic"]}

    def exploration_of(self, worker: int) -> float:
        if self.metrics.timesteps < self.config.random_timesteps:
            return -1.0
        return self.config.noise * 2.0 ** (self.config.workers - 1 - worker)
