"""Programs for Stable-Baselines3: `learn`, `predict`, `save`, `load`, `evaluate_policy`, and its names of settings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from worlds import Aiming, Matching

from weft.rl import BC, DQN, PPO, SAC, Policy, RecurrentPPO, SettingError, evaluate_policy, load
from weft.rl.checkpoint import CheckpointError
from weft.rl.policy_file import PolicyFileError

SMALL: dict[str, Any] = {"seed": 1, "hidden": (16,), "envs_per_worker": 4, "fragment_steps": 16, "minibatch": 32}


def test_the_program_of_its_first_page_runs(tmp_path: Path) -> None:
    model = PPO("CartPole-v1", **SMALL).learn(200)
    assert 200 <= model.metrics.timesteps < 200 + 64
    env = gymnasium.make("CartPole-v1")
    observation, _ = env.reset(seed=0)
    action, state = model.predict(observation, deterministic=True)
    assert state is None
    env.step(action)
    folder = model.save(tmp_path / "ppo_cartpole")
    again = PPO.load(folder)
    assert again.predict(observation, deterministic=True)[0] == action
    mean, spread = evaluate_policy(again, n_eval_episodes=3)
    assert mean >= 8 and spread >= 0
    rewards, lengths = evaluate_policy(again, env, 2, return_episode_rewards=True)
    assert rewards == [float(length) for length in lengths], "CartPole gives 1 a step"
    assert again.learn(64).metrics.timesteps >= 264
    for algorithm in (model, again):
        algorithm.stop()
    env.close()


def test_its_policy_names_and_environments_are_understood() -> None:
    env = gymnasium.make("CartPole-v1")
    for arguments in (("MlpPolicy", "CartPole-v1"), ("MlpPolicy", env), (env,)):
        with PPO(*arguments, n_steps=8, n_epochs=3, batch_size=16, ent_coef=0.01, clip_range=0.1, n_envs=2) as model:
            config = model.config
            assert config.env == "CartPole-v1"
            assert (config.fragment_steps, config.epochs, config.minibatch, config.envs_per_worker) == (8, 3, 16, 2)
            assert (config.entropy_weight, config.clip) == (0.01, 0.1)
    with DQN(Matching, batch_size=16, target_update_interval=7, buffer_size=500, learning_starts=50) as model:
        assert (model.config.batch, model.config.target_interval, model.config.replay_capacity) == (16, 7, 500)
    env.close()
    with pytest.raises(SettingError, match="after the name of a policy comes the environment"):
        PPO("MlpPolicy")
    with pytest.raises(SettingError, match="given twice"):
        PPO("CartPole-v1", "Acrobot-v1")


def test_predictions_are_those_of_the_weights_of_now_for_one_or_many_observations() -> None:
    with PPO(Matching, **{**SMALL, "learning_rate": 0.05}) as model:
        rows = np.eye(4, dtype=np.float32)
        before = [model.policy.act(row) for row in rows]
        assert model.predict(rows, deterministic=True)[0].tolist() == before
        model.learn(4000)
        assert model.predict(rows, deterministic=True)[0].tolist() == [0, 1, 2, 3]
        drawn = {int(model.predict(rows[0])[0]) for _ in range(50)}
        assert 0 in drawn
    with PPO(Aiming, **SMALL) as model:
        assert model.predict(np.zeros((3, 1), np.float32), deterministic=True)[0].shape == (3, 1)
        assert np.shape(model.predict(np.zeros(1, np.float32))[0]) == (1,)


def test_a_callback_sees_each_result_and_can_end_training() -> None:
    seen: list[int] = []

    def callback(result: dict[str, Any]) -> bool:
        seen.append(result["timesteps_total"])
        return len(seen) < 2

    with PPO(Matching, **SMALL) as model:
        model.learn(10_000, callback)
    assert seen == [64, 128]


def test_a_memory_begins_anew_where_an_episode_does() -> None:
    with RecurrentPPO(Matching, **{**SMALL, "minibatch": 1}) as model:
        policy = model.policy
        rows = np.eye(4, dtype=np.float32)
        policy.predict(rows[0], episode_start=True, deterministic=True)
        first = policy._behaviour.state.copy()  # type: ignore[attr-defined]
        policy.predict(rows[1], deterministic=True)
        assert not np.array_equal(policy._behaviour.state, first)  # type: ignore[attr-defined]
        policy.predict(rows[0], episode_start=np.array([True]), deterministic=True)
        assert np.array_equal(policy._behaviour.state, first)  # type: ignore[attr-defined]


def test_what_has_no_environment_says_so(tmp_path: Path) -> None:
    with PPO(Matching, **SMALL) as model:
        model.record(tmp_path / "episodes", 4)
        policy = load(model.policy.save(tmp_path / "policy.safetensors"))
    assert evaluate_policy(policy, Matching, 2)[0] >= 0
    with pytest.raises(SettingError, match="a policy has no environment of its own"):
        evaluate_policy(policy)
    cloning = BC(env=Matching, episodes=str(tmp_path / "episodes"), evaluation_interval=0, updates_per_iteration=2)
    with cloning as model, pytest.raises(SettingError, match=r"call train\(\) in a loop"):
        model.learn(100)


def test_what_has_another_name_here_is_answered_with_it(tmp_path: Path) -> None:
    with PPO("CartPole-v1", **SMALL) as model:
        for name, right in {
            "num_timesteps": "metrics.timesteps",
            "observation_space": "encoder.space",
            "action_space": "decoder.space",
            "get_parameters": "weights()",
            "export_onnx": "policy.export_onnx",
            "logger": "tensorboard=",
        }.items():
            with pytest.raises(AttributeError, match=re.escape(right)):
                getattr(model, name)
        for keyword, right in {"log_interval": "callback=print", "reset_num_timesteps": "steps are counted on"}.items():
            with pytest.raises(TypeError, match=right):
                model.learn(10, **{keyword: 1})
        for steps in (0, -5, "many", float("nan")):
            with pytest.raises(SettingError, match="takes a number of steps above 0"):
                model.learn(steps)  # type: ignore[arg-type]
        with pytest.raises(SettingError, match="one function of each result"):
            model.learn(10, callback=[print])  # type: ignore[arg-type]
        assert model.metrics.timesteps == 0
        file = model.policy.save(tmp_path / "policy.safetensors")
        folder = model.save(tmp_path / "checkpoint")
    with pytest.raises(CheckpointError, match=r"weft\.rl\.load reads it"):
        PPO.load(file)
    with pytest.raises(CheckpointError, match="there is no checkpoint at"):
        load(tmp_path / "nowhere")
    with pytest.raises(PolicyFileError, match=r"use Policy\.from_checkpoint"):
        Policy.load(folder)


def test_settings_of_other_algorithms_say_what_to_write_here() -> None:
    for make, setting, right in (
        (DQN, {"exploration_fraction": 0.1}, "exploration_timesteps="),
        (DQN, {"tau": 0.1}, "target_interval"),
        (DQN, {"train_freq": 4}, "fragment_steps="),
        (DQN, {"gradient_steps": 4}, "updates_per_step="),
        (SAC, {"ent_coef": "auto"}, "initial_temperature="),
    ):
        with pytest.raises(SettingError, match=right):
            make("MlpPolicy", "CartPole-v1", **setting)  # type: ignore[operator]
    with pytest.raises(SettingError, match="MlpLstmPolicy has a memory; use RecurrentPPO"):
        PPO("MlpLstmPolicy", "CartPole-v1")
    with RecurrentPPO("MlpLstmPolicy", "CartPole-v1", **{**SMALL, "minibatch": 1}) as model:
        assert model.policy.remembers
