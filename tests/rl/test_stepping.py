"""One contract for environments stepped together, whoever steps them and however they reset themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from worlds import BadVector

from weft.rl.stepping import EnvironmentFailed, open_environments


class Counting(gymnasium.Env[Any, Any]):
    """Shows (episode, step). Episodes have 3 steps and end by turns in termination and truncation."""

    observation_space = spaces.Box(0, 1000, (2,), np.float32)
    action_space = spaces.Discrete(2)
    episode = -1

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode += 1
        self.time = 0
        return np.array([self.episode, 0], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        ended = self.time == 3
        observation = np.array([self.episode, self.time], np.float32)
        return observation, float(self.time), ended and self.episode % 2 == 0, ended and self.episode % 2 == 1, {}


MAKERS: dict[str, Callable[[], Any]] = {
    "list": Counting,
    "next step": lambda: SyncVectorEnv([Counting] * 2, autoreset_mode=AutoresetMode.NEXT_STEP),
    "same step": lambda: SyncVectorEnv([Counting] * 2, autoreset_mode=AutoresetMode.SAME_STEP),
    "disabled": lambda: SyncVectorEnv([Counting] * 2, autoreset_mode=AutoresetMode.DISABLED),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_every_kind_tells_the_same_story(kind: str) -> None:
    environments = open_environments(MAKERS[kind], 2, np.random.default_rng(0), "counting")
    observations = environments.reset()
    seen, rows = [], 0
    while len(seen) < 9:
        step = environments.step(np.zeros(2, np.int32))
        rows += 1
        assert np.array_equal(step.valid, [step.valid[0]] * 2)
        if step.valid[0]:
            after = step.finals.get(0, step.observations[0])
            seen.append(
                (
                    observations[0].tolist(),
                    after.tolist(),
                    step.rewards[0],
                    bool(step.terminated[0]),
                    bool(step.truncated[0]),
                )
            )
            assert (0 in step.finals) == (step.terminated[0] or step.truncated[0])
        else:
            assert not step.rewards.any() and not step.terminated.any() and not step.truncated.any() and not step.finals
        observations = step.observations
    environments.close()
    expected = [
        (
            [episode, time],
            [episode, time + 1],
            time + 1.0,
            time == 2 and episode % 2 == 0,
            time == 2 and episode % 2 == 1,
        )
        for episode in range(3)
        for time in range(3)
    ]
    assert seen == expected
    assert [(episode.reward, episode.length) for episode in environments.episodes[:4]] == [(6.0, 3)] * 4
    assert rows == (11 if kind == "next step" else 9)


def test_a_saved_episode_is_played_again_to_where_it_was() -> None:
    def make() -> Any:
        return gymnasium.make("CartPole-v1")

    first = open_environments(make, 2, np.random.default_rng(1), "CartPole-v1")
    first.reset()
    for time in range(25):
        step = first.step(np.array([time % 2, time % 3 % 2], np.int32))
    saved = first.state()
    assert saved is not None
    second = open_environments(make, 2, np.random.default_rng(2), "CartPole-v1")
    assert np.array_equal(second.restore(saved), step.observations)
    after = [environments.step(np.array([1, 0], np.int32)) for environments in (first, second)]
    assert np.array_equal(after[0].observations, after[1].observations)


def test_the_native_vector_environment_of_cartpole_is_driven_too() -> None:
    def make() -> Any:
        return gymnasium.make_vec("CartPole-v1", num_envs=3, vectorization_mode="vector_entry_point")

    environments = open_environments(make, 1, np.random.default_rng(1), "CartPole-v1")
    environments.reset()
    invalid = sum(int((~environments.step(np.ones(3, np.int32)).valid).sum()) for _ in range(40))
    assert environments.count == 3
    assert 0 < invalid <= len(environments.episodes)
    environments.close()


def cartpole(limit: int, wrapper: Any = None) -> Any:
    made = gymnasium.make("CartPole-v1", max_episode_steps=limit, disable_env_checker=True)
    return wrapper(made) if wrapper else made


@pytest.mark.parametrize("limit", [1, 7, 30])
def test_episodes_are_cut_off_where_the_wrapper_of_gymnasium_cuts_them(limit: int) -> None:
    """Its wrappers are stepped around; with another one outside them they are not."""
    stories = []
    for wrapper in (None, gymnasium.wrappers.RecordEpisodeStatistics):
        environments = open_environments(lambda: cartpole(limit, wrapper), 3, np.random.default_rng(2), "poles")  # noqa: B023
        actions = np.random.default_rng(3)
        story = [environments.reset().tolist()]
        for _ in range(100):
            step = environments.step(actions.integers(0, 2, 3))
            finals = {index: final.tolist() for index, final in step.finals.items()}
            story.append([step.observations.tolist(), step.terminated.tolist(), step.truncated.tolist(), finals])
        stories.append((story, environments.episodes))
        environments.close()
    assert stories[0] == stories[1]
    assert max(episode.length for episode in stories[0][1]) <= limit
    assert any(any(truncated) for _, _, truncated, _ in stories[0][0][1:])


def test_a_restored_episode_is_cut_off_where_it_would_have_been() -> None:
    def opened() -> Any:
        return open_environments(lambda: cartpole(12), 2, np.random.default_rng(4), "poles")

    def follow(environments: Any) -> list[Any]:
        steps = [environments.step(np.array([time % 2, time % 2])) for time in range(40)]
        return [(step.observations.tolist(), step.truncated.tolist()) for step in steps]

    first, second = opened(), opened()
    first.reset()
    for time in range(5):
        first.step(np.array([time % 2, 1 - time % 2]))
    second.restore(first.state())
    assert follow(first) == follow(second)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (
            "reset",
            np.zeros((2, 4), np.float32),
            r"reset 0 .* must return \(observation, info\), but returned a ndarray",
        ),
        ("reset", (np.zeros((3, 4), np.float32), {}), "reset 0 .* observations must be those of 2 .*, but are 3"),
        ("step", (1, 2, 3, 4), "step 4 .* must return .*, but returned 4 values"),
        ("observation", np.zeros((1, 4), np.float32), "step 4 .* observations must be those of 2 .*, but are 1"),
        ("observation", np.zeros((2, 5), np.float32), r"step 4 .* must have shape \(4,\) .* from its environment 0"),
        ("reward", np.ones(3), r"step 4 .* reward must be numbers of shape \(2,\), but got float64 of shape \(3,\)"),
        ("reward", np.array([1.0, None]), "step 4 .* reward must be numbers .* but got object"),
        ("terminated", True, r"step 4 .* terminated must be numbers of shape \(2,\), but got bool of shape \(\)"),
    ],
)
def test_a_vector_environment_that_lies_is_named_with_its_step_and_field(field: str, value: Any, message: str) -> None:
    environments = open_environments(lambda: BadVector(field, value), 2, np.random.default_rng(0), "BadVector")

    def play() -> None:
        environments.reset()
        for _ in range(5):
            environments.step(np.zeros(2, np.int64))

    with pytest.raises(EnvironmentFailed, match=message):
        play()
