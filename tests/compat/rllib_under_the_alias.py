"""`ray.rllib` where `import ray` finds Weft. Run by `test_ray_words.py`, with `python -m weft.compat`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import ray
from ray import tune
from ray.rllib.algorithms import IMPALAConfig
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.ppo import PPO, PPOConfig
from ray.rllib.algorithms.sac import SACConfig
from ray.rllib.core.rl_module import RLModule
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, EPISODE_RETURN_MEAN
from ray.tune.registry import register_env


@pytest.fixture(scope="module", autouse=True)
def session() -> Iterator[None]:
    with ray.init(num_cpus=2):
        yield


class Corridor(gymnasium.Env[Any, Any]):
    """Walk to the right, `length` times."""

    def __init__(self, config: Any = None) -> None:
        self.length = config.get("length", 3)  # RLlib gives a context even where no env_config is set
        self.observation_space = gymnasium.spaces.Box(0.0, 100.0, (1,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.position = 0
        return np.array([0.0], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.position = max(0, self.position + (1 if action == 1 else -1))
        done = self.position >= self.length
        return np.array([self.position], np.float32), 1.0 if done else -0.1, done, False, {}


def small() -> PPOConfig:
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=4)
        .training(
            lr=0.0002, train_batch_size_per_learner=128, num_epochs=2, minibatch_size=32, gamma=0.9, clip_param=0.3
        )
        .framework("torch")
        .debugging(seed=3, log_level="WARN")
    )


def test_settings_are_those_of_weft_rl() -> None:
    config = small().rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[16, 16], fcnet_activation="swish"))
    settings = config.settings()
    assert (settings["hidden"], settings["activation"], settings["learning_rate"]) == ((16, 16), "silu", 0.0002)
    assert (settings["fragment_steps"], settings["minibatch"], settings["clip"]) == (32, 32, 0.3)
    assert config.lr == 0.0002 and config["num_epochs"] == 2 and config.algo_class is PPO
    replay = DQNConfig().environment("CartPole-v1").training(
        replay_buffer_config={"type": "PrioritizedEpisodeReplayBuffer", "capacity": 5_000, "alpha": 0.5},
        epsilon=[(0, 1.0), (1_000, 0.1)], train_batch_size=16,
    )  # fmt: skip
    made = replay.settings()
    assert (made["replay_capacity"], made["prioritized"], made["batch"]) == (5_000, True, 16)
    assert (made["initial_exploration"], made["final_exploration"], made["exploration_timesteps"]) == (1.0, 0.1, 1_000)
    assert SACConfig().training(tau=0.01, initial_alpha=0.5).settings() == {"tau": 0.01, "initial_temperature": 0.5}
    assert IMPALAConfig().training(grad_clip=2.0, entropy_coeff=0.1).settings()["gradient_norm"] == 2.0


def test_words_without_a_counterpart_are_refused_by_name() -> None:
    with pytest.raises(NotImplementedError, match="vf_clip_param"):
        PPOConfig().training(vf_clip_param=1.0)
    with pytest.raises(NotImplementedError, match="'trian_batch_size'; did you mean 'train_batch_size'"):
        PPOConfig().training(trian_batch_size=1.0)
    with pytest.raises(NotImplementedError, match="num_learners=2"):
        PPOConfig().learners(num_learners=2).environment("CartPole-v1").settings()
    with pytest.raises(NotImplementedError, match="MultiAgentPPO"):
        PPOConfig().multi_agent(policies={"a"})
    with pytest.raises(NotImplementedError, match=r"PPO of weft\.rl has nothing for RLlib's 'dueling'"):
        PPOConfig().training(dueling=True).settings()
    with pytest.raises(NotImplementedError, match="RecurrentPPO"):
        PPOConfig().rl_module(model_config={"use_lstm": True}).settings()


def test_an_algorithm_trains_saves_and_goes_on(tmp_path: Path) -> None:
    algo = small().evaluation(evaluation_interval=1, evaluation_duration=2).build_algo()
    result = algo.train()
    assert result["training_iteration"] == 1 and result["num_env_steps_sampled_lifetime"] == 128
    assert not math.isnan(result["env_runners"]["episode_return_mean"])
    assert result["evaluation"]["env_runners"]["episode_len_mean"] > 0 and result["learners"]["default_policy"]
    folder = algo.save_to_path(tmp_path / "saved")
    second = algo.train()["num_env_steps_sampled_lifetime"]
    again = Algorithm.from_checkpoint(folder)
    assert isinstance(again, PPO) and again.train()["num_env_steps_sampled_lifetime"] == second == 256
    observation = np.zeros(4, np.float32)
    assert algo.compute_single_action(observation, explore=False) in (0, 1)
    assert set(algo.evaluate()) == {"env_runners"}
    algo.restore_from_path(folder)
    module = RLModule.from_checkpoint(Path(folder) / "learner_group" / "learner" / "rl_module" / "default_policy")
    told, same = (each.forward_inference({"obs": observation[None]}) for each in (module, algo.get_module()))
    np.testing.assert_array_equal(told["action_dist_inputs"], same["action_dist_inputs"])
    assert told["action_dist_inputs"].shape == (1, 2) and told["actions"] == told["action_dist_inputs"].argmax()
    again.stop()
    algo.stop()


@pytest.mark.parametrize("is_registered", [True, False])
def test_environments_get_a_context(is_registered: bool) -> None:
    register_env("corridor", lambda context: Corridor(context))
    env = "corridor" if is_registered else Corridor
    algo = small().environment(env, env_config={"length": 2}).build_algo()
    assert algo.train()["env_runners"]["episode_len_mean"] >= 2
    algo.stop()
    plain = small().environment(env).build_algo()
    assert plain.train()["env_runners"]["episode_len_mean"] >= 3
    plain.stop()


@pytest.mark.parametrize("by_name", [True, False])
def test_algorithms_are_tuned(by_name: bool, tmp_path: Path) -> None:
    config = small().training(lr=tune.grid_search([1e-3, 1e-4]))
    tuner = tune.Tuner(
        "PPO" if by_name else config.algo_class,
        param_space=config,
        run_config=tune.RunConfig(stop={"training_iteration": 2}, storage_path=str(tmp_path), verbose=0),
    )
    results = tuner.fit()
    best = results.get_best_result(metric=f"{ENV_RUNNER_RESULTS}/{EPISODE_RETURN_MEAN}", mode="max")
    assert len(results) == 2 and not results.errors
    assert best.metrics["env_runners"]["episode_return_mean"] > 0 and best.config["lr"] in (1e-3, 1e-4)
