"""What `train()` reports. The names are stable: Tune's stop rules and people's plots stand on them."""

from __future__ import annotations

import collections
import math
import time
from collections.abc import Iterable, Mapping
from typing import Any

from weft.rl.stepping import Episode


class Metrics:
    """Counts steps and episodes over a run and makes one result an iteration.

    episode_reward_mean, _min, _max, episode_len_mean: over the last `window` finished episodes, NaN before the first
    episodes_this_iter, episodes_total, timesteps_this_iter, timesteps_total, training_iteration
    time_this_iter_s, time_total_s, sample_time_s, learn_time_s (of this iteration)
    agent_reward_mean: the mean of each agent, where there are several
    workers_restarted, environments_restarted, learner: what the algorithm's update says of itself
    """

    def __init__(self, window: int) -> None:
        self._recent: collections.deque[Episode] = collections.deque(maxlen=window)
        self.iteration = 0
        self.timesteps = 0
        self.episodes = 0
        self.seconds = 0.0
        self._steps_before = 0
        self._episodes_before = 0
        self._spans: dict[str, float] = {}
        self._started = time.perf_counter()

    def begin(self) -> None:
        self._started = time.perf_counter()
        self._spans = {"sample": 0.0, "learn": 0.0}
        self._steps_before, self._episodes_before = self.timesteps, self.episodes

    def count(self, steps: int, episodes: Iterable[Episode]) -> None:
        self.timesteps += steps
        for episode in episodes:
            self.episodes += 1
            self._recent.append(episode)

    def span(self, name: str) -> _Span:
        """A context manager that adds its duration to `<name>_time_s`."""
        return _Span(self._spans, name)

    def result(
        self, learner: Mapping[str, Any], workers_restarted: int, environments_restarted: int = 0
    ) -> dict[str, Any]:
        self.iteration += 1
        elapsed = time.perf_counter() - self._started
        self.seconds += elapsed
        return {
            **summary(self._recent),
            **self._of_agents(),
            "episodes_this_iter": self.episodes - self._episodes_before,
            "episodes_total": self.episodes,
            "timesteps_this_iter": self.timesteps - self._steps_before,
            "timesteps_total": self.timesteps,
            "training_iteration": self.iteration,
            "time_this_iter_s": elapsed,
            "time_total_s": self.seconds,
            "sample_time_s": self._spans.get("sample", 0.0),
            "learn_time_s": self._spans.get("learn", 0.0),
            "workers_restarted": workers_restarted,
            "environments_restarted": environments_restarted,
            "learner": dict(learner),
        }

    def _of_agents(self) -> dict[str, Any]:
        rewards: dict[str, list[float]] = {}
        for episode in self._recent:
            if episode.agent:
                rewards.setdefault(episode.agent, []).append(episode.reward)
        means = {agent: sum(earned) / len(earned) for agent, earned in sorted(rewards.items())}
        return {"agent_reward_mean": means} if means else {}

    def state(self) -> dict[str, Any]:
        return {
            "iteration": self.iteration,
            "timesteps": self.timesteps,
            "episodes": self.episodes,
            "seconds": self.seconds,
            "recent": [[episode.reward, episode.length, episode.agent] for episode in self._recent],
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        self.iteration, self.timesteps = saved["iteration"], saved["timesteps"]
        self.episodes, self.seconds = saved["episodes"], saved["seconds"]
        self._recent.clear()
        self._recent.extend(Episode(reward, length, agent) for reward, length, agent in saved["recent"])


class _Span:
    def __init__(self, spans: dict[str, float], name: str) -> None:
        self._spans, self._name = spans, name

    def __enter__(self) -> None:
        self._started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._spans[self._name] = self._spans.get(self._name, 0.0) + time.perf_counter() - self._started


def summary(episodes: Iterable[Episode]) -> dict[str, float]:
    """Mean, least and most reward and mean length; NaN where there are no episodes."""
    rewards = [episode.reward for episode in episodes]
    lengths = [episode.length for episode in episodes]
    if not rewards:
        nothing = math.nan
        return dict.fromkeys(
            ("episode_reward_mean", "episode_reward_min", "episode_reward_max", "episode_len_mean"), nothing
        )
    return {
        "episode_reward_mean": sum(rewards) / len(rewards),
        "episode_reward_min": min(rewards),
        "episode_reward_max": max(rewards),
        "episode_len_mean": sum(lengths) / len(lengths),
    }
