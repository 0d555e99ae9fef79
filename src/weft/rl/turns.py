"""Environments in which agents act in turn (PettingZoo's AEC API), as columns in which only an agent's own turns count.

What an agent did is complete when its next turn comes, or its end: only then is its reward known. So a column holds an
agent's complete steps one after the other, whoever acted between them; the rest of its rows are not `valid`. A column's
last step, unless an episode ended with it, is marked as truncated, with the value of what the agent saw next, so that
whatever learns from it sees an ordinary fragment. A step that is open when a fragment ends would be completed in the
next, but was chosen by older weights: it is left out.

The order of turns is the environment's: games for two, and hierarchies in which one agent acts far more often.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from weft.rl.behaviours import Behaviour
from weft.rl.multi_agent import AgentSpaces
from weft.rl.networks import Params
from weft.rl.stepping import SEED_BOUND, EnvironmentFailed, Episode, Step


def is_turn_based(env: Any) -> bool:
    return hasattr(env, "agent_iter")


@dataclasses.dataclass
class _Turn:
    """One step of an agent; `reward` is None while it is open."""

    tick: int
    observation: NDArray[Any]
    action: NDArray[Any]
    reward: float | None = None
    terminated: bool = False
    truncated: bool = False
    after: NDArray[Any] | None = None


class TurnColumns:
    """Copies of a turn-based environment. `collect` takes the place of stepping, since agents act one by one."""

    def __init__(self, envs: Sequence[Any], rng: np.random.Generator, label: str) -> None:
        self._envs = list(envs)
        self._rng = rng
        self._label = label
        self._spaces = AgentSpaces(envs[0])
        self.agents = self._spaces.agents
        self.encoder, self.decoder = self._spaces.encoder, self._spaces.decoder
        self.count = len(self._envs) * len(self.agents)
        self.episodes: list[Episode] = []
        self._observations = np.zeros((self.count, *self.encoder.shape), self.encoder.dtype)
        self._turns: list[list[_Turn]] = [[] for _ in range(self.count)]
        self._acting = [0] * len(self._envs)  # the column whose turn it is
        self._rewards = np.zeros(self.count)
        self._lengths = np.zeros(self.count, np.int64)
        self._doing = ("reset", 0)

    def reset(self) -> NDArray[Any]:
        self._turns = [[] for _ in range(self.count)]
        for copy in range(len(self._envs)):
            self._begin_episode(copy)
            self._advance(copy)
        return self._observations.copy()

    def collect(
        self, behaviour: Behaviour, params: Params, rng: np.random.Generator, steps: int, exploration: float
    ) -> dict[str, NDArray[Any]]:
        """A fragment: each copy goes on until one of its agents has acted `steps` times."""
        if hasattr(behaviour, "state"):
            raise EnvironmentFailed(f"{self._label} is turn-based, and policies with a memory cannot play in turns yet")
        started = behaviour.begin(rng, steps * len(self.agents), self.count, exploration)
        self._turns = [[] for _ in range(self.count)]
        tick, busy = 0, list(range(len(self._envs)))
        while busy:
            actions = behaviour.act(params, self._observations, tick)
            for copy in busy:
                self._act(copy, actions, tick)
            tick += 1
            busy = [copy for copy in busy if max(map(len, self._turns_of(copy))) < steps]
        arrays = self._arrays(behaviour, params, steps)
        recorded = {name: self._gathered(array, steps) for name, array in behaviour.recorded().items()}
        return {**arrays, **started, **recorded}

    def play(self, behaviour: Behaviour, params: Params, episodes: int) -> list[Episode]:
        """Whole episodes without exploration; one an agent each."""
        self.reset()
        while len(self.episodes) < episodes:
            actions = behaviour.best(params, self._observations)
            for copy in range(len(self._envs)):
                self._act(copy, actions, 0)
            self._turns = [turns[-1:] for turns in self._turns]
        return self.episodes[:episodes]

    def step(self, chosen: NDArray[Any]) -> Step:
        raise NotImplementedError("turn-based environments are driven by collect() and play()")

    def where(self) -> str:
        doing, copy = self._doing
        return f"{doing} {int(self._lengths.max(initial=0))} of environment {copy} of {self._label}"

    def state(self) -> dict[str, NDArray[Any]] | None:
        return None

    def restore(self, saved: dict[str, NDArray[Any]]) -> NDArray[Any]:
        return self.reset()

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def _turns_of(self, copy: int) -> list[list[_Turn]]:
        return self._turns[copy * len(self.agents) : (copy + 1) * len(self.agents)]

    def _act(self, copy: int, actions: NDArray[Any], tick: int) -> None:
        """Let the agent whose turn it is act, and go on to the next turn."""
        column = self._acting[copy]
        agent = self.agents[column % len(self.agents)]
        self._turns[column].append(_Turn(tick, self._observations[column].copy(), actions[column].copy()))
        self._lengths[column] += 1
        self._doing = ("step", copy)
        try:
            self._envs[copy].step(self._spaces.decode(agent, actions[column]))
        except Exception as error:
            self._fail(error)
        self._advance(copy)

    def _advance(self, copy: int) -> None:
        """To the next agent that is to act; what others did meanwhile is completed on the way."""
        env = self._envs[copy]
        while True:
            if not env.agents:
                self._begin_episode(copy)
            agent = env.agent_selection
            column = copy * len(self.agents) + self.agents.index(agent)
            try:
                seen, reward, terminated, truncated, _ = env.last()
                if seen is not None:
                    self._spaces.encode(agent, seen, self._observations[column], bool(terminated or truncated))
                self._rewards[column] += float(reward)
            except Exception as error:
                self._fail(error)
            self._complete(column, float(reward), bool(terminated), bool(truncated))
            if not (terminated or truncated):
                self._acting[copy] = column
                return
            self.episodes.append(Episode(float(self._rewards[column]), int(self._lengths[column]), agent))
            env.step(None)

    def _complete(self, column: int, reward: float, terminated: bool, truncated: bool) -> None:
        turns = self._turns[column]
        if turns and turns[-1].reward is None:
            turn = turns[-1]
            turn.reward, turn.terminated, turn.truncated = reward, terminated, truncated and not terminated
            turn.after = self._observations[column].copy()

    def _arrays(self, behaviour: Behaviour, params: Params, steps: int) -> dict[str, NDArray[Any]]:
        shape = (steps, self.count)
        arrays: dict[str, NDArray[Any]] = {
            "observations": np.zeros((steps + 1, self.count, *self.encoder.shape), self.encoder.dtype),
            "actions": np.zeros((*shape, *self.decoder.shape), self.decoder.dtype),
            "rewards": np.zeros(shape, np.float64),
            "terminated": np.zeros(shape, np.bool_),
            "truncated": np.zeros(shape, np.bool_),
            "valid": np.zeros(shape, np.bool_),
        }
        following = "next_observations" if behaviour.keeps_next_observations else "bootstrap"
        arrays[following] = (
            np.zeros((*shape, *self.encoder.shape), self.encoder.dtype)
            if behaviour.keeps_next_observations
            else np.zeros(shape, np.float32)
        )
        for column, turns in enumerate(self._turns):
            complete = [turn for turn in turns if turn.reward is not None]
            for row, turn in enumerate(complete):
                is_last = row == len(complete) - 1 and not turn.terminated
                arrays["observations"][row, column] = turn.observation
                arrays["observations"][row + 1 :, column] = turn.after
                arrays["actions"][row, column] = turn.action
                arrays["rewards"][row, column] = turn.reward
                arrays["terminated"][row, column] = turn.terminated
                arrays["truncated"][row, column] = turn.truncated or is_last
                arrays["valid"][row, column] = True
                assert turn.after is not None
                if behaviour.keeps_next_observations:
                    arrays[following][row, column] = turn.after
                elif turn.truncated or is_last:
                    arrays[following][row, column] = behaviour.value(params, turn.after, column) or 0.0
        return arrays

    def _gathered(self, by_tick: NDArray[Any], steps: int) -> NDArray[Any]:
        """What was recorded each tick, by each agent's own steps."""
        gathered = np.zeros((steps, *by_tick.shape[1:]), by_tick.dtype)
        for column, turns in enumerate(self._turns):
            ticks = [turn.tick for turn in turns if turn.reward is not None]
            gathered[: len(ticks), column] = by_tick[ticks, column]
        return gathered

    def _begin_episode(self, copy: int) -> None:
        self._doing = ("reset", copy)
        part = slice(copy * len(self.agents), (copy + 1) * len(self.agents))
        self._rewards[part], self._lengths[part] = 0, 0
        try:
            self._envs[copy].reset(seed=int(self._rng.integers(SEED_BOUND)))
        except Exception as error:
            self._fail(error)
        if not self._envs[copy].agents:
            raise EnvironmentFailed(f"{self.where()}: no agent is there after it")

    def _fail(self, error: Exception) -> NoReturn:
        raise EnvironmentFailed(f"{self.where()} failed: {type(error).__name__}: {error}") from error
