"""Episodes in Parquet: written, read, cloned, and learnt from without an environment."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from worlds import Aiming, Masked, Matching, Nested, Remembering

from weft.rl import BC, PPO, SettingError, get_algorithm
from weft.rl.offline import EpisodeWriter, read_episodes, transitions
from weft.rl.spaces import ActionDecoder, ObservationEncoder, SpaceMismatch


def play(env: Any, choose: Any, episodes: int, folder: Path) -> None:
    """Record what `choose(env)` does."""
    with EpisodeWriter(folder, env.observation_space, env.action_space, rows_in_file=200) as writer:
        for seed in range(episodes):
            observations, actions, rewards, ended, cut = [env.reset(seed=seed)[0]], [], [], False, False
            while not (ended or cut):
                actions.append(choose(env))
                seen, reward, ended, cut, _ = env.step(actions[-1])
                observations.append(seen)
                rewards.append(reward)
            writer.add(observations, actions, rewards, ended)


def spaces_of(env: Any) -> tuple[ObservationEncoder, ActionDecoder]:
    decoder = ActionDecoder(env.action_space)
    return ObservationEncoder(env.observation_space, decoder), decoder


@pytest.mark.parametrize("world", [Matching, Aiming, Nested, Masked])
def test_what_is_read_is_what_was_written(world: Any, tmp_path: Path) -> None:
    env = world()
    env.action_space.seed(1)  # so that no two episodes are the same
    written: list[Any] = []

    def choose(env: Any) -> Any:
        mask = getattr(env, "_mask", None)
        written.append(env.action_space.sample(mask))
        return written[-1]

    play(env, choose, 60, tmp_path)
    assert len(list(tmp_path.glob("*.parquet"))) > 1
    encoder, decoder = spaces_of(env)
    episodes = read_episodes(tmp_path, encoder, decoder)
    assert [len(episode.rewards) for episode in episodes] == [8] * 60 and all(e.terminated for e in episodes)
    first = {len(read_episodes(file, encoder, decoder)) for file in tmp_path.glob("*.parquet")}
    assert sum(first) <= 60
    decoded = [np.asarray(decoder.decode(episode.actions)) for episode in episodes]
    given = np.asarray(written).reshape(60, 8, -1)
    found = np.asarray(decoded).reshape(60, 8, -1)
    order = [np.abs(found - one[None]).sum(axis=(1, 2)).argmin() for one in given]
    assert len(set(order)) == 60
    np.testing.assert_allclose(found[order], given, atol=1e-5)


def test_the_files_are_plain_parquet(tmp_path: Path) -> None:
    play(Matching(terminates=False), lambda env: env._sign, 2, tmp_path)
    table = pyarrow.parquet.read_table(tmp_path)
    assert table["reward"].to_pylist() == [1.0] * 16
    assert table["truncated"].to_pylist() == ([False] * 7 + [True]) * 2
    assert table["final_observation"].null_count == 14
    assert len(set(table["episode"].to_pylist())) == 2


def test_episodes_of_another_environment_are_refused(tmp_path: Path) -> None:
    play(Matching(), lambda env: 0, 1, tmp_path)
    with pytest.raises(SpaceMismatch, match="its observation_space is 'Box"):
        read_episodes(tmp_path, *spaces_of(Aiming()))
    with pytest.raises(FileNotFoundError, match="holds no episodes"):
        read_episodes(tmp_path / "none", *spaces_of(Aiming()))
    with pytest.raises(SettingError, match="episodes must name a folder"):
        BC(env=Matching)


def test_an_episode_that_is_none_is_refused(tmp_path: Path) -> None:
    writer = EpisodeWriter(tmp_path, Matching.observation_space, Matching.action_space)
    seen = np.zeros(4, np.float32)
    with pytest.raises(ValueError, match="one observation more"):
        writer.add([seen], [0], [1.0], True)
    with pytest.raises(ValueError, match="that of step 0 is not"):
        writer.add([seen, seen], [0], [np.nan], True)
    with pytest.raises(SpaceMismatch, match="an action must have shape"):
        writer.add([seen, seen], [np.zeros(3)], [1.0], True)


def test_transitions_of_several_steps_end_with_their_episode(tmp_path: Path) -> None:
    play(Matching(), lambda env: env._sign, 2, tmp_path)
    known = transitions(read_episodes(tmp_path, *spaces_of(Matching())), 3, 0.5)
    assert known["rewards"].tolist() == ([1.75] * 6 + [1.5, 1.0]) * 2
    assert known["discounts"].tolist() == ([0.125] * 5 + [0.0] * 3) * 2


def test_behaviour_is_cloned_by_the_best_episodes(tmp_path: Path) -> None:
    play(Matching(), lambda env: env._sign, 20, tmp_path)
    play(Matching(), lambda env: 0, 20, tmp_path)
    settings: dict[str, Any] = {"env": Matching, "episodes": str(tmp_path), "hidden": (16,), "learning_rate": 1e-2}
    with BC(settings, best_share=0.5, seed=1) as algorithm:
        result = [algorithm.train() for _ in range(3)][-1]
        assert result["evaluation"]["episode_reward_mean"] == 8
        checkpoint = algorithm.save(tmp_path / "checkpoint")
    with BC.from_checkpoint(checkpoint) as again:
        assert again.evaluate(2)["episode_reward_mean"] == 8


@pytest.mark.parametrize(
    ("name", "world", "enough"), [("DQN", Matching, 7.5), ("SAC", Aiming, -1.0), ("TD3", Aiming, -0.5)]
)
def test_it_learns_from_what_others_did_at_random(name: str, world: Any, enough: float, tmp_path: Path) -> None:
    env = world()
    env.action_space.seed(1)
    play(env, lambda env: env.action_space.sample(), 100, tmp_path)
    settings: dict[str, Any] = {"hidden": (32,), "gamma": 0.0, "learning_rate": 3e-3, "rounds_per_iteration": 4}
    with get_algorithm(name)(settings, env=world, episodes=str(tmp_path), seed=1, batch=32) as algorithm:
        for _ in range(12):
            result = algorithm.train()
            best = algorithm.evaluate(5)["episode_reward_mean"]
            if best >= enough:
                break
        assert best >= enough
        assert result["timesteps_total"] == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_an_algorithm_records_what_its_workers_play(workers: int, tmp_path: Path, weft_session: ModuleType) -> None:
    with PPO(env=Matching, workers=workers, envs_per_worker=2, fragment_steps=32, seed=1) as algorithm:
        algorithm.record(tmp_path, 7)
        algorithm.record(tmp_path, 2, explore=False)
        episodes = read_episodes(tmp_path, algorithm.encoder, algorithm.decoder)
    assert [len(episode.rewards) for episode in episodes] == [8] * 9


def test_what_a_policy_with_a_memory_plays_begins_each_episode_with_an_empty_one(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"env": Remembering, "hidden": (8,), "units": 8, "seed": 1, "fragment_steps": 8}
    with get_algorithm("RecurrentPPO")(settings) as algorithm:
        algorithm.train()
        algorithm.record(tmp_path, 12, explore=False)
        episodes, policy = read_episodes(tmp_path, algorithm.encoder, algorithm.decoder), algorithm.policy
    assert len(episodes) == 12
    for episode in episodes:
        policy.reset()
        assert [policy.act(seen) for seen in episode.observations[:-1]] == episode.actions.tolist()
