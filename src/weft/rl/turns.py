"""Environments in which agents act in turn (PettingZoo's AEC API), as columns in which only an agent's own turns count.

What an agent did is complete when its next turn comes, or its end: only then is its reward known. So a column holds an
agent's complete steps one after the other, whoever acted between them; the rest of its rows are not `valid`. A column's
last step, unless an episode ended with it, is marked as truncated, with the value of what the agent saw next, so that
whatever learns from it sees an ordinary fragment. A step that is open when a fragment ends would be completed in the
next, but was chosen by older weights: it is left out.

A policy with a memory sees what its agent sees at its own turns, and nothing between them.

The order of turns is the environment's: games for two, and hierarchies in which one agent acts far more often.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.rl.behaviours import Behaviour
from weft.rl.multi_agent import AgentEnvironments
from weft.rl.networks import Params
from weft.rl.offline import RecordedEpisode
from weft.rl.stepping import EnvironmentFailed, Episode, Step


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
    memory: Any = None  # of a policy that has one, after this step


class TurnColumns(AgentEnvironments):
    """Copies of a turn-based environment. `collect` takes the place of stepping, since agents act one by one."""

    def __init__(self, envs: Sequence[Any], rng: np.random.Generator, label: str) -> None:
        super().__init__(envs, rng, label)
        self._turns: list[list[_Turn]] = [[] for _ in range(self.count)]
        self._acting = [0] * len(self._envs)  # the column whose turn it is
        self._begun: list[int] = []  # columns whose episodes have begun since the behaviour was told of it
        self._anew: set[int] = set()  # columns whose first turn of the fragment begins an episode

    def reset(self) -> NDArray[Any]:
        self._turns = [[] for _ in range(self.count)]
        for copy in range(len(self._envs)):
            self._begin_episode(copy)
            self._advance(copy)
        self._begun = []  # whoever resets begins with an empty memory
        return self._observations.copy()

    def collect(
        self, behaviour: Behaviour, params: Params, rng: np.random.Generator, steps: int, exploration: float
    ) -> dict[str, NDArray[Any]]:
        """A fragment: each copy goes on until one of its agents has acted `steps` times."""
        started = behaviour.begin(rng, steps * len(self.agents), self.count, exploration)
        self._turns, self._anew = [[] for _ in range(self.count)], set()
        tick, busy = 0, list(range(len(self._envs)))
        while busy:
            actions = behaviour.act(params, self._observations, tick)
            self._take_turns(behaviour, busy, actions, tick)
            tick += 1
            busy = [copy for copy in busy if max(map(len, self._turns_of(copy))) < steps]
        behaviour.begin_anew(started, sorted(self._anew))
        arrays = self._arrays(behaviour, params, steps)
        recorded = {name: self._gathered(array, steps) for name, array in behaviour.recorded().items()}
        return {**arrays, **started, **recorded}

    def play(self, behaviour: Behaviour, params: Params, episodes: int) -> list[Episode]:
        """Whole episodes without exploration; one an agent each."""
        self.reset()
        while len(self.episodes) < episodes:
            actions = behaviour.best(params, self._observations)
            self._take_turns(behaviour, list(range(len(self._envs))), actions, 0)
            self._turns = [turns[-1:] for turns in self._turns]
        return self.episodes[:episodes]

    def record(
        self, behaviour: Behaviour, choose: Callable[[NDArray[Any]], NDArray[Any]], episodes: int
    ) -> list[RecordedEpisode]:
        """Whole episodes, one an agent each, of what the behaviour chooses; an agent that never acted has none."""
        self.reset()
        recorded: list[RecordedEpisode] = []
        while len(recorded) < episodes:
            self._take_turns(behaviour, list(range(len(self._envs))), choose(self._observations), 0)
            for column, turns in enumerate(self._turns):
                if turns and (turns[-1].terminated or turns[-1].truncated):
                    recorded.append(_recorded(turns))
                    self._turns[column] = []
        return recorded[:episodes]

    def step(self, chosen: NDArray[Any]) -> Step:
        raise EnvironmentFailed(f"{self._label} is turn-based: its agents cannot all be stepped at once")

    def restore(self, saved: dict[str, NDArray[Any]]) -> NDArray[Any]:
        return self.reset()

    def _take_turns(self, behaviour: Behaviour, copies: list[int], actions: NDArray[Any], tick: int) -> None:
        """In each of these copies let the agent act whose turn it is."""
        if behaviour.remembers:
            acting = {self._acting[copy] for copy in copies}
            behaviour.unsee([column for column in range(self.count) if column not in acting])
        for copy in copies:
            self._act(copy, behaviour, actions, tick)
        behaviour.ended(self._begun)
        self._begun = []

    def _turns_of(self, copy: int) -> list[list[_Turn]]:
        return [self._turns[column] for column in self.columns_of(copy)]

    def _act(self, copy: int, behaviour: Behaviour, actions: NDArray[Any], tick: int) -> None:
        """Let the agent whose turn it is act, and go on to the next turn."""
        column = self._acting[copy]
        agent = self.agents[column % len(self.agents)]
        turn = _Turn(tick, self._observations[column].copy(), actions[column].copy())
        turn.memory = behaviour.memory_of(column)
        self._turns[column].append(turn)
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
            self._end_episode(column)
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
                    arrays[following][row, column] = behaviour.value(params, turn.after, column, turn.memory) or 0.0
        return arrays

    def _gathered(self, by_tick: NDArray[Any], steps: int) -> NDArray[Any]:
        """What was recorded each tick, by each agent's own steps."""
        gathered = np.zeros((steps, *by_tick.shape[1:]), by_tick.dtype)
        for column, turns in enumerate(self._turns):
            ticks = [turn.tick for turn in turns if turn.reward is not None]
            gathered[: len(ticks), column] = by_tick[ticks, column]
        return gathered

    def _begin_episode(self, copy: int) -> None:
        seed = self._begin(copy)
        self._begun.extend(self.columns_of(copy))
        self._anew.update(column for column in self.columns_of(copy) if not self._turns[column])
        try:
            self._envs[copy].reset(seed=seed)
        except Exception as error:
            self._fail(error)
        if not self._envs[copy].agents:
            raise EnvironmentFailed(f"{self.where()}: no agent is there after it")


def _recorded(turns: list[_Turn]) -> RecordedEpisode:
    """An agent's episode, whose last turn ended it."""
    return RecordedEpisode(
        np.stack([*(turn.observation for turn in turns), turns[-1].after]),  # type: ignore[list-item]
        np.stack([turn.action for turn in turns]),
        np.array([turn.reward for turn in turns], np.float64),
        turns[-1].terminated,
    )
