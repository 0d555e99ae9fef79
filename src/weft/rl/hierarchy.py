"""A Gymnasium environment for two: a manager that sets goals, and a worker that acts towards them.

    MultiAgentPPO(env=lambda: Hierarchy(make_env(), goals=Discrete(4), goal_steps=5, worker_reward=nearness))

The manager sees what the environment shows and chooses a goal; the worker sees that and the goal, and acts for
`goal_steps` steps; then it is the manager's turn again. The manager earns what the environment gave meanwhile, the
worker what `worker_reward(observation, goal, next_observation, reward)` says. It has PettingZoo's turn-based (AEC) API,
and any environment with it can be a hierarchy of another shape: agents may differ in their spaces and in how often they
act.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from gymnasium import spaces

WorkerReward = Callable[[Any, Any, Any, float], float]


class Hierarchy:
    """A manager over a worker, in turns."""

    metadata: ClassVar[dict[str, Any]] = {"name": "hierarchy", "is_parallelizable": False}
    possible_agents: ClassVar[list[str]] = ["manager", "worker"]

    def __init__(self, env: Any, goals: spaces.Space[Any], goal_steps: int, worker_reward: WorkerReward) -> None:
        if goal_steps < 1:
            raise ValueError(f"goal_steps must be at least 1, but got {goal_steps}")
        self._env, self._goals, self._goal_steps, self._worker_reward = env, goals, goal_steps, worker_reward
        self.agents: list[str] = []
        self.agent_selection = "manager"

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        seen = self._env.observation_space
        return seen if agent == "manager" else spaces.Tuple((seen, self._goals))

    def action_space(self, agent: str) -> spaces.Space[Any]:
        space: spaces.Space[Any] = self._goals if agent == "manager" else self._env.action_space
        return space

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self._seen, _ = self._env.reset(seed=seed, options=options)
        self.agents = list(self.possible_agents)
        self.agent_selection = "manager"
        self._goal: Any = None
        self._earned = dict.fromkeys(self.agents, 0.0)
        self._ended, self._cut = False, False
        self._left = 0

    def last(self, observe: bool = True) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """What the agent whose turn it is sees, and what it earned since its last turn."""
        agent = self.agent_selection
        seen = self._seen if agent == "manager" else (self._seen, self._goal)
        return seen if observe else None, self._earned[agent], self._ended, self._cut and not self._ended, {}

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        self._earned[agent] = 0.0
        if self._ended or self._cut:
            self.agents.remove(agent)
            self.agent_selection = self.agents[0] if self.agents else agent
        elif agent == "manager":
            self._goal, self._left = action, self._goal_steps
            self.agent_selection = "worker"
        else:
            before = self._seen
            self._seen, reward, self._ended, self._cut, _ = self._env.step(action)
            self._earned["manager"] += float(reward)
            self._earned["worker"] = float(self._worker_reward(before, self._goal, self._seen, float(reward)))
            self._left -= 1
            self.agent_selection = "worker" if self._left and not (self._ended or self._cut) else "manager"

    def agent_iter(self, max_iter: int = 2**63) -> Iterator[str]:
        """The agents in the order of their turns, as in PettingZoo."""
        for _ in range(max_iter):
            if not self.agents:
                return
            yield self.agent_selection

    def close(self) -> None:
        self._env.close()
