"""Agents that act in turn, agents that differ, and hierarchies."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium import spaces
from worlds import Matching, Pictures, Remembering, TwoMatching

from weft.rl import BC, PPO, MultiAgentPPO, SettingError
from weft.rl.algorithms.multi_agent_ppo import shuffles
from weft.rl.algorithms.recurrent_ppo import column_shuffles, unroll
from weft.rl.behaviours import Forgetful
from weft.rl.config import AlgorithmConfig
from weft.rl.hierarchy import Hierarchy
from weft.rl.multi_agent import AgentSpaces
from weft.rl.offline import read_episodes
from weft.rl.recurrent import RecurrentActorCritic, RecurrentStochastic
from weft.rl.spaces import ActionDecoder, ObservationEncoder, SpaceMismatch
from weft.rl.stepping import EnvironmentFailed, open_environments

QUICK: dict[str, Any] = {
    "seed": 1,
    "hidden": (32,),
    "learning_rate": 1e-2,
    "gamma": 0.0,
    "gae_lambda": 0.0,
    "fragment_steps": 32,
    "epochs": 4,
    "metrics_window": 20,
}


class Alternating:
    """Two agents in turn, each with signs of its own to match. What an agent earns it learns at its next turn.

    The small one sees two signs and knows two answers; it is called twice as often.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "alternating"}
    possible_agents: ClassVar[list[str]] = ["big", "small"]
    sizes: ClassVar[dict[str, int]] = {"big": 4, "small": 2}
    order = ("big", "small", "small")
    turns = 12

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(0, 1, (self.sizes[agent],), np.float32)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(self.sizes[agent])

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self._rng = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self._time = 0
        self._earned = dict.fromkeys(self.agents, 0.0)
        self._signs = {agent: int(self._rng.integers(size)) for agent, size in self.sizes.items()}

    @property
    def agent_selection(self) -> str:
        return self.agents[0] if self._time >= self.turns else self.order[self._time % len(self.order)]

    def last(self) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        agent = self.agent_selection
        seen = np.eye(self.sizes[agent], dtype=np.float32)[self._signs[agent]]
        return seen, self._earned[agent], self._time >= self.turns, False, {}

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if self._time >= self.turns:
            assert action is None
            self.agents.remove(agent)
            return
        assert self.action_space(agent).contains(action)
        self._earned[agent] = float(action == self._signs[agent])
        self._signs[agent] = int(self._rng.integers(self.sizes[agent]))
        self._time += 1

    def agent_iter(self) -> Iterator[str]:
        while self.agents:
            yield self.agent_selection

    def close(self) -> None:
        pass


class Equals(Alternating):
    """Both agents alike, turn by turn."""

    sizes: ClassVar[dict[str, int]] = {"big": 4, "small": 4}
    order = ("big", "small")


def tictactoe() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pettingzoo.classic import tictactoe_v3
    return tictactoe_v3.env


class Scripted(Forgetful):
    """A behaviour that answers right in even ticks; values are 100 times the first number seen."""

    keeps_next_observations = False

    def begin(self, rng: Any, steps: int, count: int, exploration: float) -> dict[str, Any]:
        return {}

    def act(self, params: Any, observations: Any, time: int) -> Any:
        self.seen = observations.copy()
        return observations.argmax(axis=1) if time % 2 == 0 else (observations.argmax(axis=1) + 1) % 2

    best = act

    def value(self, params: Any, observation: Any, index: int, memory: Any = None) -> float:
        return 100.0 * float(observation[0])

    def recorded(self) -> dict[str, Any]:
        return {}


def test_a_column_holds_an_agents_own_steps_with_what_they_earned() -> None:
    world = open_environments(Alternating, 2, np.random.default_rng(0), "alternating")
    world.reset()
    arrays = world.collect(Scripted(), {}, np.random.default_rng(1), 10, 0.0)  # type: ignore[attr-defined]
    world.close()
    # 10 turns of the small one are 15 ticks, an episode of 12 and 3 more; what it did in the last is open.
    assert arrays["valid"].sum(axis=0).tolist() == [5, 9, 5, 9]
    for column, ticks in ((0, [0, 3, 6, 9, 12]), (1, [1, 2, 4, 5, 7, 8, 10, 11, 13])):
        valid = arrays["valid"][:, column]
        right = [float(tick % 2 == 0) for tick in ticks]
        assert arrays["rewards"][valid, column].tolist() == right
        chosen, seen = arrays["actions"][valid, column], arrays["observations"][:-1][valid, column]
        assert (chosen == seen.argmax(axis=1)).tolist() == [bool(reward) for reward in right]
    assert arrays["terminated"][:, 1].tolist() == [False] * 7 + [True] + [False] * 2
    assert arrays["terminated"][:, 0].tolist() == [False] * 3 + [True] + [False] * 6
    assert np.flatnonzero(arrays["truncated"][:, 1]).tolist() == [8]
    assert arrays["bootstrap"][8, 1] == 100.0 * arrays["observations"][9, 1, 0]
    assert [(episode.agent, episode.length) for episode in world.episodes] == [("big", 4), ("small", 8)] * 2


@pytest.mark.parametrize("workers", [0, 1])
def test_agents_that_differ_learn_in_turns(workers: int, weft_session: ModuleType) -> None:
    with MultiAgentPPO(QUICK, env=Alternating, workers=workers) as algorithm:
        for _ in range(25):
            rewards = algorithm.train()["agent_reward_mean"]
            if rewards["big"] > 3.5 and rewards["small"] > 7.2:
                break
        assert rewards["big"] > 3.5 and rewards["small"] > 7.2
        assert algorithm.evaluate(8)["episode_reward_mean"] > 5
        assert [algorithm.policy_of("big").act(sign) for sign in np.eye(4, dtype=np.float32)] == [0, 1, 2, 3]
        assert [algorithm.policy_of("small").act(sign) for sign in np.eye(2, dtype=np.float32)] == [0, 1]


def test_agents_that_are_alike_share_a_policy_in_turns() -> None:
    with PPO(QUICK, env=Equals) as shared, MultiAgentPPO(QUICK, env=Equals, policies="shared") as named:
        assert shared.train()["timesteps_total"] > 0
        named.train()
        assert sorted(named.learner) == ["shared"]


def test_agents_that_differ_cannot_share() -> None:
    with pytest.raises(SettingError, match="agents 'big' and 'small' cannot share the policy 'shared'"):
        MultiAgentPPO(env=Alternating, policies="shared")
    with pytest.raises(SpaceMismatch, match="use MultiAgentPPO"):
        PPO(env=Alternating)
    with pytest.raises(SettingError, match="with a memory devices must be 1"):
        MultiAgentPPO(env=Alternating, memory="gru", devices=2)


def test_what_cannot_be_recorded_says_so(tmp_path: Path) -> None:
    with MultiAgentPPO(QUICK, env=Alternating) as algorithm, pytest.raises(SpaceMismatch, match="whose spaces differ"):
        algorithm.record(tmp_path, 1)


@pytest.mark.parametrize("explore", [True, False])
def test_each_agents_turns_are_recorded_as_an_episode_with_what_they_earned(explore: bool, tmp_path: Path) -> None:
    with PPO(QUICK, env=Equals, envs_per_worker=2) as algorithm:
        algorithm.record(tmp_path, 7, explore=explore)
        episodes = read_episodes(tmp_path, algorithm.encoder, algorithm.decoder)
    assert len(episodes) == 7
    for episode in episodes:
        assert episode.observations.shape == (7, 4) and episode.terminated  # 12 turns of two agents
        signs = episode.observations[:-1].argmax(axis=1)
        assert episode.rewards.tolist() == (episode.actions == signs).astype(float).tolist()


def test_a_game_of_pettingzoo_is_recorded_and_cloned(tmp_path: Path) -> None:
    with PPO(QUICK, env=tictactoe(), envs_per_worker=2) as algorithm:
        algorithm.record(tmp_path, 20)
        episodes = read_episodes(tmp_path, algorithm.encoder, algorithm.decoder)
        squares = algorithm.encoder.feature_size
    assert {len(episode.rewards) for episode in episodes} <= {2, 3, 4, 5} and len(episodes) == 20
    for episode in episodes:
        for seen, action in zip(episode.observations, episode.actions, strict=False):
            assert seen[squares + action] == 1  # the mask allows it
        assert episode.rewards[:-1].tolist() == [0.0] * (len(episode.rewards) - 1)
    assert {episode.reward for episode in episodes} >= {1.0, -1.0}
    with BC(env=tictactoe(), episodes=str(tmp_path), seed=1, evaluation_episodes=4) as clone:
        assert clone.train()["learner"]["loss"] > 0
        assert 2 <= clone.evaluate()["episode_len_mean"] <= 5


def test_a_turn_based_environment_that_crashes_is_named() -> None:
    class Crashing(Alternating):
        def step(self, action: Any) -> None:
            if self._time == 4:
                raise OSError("the board is gone")
            super().step(action)

    expected = pytest.raises(EnvironmentFailed, match=r"step .* of environment 0 of .*Crashing in worker 0 failed: OSE")
    with MultiAgentPPO(QUICK, env=Crashing) as algorithm, expected:
        algorithm.train()


class Seeing(Pictures):
    """With a small image."""

    observation_space = spaces.Box(0, 255, (12, 12, 1), np.uint8)


class SeeingAndFeeling(TwoMatching):
    """One agent sees images, the other numbers."""

    def __init__(self) -> None:
        super().__init__()
        self._worlds["left"] = Seeing()

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self._worlds[agent].observation_space


def test_agents_learn_of_whom_one_sees_images_and_the_other_numbers() -> None:
    settings = {**QUICK, "convolutions": ((4, 3, 3), (8, 2, 2)), "image_features": 16}
    with MultiAgentPPO(settings, env=SeeingAndFeeling) as algorithm:
        for _ in range(40):
            rewards = algorithm.train()["agent_reward_mean"]
            if rewards["left"] > 7 and rewards["right"] > 4.3:
                break
        assert rewards["left"] > 7 and rewards["right"] > 4.3, rewards
        world = Seeing()
        image, _ = world.reset(seed=1)
        assert algorithm.policy_of("left").act(image) == world._sign


def test_images_of_different_sizes_lie_in_columns_of_bytes() -> None:
    class Sizes(SeeingAndFeeling):
        def observation_space(self, agent: str) -> spaces.Space[Any]:
            return spaces.Box(0, 255, (3, 4, 1) if agent == "left" else (2, 2, 2), np.uint8)

    sizes = AgentSpaces(Sizes())
    assert sizes.encoder.shape == (12,) and sizes.encoder.dtype == np.uint8
    rows = np.zeros((2, 12), np.uint8)
    images = {"left": np.arange(12).reshape(3, 4, 1), "right": np.arange(8).reshape(2, 2, 2)}
    for row, (agent, image) in zip(rows, images.items(), strict=True):
        sizes.encode(agent, image.astype(np.uint8), row)
        own = sizes.own_observations(agent, row[None])
        assert own.dtype == np.uint8 and np.array_equal(own[0], image)


def test_minibatches_of_whole_fragments_have_every_column() -> None:
    orders = column_shuffles(np.random.default_rng(0), 6, 2, 2)
    assert orders.shape == (6, 2)
    assert sorted(orders[:3].ravel().tolist()) == sorted(orders[3:].ravel().tolist()) == list(range(6))
    assert column_shuffles(np.random.default_rng(0), 3, 1, 8).shape == (1, 3)


@pytest.mark.parametrize("policies", ["shared", "independent", {"player_1": "a", "player_2": "a"}])
def test_a_game_of_pettingzoo_is_learnt_from(policies: Any) -> None:
    with MultiAgentPPO(QUICK, env=tictactoe(), envs_per_worker=2, policies=policies) as algorithm:
        result = algorithm.train()
        assert set(result["agent_reward_mean"]) == {"player_1", "player_2"}
        # A game has five to nine moves, and who begins makes one more at most.
        assert 2.5 <= result["episode_len_mean"] <= 5


class Recalling(Alternating):
    """Each agent's sign is shown at its first turn and stays; what it answers later earns."""

    order = ("big", "small", "small", "big")

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        super().reset(seed=seed)
        self._turns_of = dict.fromkeys(self.sizes, 0)
        self.turns = int(self._rng.integers(6, 12))

    def last(self) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        agent = self.agent_selection
        seen, *rest = super().last()
        return (seen if self._turns_of[agent] == 0 else np.zeros_like(seen)), *rest  # type: ignore[return-value]

    def step(self, action: Any) -> None:
        signs, agent = dict(self._signs), self.agent_selection
        super().step(action)
        self._signs = signs
        self._earned[agent] *= self._turns_of[agent] > 0
        self._turns_of[agent] += 1


def test_agents_remember_what_they_saw_at_their_own_turns() -> None:
    settings = {**QUICK, "fragment_steps": 16, "gamma": 0.5, "hidden": (16,), "units": 16}
    with MultiAgentPPO(settings, env=Recalling, memory="lstm") as algorithm:
        for _ in range(80):
            rewards = algorithm.train()["agent_reward_mean"]
            if rewards["big"] > 2.5 and rewards["small"] > 2.5:
                break
        # Of 6 to 11 turns each has about half, and but one of them earns: 3.25 on average, 0.8 and 1.6 by chance.
        assert rewards["big"] > 2.5 and rewards["small"] > 2.5, rewards
        assert algorithm.evaluate(8)["episode_reward_mean"] > 2.5
        policy = algorithm.policy_of("big")
        for sign in range(4):
            policy.reset()
            policy.act(np.eye(4, dtype=np.float32)[sign])
            assert policy.act(np.zeros(4, np.float32)) == sign


class TwoRemembering(TwoMatching):
    """Two agents that are shown a sign in their first step only; one is out before the other."""

    def __init__(self) -> None:
        self._worlds = {agent: Remembering() for agent in self.possible_agents}
        self._worlds["right"].steps = 3
        self.agents = []


class AlikeRemembering(TwoRemembering):
    turned = False


@pytest.mark.parametrize(("world", "policies"), [(TwoRemembering, "independent"), (AlikeRemembering, "shared")])
def test_agents_that_act_at_once_remember_too(world: Any, policies: str) -> None:
    settings = {**QUICK, "fragment_steps": 16, "gamma": 0.5, "hidden": (16,), "units": 16}
    with MultiAgentPPO(settings, env=world, memory="gru", policies=policies) as algorithm:
        for _ in range(80):
            rewards = algorithm.train()["agent_reward_mean"]
            if rewards["left"] > 2.5 and rewards["right"] > 1.6:
                break
        assert rewards["left"] > 2.5 and rewards["right"] > 1.6, rewards


class Noting(RecurrentStochastic):
    """Notes what its network puts out, by tick."""

    def begin(self, rng: Any, steps: int, count: int, exploration: float) -> dict[str, Any]:
        self._noted: list[Any] = []
        return super().begin(rng, steps, count, exploration)

    def _step(self, params: Any, observations: Any) -> Any:
        distribution = super()._step(params, observations)
        self._noted.append(distribution.logits)
        return distribution

    def recorded(self) -> dict[str, Any]:
        return {"action_inputs": np.stack(self._noted)}


def test_a_learner_unrolls_the_memory_that_the_worker_had() -> None:
    """Fragments begin in mid-episode, between an agent's last turn and the next episode, and with open turns."""

    class Few(Recalling):
        sizes: ClassVar[dict[str, int]] = {"big": 4, "small": 4}

    rng = np.random.default_rng(0)
    decoder = ActionDecoder(spaces.Discrete(4))
    encoder = ObservationEncoder(spaces.Box(0, 1, (4,), np.float32), decoder)
    model = RecurrentActorCritic.of(encoder, decoder, AlgorithmConfig(hidden=(6,)), "gru", 5)
    params = {name: value + rng.standard_normal(value.shape, np.float32) for name, value in model.init(rng).items()}
    world = open_environments(Few, 3, rng, "few")
    behaviour = Noting(model)
    world.reset()
    for _ in range(12):
        arrays = world.collect(behaviour, params, rng, 3, 0.0)  # type: ignore[attr-defined]
        done = arrays["terminated"] | arrays["truncated"] | ~arrays["valid"]
        starts = np.concatenate([np.zeros_like(done[:1]), done])
        inputs, _ = unroll(model, params, arrays["observations"], starts, arrays["initial_state"][0])
        valid = arrays["valid"]
        np.testing.assert_allclose(np.asarray(inputs)[:-1][valid], arrays["action_inputs"][valid], atol=1e-5)
        for row, column in np.argwhere(arrays["truncated"]).tolist():
            followed = unroll(
                model,
                params,
                arrays["observations"][: row + 2, column : column + 1],
                starts[: row + 2, column : column + 1] & (np.arange(row + 2) <= row)[:, None],
                arrays["initial_state"][0, column : column + 1],
            )[1]
            np.testing.assert_allclose(arrays["bootstrap"][row, column], float(followed[-1, 0]), atol=1e-5)
    world.close()


class Held(Matching):
    """A sign that stays for two steps."""

    def _show(self) -> Any:
        shown = super()._show() if self._time % 2 == 0 else np.eye(4, dtype=np.float32)[self._sign]
        return shown


def obedience(seen: Any, goal: Any, after: Any, reward: float) -> float:
    return float(np.argmax(seen[:4]) == goal) * reward


def make_hierarchy() -> Hierarchy:
    return Hierarchy(Held(), spaces.Discrete(4), 2, obedience)


def test_a_manager_learns_to_set_goals_and_a_worker_to_reach_them() -> None:
    with MultiAgentPPO(QUICK, env=make_hierarchy, learning_rate=2e-2) as algorithm:
        for _ in range(60):
            rewards = algorithm.train()["agent_reward_mean"]
            if min(rewards.values()) > 6.5:
                break
        assert min(rewards.values()) > 6.5, rewards


def test_of_an_agent_that_seldom_acts_only_its_steps_are_drawn() -> None:
    rng = np.random.default_rng(0)
    valid = np.zeros((40, 2), np.bool_)
    valid[[3, 7, 11], 1] = True
    assert set(shuffles(rng, valid, 2, 4).ravel().tolist()) == {7, 15, 23}
    assert shuffles(rng, np.ones((4, 4), np.bool_), 3, 5).shape == (3, 3, 5)
