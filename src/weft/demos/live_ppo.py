"""PPO that also learns from live episodes: those which players play against the policy as it is served.

A batch is what the simulation workers sampled, as always, and beside it one fragment of the players, who are never
waited for: a batch for which none has arrived has that part marked as not valid.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.library.settings import setting
from weft.rl import PPO, PPOConfig
from weft.rl.behaviours import Stochastic
from weft.rl.rollout import Fragment
from weft.rl.workers import RolloutWorkers
from weft.serve import DeploymentHandle


@dataclasses.dataclass(frozen=True, kw_only=True)
class LiveConfig(PPOConfig):
    """PPO's settings, and how many live games are played at once."""

    live_games: int = setting(4, "games that are played against the served policy at once", at_least=1)

    @property
    def batch(self) -> int:
        return super().batch + self.fragment_steps * self.live_games


class Served(Stochastic):
    """Asks the served policy for every action; the weights it is given are only for the values of cut episodes."""

    def __init__(self, model: Any, policy: DeploymentHandle) -> None:
        super().__init__(model)
        self.policy = policy

    def act(self, params: Any, observations: NDArray[Any], time: int) -> NDArray[Any]:
        asked = [self.policy.explore.remote(observation) for observation in observations]
        return np.array([answer.result() for answer in asked])


class LivePPO(PPO):
    """PPO with players. Until `play_against` there are none."""

    config_class = LiveConfig
    config: LiveConfig

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.players: RolloutWorkers | None = None
        self.live_rewards: collections.deque[float] = collections.deque(maxlen=20)
        self.live_episodes = 0
        self.live_steps = 0

    def play_against(self, policy: DeploymentHandle) -> None:
        """From now on a player asks `policy` for its actions, and what it plays is learned from."""
        behaviour: Any = Served(self.behaviour.model, policy)  # type: ignore[attr-defined]
        blueprint = dataclasses.replace(self.blueprint(), behaviour=behaviour, envs=self.config.live_games)
        self.players = RolloutWorkers(blueprint, 1, 0, self.config.on_environment_error)
        self.players.request(0, self.players.share(self.weights()), self.version)

    def sample(self, exploration: float = 0.0, steps: int | None = None) -> list[Fragment]:
        fragments = super().sample(exploration, steps)
        return [*fragments, self._live_fragment() or self._nothing_played(fragments[0])]

    def stop(self) -> None:
        if self.players is not None:
            self.players.close()
        super().stop()

    def _live_fragment(self) -> Fragment | None:
        """What the player has played meanwhile; it plays on at once."""
        if self.players is None:
            return None
        arrived = [fragment for _, fragment in self.players.arrivals(timeout_s=0)]
        if arrived or not self.players.asked:
            self.players.request(0, self.players.share(self.weights()), self.version)
        if not arrived or arrived[0] is None:
            return None
        fragment = arrived[0]
        self.metrics.count(fragment.steps, [])
        self.live_steps += fragment.steps
        self.live_episodes += len(fragment.episodes)
        self.live_rewards.extend(episode.reward for episode in fragment.episodes)
        return fragment

    def _nothing_played(self, like: Fragment) -> Fragment:
        games = self.config.live_games
        blank = {
            name: np.zeros((array.shape[0], games, *array.shape[2:]), array.dtype)
            for name, array in like.arrays.items()
        }
        return Fragment(blank, [], self.version, -1)
