"""Many agents in one environment (PettingZoo's parallel API), as columns of the arrays that everything else knows.

Every agent of every copy of the environment is one column: column = copy × agents + agent. An agent that is out before
the others has rows that are not `valid` until all are and the next episode begins. So whatever learns from fragments
learns from several agents too. All agents must have the same spaces. Turn-based (AEC) environments are taken where
PettingZoo can turn them into parallel ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from weft.rl.behaviours import Behaviour
from weft.rl.networks import Params
from weft.rl.spaces import ActionDecoder, ObservationEncoder, SpaceMismatch
from weft.rl.stepping import SEED_BOUND, EnvironmentFailed, Episode, Step


def is_multi_agent(env: Any) -> bool:
    return hasattr(env, "possible_agents")


def as_parallel(env: Any) -> Any:
    """The environment with the parallel API."""
    if not hasattr(env, "agent_iter"):
        return env
    from pettingzoo.utils.conversions import aec_to_parallel

    return aec_to_parallel(env)


def common_spaces(env: Any) -> tuple[Any, Any]:
    """The observation and action space that all agents have."""
    first = env.possible_agents[0]
    for agent in env.possible_agents:
        for kind in ("observation_space", "action_space"):
            if getattr(env, kind)(agent) != getattr(env, kind)(first):
                raise SpaceMismatch(
                    f"the {kind}s of agents {first!r} and {agent!r} differ: {getattr(env, kind)(first)} and "
                    f"{getattr(env, kind)(agent)}; wrap the environment so that all agents have the same"
                )
    return env.observation_space(first), env.action_space(first)


class AgentColumns:
    """Copies of a parallel environment, stepped one after the other."""

    def __init__(self, envs: Sequence[Any], rng: np.random.Generator, label: str) -> None:
        self._envs = list(envs)
        self._rng = rng
        self._label = label
        self.agents: list[str] = list(envs[0].possible_agents)
        observation_space, action_space = common_spaces(envs[0])
        self.decoder = ActionDecoder(action_space)
        self.encoder = ObservationEncoder(observation_space, mask_size=sum(self.decoder.sizes))
        self.count = len(self._envs) * len(self.agents)
        self.episodes: list[Episode] = []
        self._observations = np.zeros((self.count, *self.encoder.shape), self.encoder.dtype)
        self._rewards = np.zeros(self.count)
        self._lengths = np.zeros(self.count, np.int64)
        self._alive = np.zeros(self.count, np.bool_)
        self._doing = ("reset", 0)

    def reset(self) -> NDArray[Any]:
        for copy in range(len(self._envs)):
            self._begin_episode(copy)
        return self._observations.copy()

    def step(self, chosen: NDArray[Any]) -> Step:
        actions = self.decoder.decode(chosen)
        rewards = np.zeros(self.count)
        terminated, truncated = np.zeros(self.count, np.bool_), np.zeros(self.count, np.bool_)
        valid = self._alive.copy()
        finals: dict[int, NDArray[Any]] = {}
        for copy, env in enumerate(self._envs):
            columns = {agent: copy * len(self.agents) + index for index, agent in enumerate(self.agents)}
            self._doing = ("step", copy)
            try:
                given = {agent: actions[column] for agent, column in columns.items() if valid[column]}
                seen, earned, ended, cut, _ = env.step(given)
                for agent in given:
                    column = columns[agent]
                    self._observations[column] = self.encoder.encode(seen[agent])
                    rewards[column] = earned[agent]
                    terminated[column] = ended[agent]
                    truncated[column] = cut[agent] and not ended[agent]
            except Exception as error:
                self._fail(error)
            for agent in given:
                self._count(agent, columns[agent], rewards, terminated | truncated, finals)
            if not env.agents:
                self._begin_episode(copy)
        return Step(self._observations.copy(), rewards, terminated, truncated, valid, finals)

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

    def _count(
        self,
        agent: str,
        column: int,
        rewards: NDArray[np.float64],
        done: NDArray[np.bool_],
        finals: dict[int, NDArray[Any]],
    ) -> None:
        self._rewards[column] += rewards[column]
        self._lengths[column] += 1
        if done[column]:
            finals[column] = self._observations[column].copy()
            self._alive[column] = False
            self.episodes.append(Episode(float(self._rewards[column]), int(self._lengths[column]), agent))

    def _begin_episode(self, copy: int) -> None:
        self._doing = ("reset", copy)
        first = copy * len(self.agents)
        part = slice(first, first + len(self.agents))
        self._rewards[part], self._lengths[part], self._alive[part] = 0, 0, False
        try:
            seen, _ = self._envs[copy].reset(seed=int(self._rng.integers(SEED_BOUND)))
            for index, agent in enumerate(self.agents):
                if agent in seen:
                    self._observations[first + index] = self.encoder.encode(seen[agent])
                    self._alive[first + index] = True
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> NoReturn:
        raise EnvironmentFailed(f"{self.where()} failed: {type(error).__name__}: {error}") from error


class PerPolicy:
    """Several policies side by side, each for the columns of its agents.

    Parameters of policy p are named "p/...". With one agent to a policy the columns of p are every n-th.
    """

    keeps_next_observations = False

    def __init__(self, make: Callable[[], Behaviour], policy_of: Mapping[str, str], agents: Sequence[str]) -> None:
        self._agents = list(agents)
        self.policies = sorted(set(policy_of.values()))
        self._behaviours = {policy: make() for policy in self.policies}
        self._owned = {
            policy: [index for index, agent in enumerate(agents) if policy_of[agent] == policy]
            for policy in self.policies
        }

    def columns(self, policy: str, count: int) -> NDArray[np.int64]:
        """The columns of a policy among `count`."""
        every = np.arange(count)
        return every[np.isin(every % len(self._agents), self._owned[policy])]

    def begin(self, rng: np.random.Generator, steps: int, count: int, exploration: float) -> dict[str, NDArray[Any]]:
        for policy, behaviour in self._behaviours.items():
            behaviour.begin(rng, steps, len(self.columns(policy, count)), exploration)
        return {}

    def act(self, params: Params, observations: NDArray[Any], time: int) -> NDArray[Any]:
        return self._joined(params, observations, lambda behaviour, own, seen: behaviour.act(own, seen, time))

    def best(self, params: Params, observations: NDArray[Any]) -> NDArray[Any]:
        return self._joined(params, observations, lambda behaviour, own, seen: behaviour.best(own, seen))

    def value(self, params: Params, observation: NDArray[Any], index: int) -> float | None:
        owner = next(policy for policy in self.policies if index % len(self._agents) in self._owned[policy])
        return self._behaviours[owner].value(own_params(params, owner), observation, index)

    def ended(self, indices: list[int]) -> None:
        """Nothing is remembered."""

    def recorded(self) -> dict[str, NDArray[Any]]:
        return {}

    def _joined(self, params: Params, observations: NDArray[Any], choose: Callable[..., NDArray[Any]]) -> NDArray[Any]:
        chosen: NDArray[Any] | None = None
        for policy, behaviour in self._behaviours.items():
            columns = self.columns(policy, len(observations))
            part = choose(behaviour, own_params(params, policy), observations[columns])
            if chosen is None:
                chosen = np.zeros((len(observations), *part.shape[1:]), part.dtype)
            chosen[columns] = part
        assert chosen is not None
        return chosen


def own_params(params: Params, policy: str) -> dict[str, Any]:
    prefix = f"{policy}/"
    return {name.removeprefix(prefix): value for name, value in params.items() if name.startswith(prefix)}
