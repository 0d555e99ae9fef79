"""A rollout worker: steps environments with a policy and gives back fragments of experience.

Runs in a worker process as an actor, or in the driver when there are no workers. It imports NumPy and Gymnasium, and no
deep-learning framework. The weights come as one read-only vector that lies in the arena; a fragment's arrays go back
out of band.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import os
import resource
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.rl import environments
from weft.rl.behaviours import Behaviour
from weft.rl.networks import WeightLayout
from weft.rl.offline import RecordedEpisode
from weft.rl.stepping import EnvironmentFailed, Environments, Episode, open_environments
from weft.rl.turns import TurnColumns
from weft.rl.watchdog import time_limit


@dataclasses.dataclass(frozen=True)
class Blueprint:
    """What every rollout worker of an algorithm is made from."""

    env: Any
    env_config: Mapping[str, Any]
    envs: int
    steps: int
    seed: int
    behaviour: Behaviour
    layout: WeightLayout
    episode_limit: int | None = None
    reward_scale: float = 1.0
    reward_clip: float | None = None
    timeout_s: float = 300.0
    check_bounds: bool = True
    restarts: bool = False  # environments that raise are made anew


@dataclasses.dataclass
class Fragment:
    """Steps of all environments of one worker: arrays [steps, environments, ...] and the episodes that ended.

    observations [steps + 1, ...]: the last row is what the next fragment begins with.
    bootstrap: where an episode was truncated the value of its last observation, else 0 (on-policy behaviours).
    next_observations: each step's true successor (replay behaviours).
    """

    arrays: dict[str, NDArray[Any]]
    episodes: list[Episode]
    version: int
    worker: int
    failures: list[str] = dataclasses.field(default_factory=list)  # why environments were made anew

    @property
    def steps(self) -> int:
        return int(self.arrays["valid"].sum())

    def __getstate__(self) -> tuple[Any, ...]:
        """Episodes travel as plain tuples: as objects, a hundred of them take longer to pickle than all the arrays."""
        return self.arrays, [tuple(episode) for episode in self.episodes], self.version, self.worker, self.failures

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.arrays, episodes, self.version, self.worker, self.failures = state
        self.episodes = [Episode(*episode) for episode in episodes]


class RolloutWorker:
    """Owns some environments and a copy of the behaviour."""

    def __init__(self, blueprint: Blueprint, index: int, incarnation: int = 0) -> None:
        self._blueprint = blueprint
        self._index = index
        self._rng = np.random.default_rng([blueprint.seed, index, incarnation])
        self._label = f"{environments.describe(blueprint.env)} in worker {index}"
        with time_limit(blueprint.timeout_s, lambda: EnvironmentFailed(f"{self._label} hangs while it is made")):
            self._environments = open_environments(
                lambda: environments.make(blueprint.env, blueprint.env_config, blueprint.episode_limit, blueprint.envs),
                blueprint.envs,
                self._rng,
                self._label,
                blueprint.restarts,
                blueprint.check_bounds,
            )
        self._observations: NDArray[Any] | None = None
        self._fragments = 0

    def sample(
        self, weights: NDArray[np.float32], version: int = 0, exploration: float = 0.0, steps: int | None = None
    ) -> Fragment:
        """The next fragment, made with these weights."""
        blueprint = self._blueprint
        params = blueprint.layout.unpack(weights)
        with time_limit(blueprint.timeout_s, self._hung):
            if self._observations is None:
                self._observations = self._environments.reset()
            if isinstance(self._environments, TurnColumns):
                count = steps or blueprint.steps
                arrays = self._environments.collect(blueprint.behaviour, params, self._rng, count, exploration)
            else:
                arrays = self._collect(params, exploration, steps or blueprint.steps)
        self._check(arrays)
        rewards = shaped(arrays["rewards"], blueprint.reward_scale, blueprint.reward_clip)
        self._refuse(~np.isfinite(rewards), arrays["rewards"], "reward is too large for float32")
        arrays["rewards"] = rewards
        episodes, self._environments.episodes = self._environments.episodes, []
        failures, self._environments.failures = self._environments.failures, []
        self._fragments += 1
        return Fragment(arrays, episodes, version, self._index, failures)

    def evaluate(self, weights: NDArray[np.float32], episodes: int, seed: int) -> list[Episode]:
        """Whole episodes without exploration, in environments of their own."""
        params = self._blueprint.layout.unpack(weights)
        with self._trial(episodes, np.random.default_rng(seed), "evaluating") as (trial, behaviour):
            if isinstance(trial, TurnColumns):
                return trial.play(behaviour, params, episodes)
            observations = trial.reset()
            while len(trial.episodes) < episodes:
                step = trial.step(behaviour.best(params, observations))
                behaviour.ended([*step.finals, *np.flatnonzero(~step.valid).tolist()])
                observations = step.observations
        for episode in trial.episodes:
            if not np.isfinite(episode.reward):
                raise EnvironmentFailed(f"{self._label}, evaluating: the reward of an episode is {episode.reward}")
        return trial.episodes[:episodes]

    def record(
        self, weights: NDArray[np.float32], episodes: int, seed: int, exploration: float | None
    ) -> list[RecordedEpisode]:
        """Whole episodes, in environments of their own; None explores not at all."""
        params, rng = self._blueprint.layout.unpack(weights), np.random.default_rng(seed)
        recorded: list[RecordedEpisode] = []
        with self._trial(episodes, rng, "recording") as (trial, behaviour):

            def choose(observations: NDArray[Any]) -> NDArray[Any]:
                behaviour.begin(rng, 1, trial.count, exploration or 0.0)
                if exploration is None:
                    return behaviour.best(params, observations)
                return behaviour.act(params, observations, 0)

            if isinstance(trial, TurnColumns):
                return trial.record(behaviour, choose, episodes)
            running: list[list[tuple[Any, Any, float]]] = [[] for _ in range(trial.count)]
            observations = trial.reset()
            while len(recorded) < episodes:
                chosen = choose(observations)
                step = trial.step(chosen)
                chosen = chosen if step.taken is None else step.taken
                for index in np.flatnonzero(step.valid).tolist():
                    running[index].append((observations[index], chosen[index], float(step.rewards[index])))
                for index in step.lost:
                    running[index] = []
                for index, final in step.finals.items():
                    recorded.append(_recorded(running[index], final, bool(step.terminated[index])))
                    running[index] = []
                behaviour.ended([*step.finals, *np.flatnonzero(~step.valid).tolist()])
                observations = step.observations
        return recorded[:episodes]

    @contextlib.contextmanager
    def _trial(self, episodes: int, rng: np.random.Generator, doing: str) -> Iterator[tuple[Environments, Behaviour]]:
        """Environments and a behaviour of their own, for whole episodes within the time limit."""
        blueprint, count = self._blueprint, min(self._blueprint.envs, episodes)
        behaviour = copy.deepcopy(blueprint.behaviour)
        behaviour.begin(rng, 1, 0, 0.0)  # a memory of other episodes is none of these
        trial = open_environments(
            lambda: environments.make(blueprint.env, blueprint.env_config, blueprint.episode_limit, count),
            count,
            rng,
            f"{self._label}, {doing}",
            blueprint.restarts,
        )
        try:
            with time_limit(blueprint.timeout_s, lambda: EnvironmentFailed(f"{trial.where()} hangs")):
                yield trial, behaviour
        finally:
            trial.close()

    def state(self) -> dict[str, Any]:
        """What the next fragment depends on: the generator's state and the running episodes."""
        episodes = self._environments.state() if self._observations is not None else None
        memory = getattr(self._blueprint.behaviour, "state", None)
        if episodes is not None and memory is not None:
            episodes["memory"] = memory
        return {"rng": self._rng.bit_generator.state, "fragments": self._fragments, "environments": episodes}

    def restore(self, saved: Mapping[str, Any]) -> None:
        if saved["environments"] is not None:
            self._observations = self._environments.restore(saved["environments"])
            if "memory" in saved["environments"]:
                self._blueprint.behaviour.state = saved["environments"]["memory"].copy()  # type: ignore[attr-defined]
        self._fragments = saved["fragments"]
        self._rng.bit_generator.state = saved["rng"]

    def statistics(self) -> dict[str, Any]:
        """What the process is and holds."""
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return {
            "pid": os.getpid(),
            "memory_bytes": pages * resource.getpagesize(),
            "fragments": self._fragments,
            "frameworks": sorted({"jax", "tensorflow", "torch"} & set(sys.modules)),
        }

    def close(self) -> None:
        self._environments.close()

    def _collect(self, params: Mapping[str, Any], exploration: float, steps: int) -> dict[str, NDArray[Any]]:
        envs, behaviour = self._environments, self._blueprint.behaviour
        count, encoder, decoder = envs.count, envs.encoder, envs.decoder
        arrays: dict[str, NDArray[Any]] = {
            "observations": np.empty((steps + 1, count, *encoder.shape), encoder.dtype),
            "actions": np.empty((steps, count, *decoder.shape), decoder.dtype),
            "rewards": np.empty((steps, count), np.float64),
            "terminated": np.zeros((steps, count), np.bool_),
            "truncated": np.zeros((steps, count), np.bool_),
            "valid": np.ones((steps, count), np.bool_),
        }
        if not behaviour.keeps_next_observations:
            arrays["bootstrap"] = np.zeros((steps, count), np.float32)
        started = behaviour.begin(self._rng, steps, count, exploration)
        finals: dict[tuple[int, int], NDArray[Any]] = {}
        observations = self._observations
        assert observations is not None
        all_observations, all_actions, all_rewards = arrays["observations"], arrays["actions"], arrays["rewards"]
        for time in range(steps):
            actions = behaviour.act(params, observations, time)
            step = envs.step(actions)
            all_observations[time] = observations
            all_actions[time] = actions if step.taken is None else self._taken(step.taken)
            all_rewards[time] = step.rewards
            if step.lost:
                self._cut_lost(arrays, finals, params, observations, time, step.lost)
            observations = step.observations
            if step.all_valid and not step.finals:
                continue
            arrays["terminated"][time] = step.terminated
            arrays["truncated"][time] |= step.truncated
            for index, final in step.finals.items():
                finals[time, index] = final
                if step.truncated[index] and "bootstrap" in arrays:
                    arrays["bootstrap"][time, index] = behaviour.value(params, final, index) or 0.0
            if step.all_valid:
                behaviour.ended([*step.finals])
            else:
                arrays["valid"][time] = step.valid
                behaviour.ended([*step.finals, *np.flatnonzero(~step.valid).tolist()])
        arrays["observations"][steps] = observations
        self._observations = observations
        if behaviour.keeps_next_observations:
            arrays["next_observations"] = arrays["observations"][1:].copy()
            for place, final in finals.items():
                arrays["next_observations"][place] = final
        return {**arrays, **started, **behaviour.recorded()}

    def _cut_lost(
        self,
        arrays: dict[str, NDArray[Any]],
        finals: dict[tuple[int, int], NDArray[Any]],
        params: Mapping[str, Any],
        observations: NDArray[Any],
        time: int,
        lost: tuple[int, ...],
    ) -> None:
        """Cut off the episodes of environments that raised in this step, which is none: after the step before it.

        In a fragment's first step that one has left already, so this one is cut off in its place.
        """
        behaviour = self._blueprint.behaviour
        behaviour.unsee(list(lost))
        for index in lost:
            row = max(time - 1, 0)
            if time and (arrays["terminated"][row, index] or arrays["truncated"][row, index]):
                continue
            arrays["truncated"][row, index] = True
            finals[row, index] = observations[index].copy()
            if "bootstrap" in arrays:
                arrays["bootstrap"][row, index] = behaviour.value(params, observations[index], index) or 0.0

    def _taken(self, taken: NDArray[Any]) -> NDArray[Any]:
        """What was done and not chosen here; whoever learns only from its own actions refuses it."""
        if not self._blueprint.behaviour.keeps_next_observations:
            raise EnvironmentFailed(
                f"{self._environments.where()}: it acted on its own (log_action), and this algorithm learns from its "
                "own actions alone; use one with replay, such as DQN, TD3 or SAC"
            )
        return taken

    def _check(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Nothing that is not a number, or far outside its space, leaves the worker."""
        self._refuse(~np.isfinite(arrays["rewards"]), arrays["rewards"], "reward is not finite")
        observations = arrays["observations"]
        if observations.dtype == np.uint8:
            return
        for name, which in (("observations", "observation"), ("next_observations", "observation after it")):
            if name not in arrays:
                continue
            finite = np.isfinite(arrays[name])
            if not finite.all():
                wrong = ~finite.all(axis=tuple(range(2, finite.ndim)))
                self._refuse(wrong, arrays[name], f"{which} is not finite")
        if "bootstrap" in arrays:
            values = arrays["bootstrap"]
            self._refuse(~np.isfinite(values), values, "value of its episode's last observation is not finite")
        if self._blueprint.check_bounds:
            outside = self._environments.encoder.out_of_bounds(observations)
            self._refuse(outside, observations, f"observation lies outside {self._environments.encoder.space}")

    def _refuse(self, wrong: NDArray[np.bool_], values: NDArray[Any], what: str) -> None:
        if wrong.any():
            time, index = np.argwhere(wrong)[0].tolist()
            step = self._fragments * self._blueprint.steps + time
            raise EnvironmentFailed(
                f"environment {index} of {self._label}: at its step {step} the {what}: {values[time, index]}"
            )

    def _hung(self) -> EnvironmentFailed:
        return EnvironmentFailed(
            f"{self._environments.where()} did not come back: the fragment took longer than "
            f"sample_timeout_s={self._blueprint.timeout_s:g}"
        )


def shaped(rewards: NDArray[Any], scale: float, clip: float | None) -> NDArray[np.float32]:
    """Rewards as they are learnt from."""
    with np.errstate(over="ignore"):
        scaled = rewards * scale
        return np.asarray(scaled if clip is None else np.clip(scaled, -clip, clip), np.float32)


def _recorded(steps: list[tuple[Any, Any, float]], final: NDArray[Any], terminated: bool) -> RecordedEpisode:
    observations, actions, rewards = zip(*steps, strict=True)
    return RecordedEpisode(np.stack([*observations, final]), np.stack(actions), np.asarray(rewards), terminated)
