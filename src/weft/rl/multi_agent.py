"""Many agents in one environment (PettingZoo), as columns of the arrays that everything else knows.

Every agent of every copy of the environment is one column: column = copy × agents + agent. An agent that is out before
the others has rows that are not `valid` until all are and the next episode begins. So whatever learns from fragments
learns from several agents too. This file has what agents see and do, environments in which all act at once (the
parallel API), and policies side by side; environments in which they act in turn (AEC) are in `turns.py`.
"""

from __future__ import annotations

import math
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


def common_spaces(env: Any) -> tuple[Any, Any]:
    """The observation and action space that all agents have."""
    first = env.possible_agents[0]
    for agent in env.possible_agents:
        for kind in ("observation_space", "action_space"):
            if getattr(env, kind)(agent) != getattr(env, kind)(first):
                raise SpaceMismatch(
                    f"the {kind}s of agents {first!r} and {agent!r} differ: {getattr(env, kind)(first)} and "
                    f"{getattr(env, kind)(agent)}; use MultiAgentPPO, with policies of their own for them"
                )
    return env.observation_space(first), env.action_space(first)


class Padded:
    """In the place of an encoder or a decoder where agents differ: the shape and dtype that have room for all."""

    def __init__(self, shape: tuple[int, ...], dtype: Any, space: Any) -> None:
        self.shape, self.dtype, self.space = shape, np.dtype(dtype), space
        self.is_image, self.mask_size = False, 0

    def out_of_bounds(self, encoded: NDArray[Any]) -> NDArray[np.bool_]:
        return np.zeros(encoded.shape[: encoded.ndim - len(self.shape)], np.bool_)


class AgentSpaces:
    """What each agent sees and does.

    Where agents differ, what they see lies flat in columns as wide as the widest, padded with zeros: bytes if all see
    images, else numbers.
    """

    def __init__(self, env: Any) -> None:
        self.agents: list[str] = list(env.possible_agents)
        self.decoders = {agent: ActionDecoder(env.action_space(agent)) for agent in self.agents}
        self.encoders = {
            agent: ObservationEncoder(env.observation_space(agent), self.decoders[agent]) for agent in self.agents
        }
        spaces = [(env.observation_space(agent), env.action_space(agent)) for agent in self.agents]
        self.alike = all(pair == spaces[0] for pair in spaces)
        self.encoder: Any = self.encoders[self.agents[0]]
        self.decoder: Any = self.decoders[self.agents[0]]
        if not self.alike:
            self.encoder, self.decoder = self._padded()

    def encode(self, agent: str, observation: Any, row: NDArray[Any], is_last: bool = False) -> None:
        """Write an agent's observation to its row."""
        encoded = self.encoders[agent].encode(observation, is_last)
        if self.alike:
            row[...] = encoded
        else:
            row[: encoded.size] = encoded.ravel()

    def decode(self, agent: str, chosen: NDArray[Any]) -> Any:
        """One action for the environment from an agent's row."""
        return self.decoders[agent].decode(self.own_actions(agent, chosen[None]))[0]

    def own_observations(self, agent: str, padded: Any) -> Any:
        if self.alike:
            return padded
        encoder = self.encoders[agent]
        own = padded[..., : math.prod(encoder.shape)]
        return own.reshape(*own.shape[:-1], *encoder.shape).astype(encoder.dtype, copy=False)

    def own_actions(self, agent: str, padded: Any) -> Any:
        decoder = self.decoders[agent]
        if self.alike or not self.decoder.shape:
            return padded
        own = padded[..., : decoder.shape[0]] if decoder.shape else padded[..., 0]
        return own.astype(decoder.dtype)

    def pad_actions(self, agent: str, chosen: NDArray[Any]) -> NDArray[Any]:
        if self.alike or not self.decoder.shape:
            return chosen
        padded = np.zeros((len(chosen), *self.decoder.shape), self.decoder.dtype)
        padded[:, : max(1, int(np.prod(self.decoders[agent].shape)))] = chosen.reshape(len(chosen), -1)
        return padded

    def _padded(self) -> tuple[Padded, Padded]:
        seen = max(math.prod(encoder.shape) for encoder in self.encoders.values())
        see_images = all(encoder.is_image for encoder in self.encoders.values())
        kinds = {decoder.kind for decoder in self.decoders.values()}
        done = max(int(np.prod(decoder.shape)) for decoder in self.decoders.values())
        shape = () if kinds == {"discrete"} else (max(1, done),)
        return (
            Padded((seen,), np.uint8 if see_images else np.float32, "the agents' observation spaces"),
            Padded(shape, np.float32 if "box" in kinds else np.int32, "the agents' action spaces"),
        )


class AgentEnvironments:
    """Copies of an environment of several agents: what is the same whether they act at once or in turn."""

    def __init__(self, envs: Sequence[Any], rng: np.random.Generator, label: str) -> None:
        self._envs = list(envs)
        self._rng = rng
        self._label = label
        self._spaces = AgentSpaces(envs[0])
        self.agents = self._spaces.agents
        self.encoder, self.decoder = self._spaces.encoder, self._spaces.decoder
        self.count = len(self._envs) * len(self.agents)
        self.episodes: list[Episode] = []
        self.failures: list[str] = []
        self._observations = np.zeros((self.count, *self.encoder.shape), self.encoder.dtype)
        self._rewards = np.zeros(self.count)  # of the running episodes
        self._lengths = np.zeros(self.count, np.int64)
        self._doing = ("reset", 0)

    def where(self) -> str:
        """What is being done, for messages."""
        doing, copy = self._doing
        return f"{doing} {int(self._lengths.max(initial=0))} of environment {copy} of {self._label}"

    def columns_of(self, copy: int) -> range:
        """The columns of a copy, in the order of its agents."""
        return range(copy * len(self.agents), (copy + 1) * len(self.agents))

    def state(self) -> dict[str, NDArray[Any]] | None:
        """Running episodes cannot be saved: after a restore new ones begin."""
        return None

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def _end_episode(self, column: int) -> None:
        agent = self.agents[column % len(self.agents)]
        self.episodes.append(Episode(float(self._rewards[column]), int(self._lengths[column]), agent))

    def _begin(self, copy: int) -> int:
        """Nothing has been earned in a new episode of a copy; the seed for it."""
        self._doing = ("reset", copy)
        columns = list(self.columns_of(copy))
        self._rewards[columns], self._lengths[columns] = 0, 0
        return int(self._rng.integers(SEED_BOUND))

    def _fail(self, error: Exception) -> NoReturn:
        raise EnvironmentFailed(f"{self.where()} failed: {type(error).__name__}: {error}") from error


class AgentColumns(AgentEnvironments):
    """Copies of a parallel environment, stepped one after the other."""

    def __init__(self, envs: Sequence[Any], rng: np.random.Generator, label: str) -> None:
        super().__init__(envs, rng, label)
        self._alive = np.zeros(self.count, np.bool_)

    def reset(self) -> NDArray[Any]:
        for copy in range(len(self._envs)):
            self._begin_episode(copy)
        return self._observations.copy()

    def step(self, chosen: NDArray[Any]) -> Step:
        rewards = np.zeros(self.count)
        terminated, truncated = np.zeros(self.count, np.bool_), np.zeros(self.count, np.bool_)
        valid = self._alive.copy()
        finals: dict[int, NDArray[Any]] = {}
        for copy, env in enumerate(self._envs):
            columns = dict(zip(self.agents, self.columns_of(copy), strict=True))
            self._doing = ("step", copy)
            try:
                given = {
                    agent: self._spaces.decode(agent, chosen[column])
                    for agent, column in columns.items()
                    if valid[column]
                }
                seen, earned, ended, cut, _ = env.step(given)
                for agent in given:
                    column = columns[agent]
                    is_last = bool(ended[agent] or cut[agent])
                    self._spaces.encode(agent, seen[agent], self._observations[column], is_last)
                    rewards[column] = earned[agent]
                    terminated[column] = ended[agent]
                    truncated[column] = cut[agent] and not ended[agent]
            except Exception as error:
                self._fail(error)
            for agent in given:
                self._count(columns[agent], rewards, terminated | truncated, finals)
            if not env.agents:
                self._begin_episode(copy)
        return Step(self._observations.copy(), rewards, terminated, truncated, valid, finals)

    def restore(self, saved: dict[str, NDArray[Any]]) -> NDArray[Any]:
        return self.reset()

    def _count(
        self, column: int, rewards: NDArray[np.float64], done: NDArray[np.bool_], finals: dict[int, NDArray[Any]]
    ) -> None:
        self._rewards[column] += rewards[column]
        self._lengths[column] += 1
        if done[column]:
            finals[column] = self._observations[column].copy()
            self._alive[column] = False
            self._end_episode(column)

    def _begin_episode(self, copy: int) -> None:
        seed = self._begin(copy)
        try:
            seen, _ = self._envs[copy].reset(seed=seed)
            for agent, column in zip(self.agents, self.columns_of(copy), strict=True):
                self._alive[column] = agent in seen
                if agent in seen:
                    self._spaces.encode(agent, seen[agent], self._observations[column])
        except Exception as error:
            self._fail(error)


class PerPolicy:
    """Several policies side by side, each for the columns of its agents, which all have the same spaces.

    Parameters of policy p are named "p/...". With one agent to a policy the columns of p are every n-th.
    """

    keeps_next_observations = False

    def __init__(
        self, make: Callable[[str], Behaviour], policy_of: Mapping[str, str], agent_spaces: AgentSpaces
    ) -> None:
        self._spaces = agent_spaces
        self._agents = agent_spaces.agents
        self._policy_of = dict(policy_of)
        self.policies = sorted(set(policy_of.values()))
        self.behaviours = {policy: make(policy) for policy in self.policies}
        self.remembers = any(behaviour.remembers for behaviour in self.behaviours.values())
        self._owned = {
            policy: [index for index, agent in enumerate(self._agents) if policy_of[agent] == policy]
            for policy in self.policies
        }

    def columns(self, policy: str, count: int) -> NDArray[np.int64]:
        """The columns of a policy among `count`."""
        every = np.arange(count)
        return every[np.isin(every % len(self._agents), self._owned[policy])]

    def own(self, policy: str, batch: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """A policy's part of a batch of arrays [steps, N, ...], without padding."""
        columns = self.columns(policy, batch["rewards"].shape[1])
        part = {name: array[:, columns] for name, array in batch.items() if "/" not in name}
        prefix = f"{policy}/"
        part |= {name.removeprefix(prefix): array for name, array in batch.items() if name.startswith(prefix)}
        agent = self.first_agent(policy)
        part["observations"] = self._spaces.own_observations(agent, part["observations"])
        part["actions"] = self._spaces.own_actions(agent, part["actions"])
        return part

    def first_agent(self, policy: str) -> str:
        return self._agents[self._owned[policy][0]]

    def begin(self, rng: np.random.Generator, steps: int, count: int, exploration: float) -> dict[str, NDArray[Any]]:
        """What policies put into the fragment is named "p/...": arrays [..., columns of p, ...]."""
        started: dict[str, NDArray[Any]] = {}
        for policy, behaviour in self.behaviours.items():
            own = behaviour.begin(rng, steps, len(self.columns(policy, count)), exploration)
            started |= {f"{policy}/{name}": array for name, array in own.items()}
        return started

    def act(self, params: Params, observations: NDArray[Any], time: int) -> NDArray[Any]:
        return self._joined(params, observations, lambda behaviour, own, seen: behaviour.act(own, seen, time))

    def best(self, params: Params, observations: NDArray[Any], xp: Any = np) -> NDArray[Any]:
        return self._joined(params, observations, lambda behaviour, own, seen: behaviour.best(own, seen))

    def value(self, params: Params, observation: NDArray[Any], index: int, memory: Any = None) -> float | None:
        policy, place = self._owner(index)
        own = self._spaces.own_observations(self.first_agent(policy), observation)
        return self.behaviours[policy].value(own_params(params, policy), own, place, memory)

    def ended(self, indices: list[int]) -> None:
        if not self.remembers:
            return
        for policy, places in self._by_policy(indices).items():
            self.behaviours[policy].ended(places)

    def recorded(self) -> dict[str, NDArray[Any]]:
        return {}

    def unsee(self, indices: list[int]) -> None:
        for policy, places in self._by_policy(indices).items():
            self.behaviours[policy].unsee(places)

    def memory_of(self, index: int) -> Any:
        policy, place = self._owner(index)
        return self.behaviours[policy].memory_of(place)

    def begin_anew(self, started: dict[str, NDArray[Any]], indices: list[int]) -> None:
        for policy, places in self._by_policy(indices).items():
            prefix = f"{policy}/"
            own = {name.removeprefix(prefix): array for name, array in started.items() if name.startswith(prefix)}
            self.behaviours[policy].begin_anew(own, places)

    def _owner(self, index: int) -> tuple[str, int]:
        """The policy of a column, and which of the policy's columns it is."""
        copy, agent = divmod(index, len(self._agents))
        policy = self._policy_of[self._agents[agent]]
        owned = self._owned[policy]
        return policy, copy * len(owned) + owned.index(agent)

    def _by_policy(self, indices: list[int]) -> dict[str, list[int]]:
        places: dict[str, list[int]] = {}
        for index in indices:
            policy, place = self._owner(index)
            places.setdefault(policy, []).append(place)
        return places

    def _joined(self, params: Params, observations: NDArray[Any], choose: Callable[..., NDArray[Any]]) -> NDArray[Any]:
        chosen: NDArray[Any] | None = None
        for policy, behaviour in self.behaviours.items():
            columns, agent = self.columns(policy, len(observations)), self.first_agent(policy)
            seen = self._spaces.own_observations(agent, observations[columns])
            part = self._spaces.pad_actions(agent, choose(behaviour, own_params(params, policy), seen))
            if chosen is None:
                chosen = np.zeros((len(observations), *part.shape[1:]), part.dtype)
            chosen[columns] = part
        assert chosen is not None
        return chosen


def own_params(params: Params, policy: str) -> dict[str, Any]:
    prefix = f"{policy}/"
    return {name.removeprefix(prefix): value for name, value in params.items() if name.startswith(prefix)}
