"""PPO, and through it what all algorithms share: learning, workers, checkpoints, evaluation, bad environments."""

from __future__ import annotations

import errno
import json
import os
import signal
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest
from worlds import Aiming, Bad, Masked, Matching, Nested, Pictures

from weft.rl import PPO, EnvironmentFailed, SettingError, get_algorithm, register_env
from weft.rl.checkpoint import CheckpointError
from weft.rl.environments import UnknownEnvironment
from weft.rl.names import UNNAMED
from weft.rl.registry import UnknownAlgorithm, load

QUICK: dict[str, Any] = {
    "seed": 1,
    "envs_per_worker": 8,
    "fragment_steps": 32,
    "hidden": (32,),
    "learning_rate": 3e-3,
    "minibatch": 64,
    "epochs": 6,
    "gamma": 0.5,
    "metrics_window": 20,
}


def best_reward(algorithm: PPO, iterations: int, enough: float) -> float:
    best = -np.inf
    for _ in range(iterations):
        best = max(best, algorithm.train()["episode_reward_mean"])
        if best >= enough:
            break
    return float(best)


@pytest.mark.parametrize(
    ("env", "enough", "settings"),
    [
        (Matching, 7.5, {}),
        (Aiming, -0.4, {"learning_rate": 1e-2, "initial_log_std": -0.5}),
        (Nested, 7.5, {"learning_rate": 1e-2}),
        (Masked, 7.5, {}),
    ],
)
def test_it_learns_with_every_kind_of_space(env: type[Any], enough: float, settings: dict[str, Any]) -> None:
    with PPO({**QUICK, **settings}, env=env) as algorithm:
        assert best_reward(algorithm, 40, enough) >= enough


def test_it_learns_from_pictures() -> None:
    with PPO(QUICK, env=Pictures, convolutions=((4, 6, 6), (8, 2, 2)), image_features=32) as algorithm:
        assert best_reward(algorithm, 30, 7.0) >= 7.0


def test_it_learns_in_a_vector_environment_that_resets_in_the_next_step() -> None:
    def make() -> Any:
        return gymnasium.vector.SyncVectorEnv([Matching] * 4)

    with PPO(QUICK, env=make) as algorithm:
        result = algorithm.train()
        assert result["timesteps_total"] < 32 * 4, "steps in which environments reset were counted"
        assert best_reward(algorithm, 40, 7.0) >= 7.0


def test_workers_learn_and_are_light(weft_session: ModuleType) -> None:
    with PPO(QUICK, env=Matching, workers=2) as algorithm:
        assert best_reward(algorithm, 40, 7.5) >= 7.5
        statistics = algorithm.workers.statistics()
    assert len({worker["pid"] for worker in statistics} | {os.getpid()}) == 3
    assert all(worker["frameworks"] == [] for worker in statistics)
    assert all(worker["memory_bytes"] < 80e6 for worker in statistics)


def test_a_killed_worker_costs_its_fragment_and_nothing_else(weft_session: ModuleType) -> None:
    with PPO(QUICK, env=Matching, workers=2) as algorithm:
        algorithm.train()
        pids = [worker["pid"] for worker in algorithm.workers.statistics()]
        os.kill(pids[0], signal.SIGKILL)
        result = algorithm.train()
        assert result["timesteps_this_iter"] == 2 * 32 * 8
        assert result["workers_restarted"] == 1
        assert [worker["pid"] == pid for worker, pid in zip(algorithm.workers.statistics(), pids, strict=True)] == [
            False,
            True,
        ]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_resumed_run_has_the_curve_of_one_that_went_on(
    workers: int, tmp_path: Path, weft_session: ModuleType
) -> None:
    def curve(algorithm: PPO) -> list[tuple[float, float]]:
        results = [algorithm.train() for _ in range(3)]
        return [(result["episode_reward_mean"], result["learner"]["value_loss"]) for result in results]

    settings = {**QUICK, "env": "CartPole-v1", "workers": workers, "fragment_steps": 20}
    with PPO(settings) as algorithm:
        for _ in range(2):
            algorithm.train()
        checkpoint = algorithm.save(tmp_path / "checkpoint")
        went_on = curve(algorithm)
    with PPO.from_checkpoint(checkpoint) as resumed:
        assert resumed.metrics.iteration == 2
        assert curve(resumed) == went_on
    with PPO({**settings, "seed": 77}) as other:
        assert curve(other) != went_on
        other.restore(checkpoint)
        assert curve(other) == went_on


def test_a_checkpoint_is_tensors_and_json(tmp_path: Path) -> None:
    with PPO(QUICK, env="CartPole-v1") as algorithm:
        algorithm.train()
        folder = algorithm.save(tmp_path / "here")
        observation = np.array([0.1, 0.0, -0.1, 0.2], np.float32)
        action = algorithm.policy.act(observation)
    assert sorted(path.name for path in folder.iterdir()) == [
        "learner.safetensors",
        "policy.safetensors",
        "state.json",
        "workers.safetensors",
    ]
    assert json.loads((folder / "state.json").read_text())["config"]["env"] == "CartPole-v1"
    assert PPO.load_policy(folder).act(observation) == action
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here"]
    with load(folder) as algorithm:
        assert isinstance(algorithm, PPO)
    with pytest.raises(CheckpointError, match=r"no state\.json"):
        PPO.from_checkpoint(tmp_path)
    with PPO(QUICK, env="CartPole-v1", hidden=(8,)) as narrow, pytest.raises(CheckpointError, match="has shape"):
        narrow.restore(folder)


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with PPO(QUICK, env=Matching) as algorithm:
        folder = algorithm.save(tmp_path / "here")
        state = (folder / "state.json").read_bytes()
        algorithm.train()
        monkeypatch.setattr("weft.rl.checkpoint.save_file", full)
        with pytest.raises(OSError, match="No space left"):
            algorithm.save(folder)
        assert (folder / "state.json").read_bytes() == state
        assert [path.name for path in tmp_path.iterdir()] == ["here"], "half a checkpoint is left behind"
        monkeypatch.undo()
        algorithm.save(folder)
        assert (folder / "state.json").read_bytes() != state
        assert [path.name for path in tmp_path.iterdir()] == ["here"]


def test_a_folder_that_is_no_checkpoint_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with (
        PPO(QUICK, env=Matching) as algorithm,
        pytest.raises(CheckpointError, match="is no checkpoint, so it is not replaced"),
    ):
        algorithm.save(tmp_path)
    assert (tmp_path / "thesis.txt").exists()


@pytest.mark.parametrize("damaged", ["state.json", "policy.safetensors", "learner.safetensors", "workers.safetensors"])
def test_a_damaged_checkpoint_says_so(damaged: str, tmp_path: Path) -> None:
    with PPO(QUICK, env=Matching) as algorithm:
        folder = algorithm.save(tmp_path / "here")
        whole = (folder / damaged).read_bytes()
        before = algorithm.weights()
        for content in (whole[: len(whole) // 2], b"", b"{}"):
            (folder / damaged).write_bytes(content)
            with pytest.raises(CheckpointError, match=r"here (cannot be read|has format None)"):
                algorithm.restore(folder)
        (folder / damaged).unlink()
        with pytest.raises(CheckpointError, match=r"here (cannot be read|is no checkpoint)"):
            algorithm.restore(folder)
        np.testing.assert_array_equal(algorithm.weights(), before)


def test_evaluation_leaves_training_as_it_was() -> None:
    curves = []
    for evaluates in (True, False):
        with PPO(QUICK, env="CartPole-v1") as algorithm:
            algorithm.train()
            if evaluates:
                evaluated = algorithm.evaluate(5)
                assert evaluated["episode_len_mean"] == evaluated["episode_reward_mean"] > 0
            curves.append(algorithm.train()["episode_reward_mean"])
    assert curves[0] == curves[1]


def test_a_worker_that_is_killed_between_iterations_is_replaced_by_whatever_is_asked_next(
    tmp_path: Path, weft_session: ModuleType
) -> None:
    with PPO(QUICK, env=Matching, workers=2) as algorithm:
        algorithm.train()
        asked = (
            lambda: algorithm.evaluate(3)["episode_len_mean"] == 8,
            lambda: (algorithm.save(tmp_path / "checkpoint") / "state.json").exists(),
            lambda: len(list(algorithm.record(tmp_path / "episodes", 3).iterdir())) > 0,
            lambda: algorithm.restore(tmp_path / "checkpoint") is None,
        )
        for number, is_answered in enumerate(asked):
            os.kill(algorithm.workers.statistics()[number % 2]["pid"], signal.SIGKILL)
            assert is_answered()
        assert algorithm.train()["timesteps_total"] == 2 * 2 * 32 * 8


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("crash in step", r"step 4 of environment 0 of Bad in worker 0 failed: OSError: the simulator has gone"),
        ("wrong shape", r"step 4 of environment 0 .* observation must have shape \(4,\)"),
        ("wrong dtype", r"step 4 of environment 0 .* observation must have dtype float32"),
        ("reward of text", r"step 4 of environment 0 .* the reward must be a number, but got 'much'"),
        ("reward of two", r"step 4 of environment 0 .* the reward must be a number, but got \[1.0, 2.0\]"),
        ("no reward", r"environment 0 of Bad in worker 0: at its step 4 the reward is not finite"),
        ("ended by text", r"step 4 of environment 0 .* terminated must be True or False, but got 'yes'"),
        ("step of old", r"step 4 of environment 0 .* must return \(observation, .* but returned 4 values"),
        ("reset of old", r"reset 0 of environment 0 .* must return \(observation, info\), but returned a ndarray"),
        ("NaN reward", r"environment 0 of Bad in worker 0: at its step 4 the reward is not finite: nan"),
        ("NaN observation", r"environment 0 of Bad in worker 0: at its step 5 the observation is not finite"),
        ("lying bounds", r"environment 0 of Bad in worker 0: at its step 5 the observation lies outside Box"),
    ],
)
def test_a_bad_environment_is_named_with_its_step_and_field(how: str, message: str) -> None:
    with PPO(QUICK, env=Bad, env_config={"how": how}) as algorithm:
        before = algorithm.weights()
        with pytest.raises(EnvironmentFailed, match=message):
            algorithm.train()
        assert np.array_equal(algorithm.weights(), before)


def test_an_environment_that_hangs_in_reset_is_named() -> None:
    expected = pytest.raises(EnvironmentFailed, match="reset 0 of environment 0 of Bad in worker 0 did not come back")
    with PPO(QUICK, env=Bad, env_config={"how": "hang in reset"}, sample_timeout_s=0.2) as algorithm, expected:
        algorithm.train()


@pytest.mark.parametrize("how", ["NaN reward", "hang in reset", "death"])
def test_the_worker_of_a_bad_environment_is_restarted_where_told_to(
    how: str, tmp_path: Path, weft_session: ModuleType
) -> None:
    settings = {"how": how, "flag": str(tmp_path / "flag")}
    with PPO(
        QUICK, env=Bad, env_config=settings, workers=1, on_environment_error="restart", sample_timeout_s=2.0
    ) as algorithm:
        result = algorithm.train()
    lost_steps = 1 if how == "NaN reward" else 0  # it costs its environment that step, and the worker nothing
    assert result["environments_restarted"] == lost_steps
    assert result["workers_restarted"] == 1 - lost_steps
    assert result["timesteps_total"] == 32 * 8 - lost_steps


def test_an_environment_that_never_works_ends_the_run(weft_session: ModuleType) -> None:
    settings = {**QUICK, "env": Bad, "workers": 1, "on_environment_error": "restart"}
    for how, message in (("crash in step", "the simulator has gone"), ("death", "worker 0 of Bad died: .*SIGKILL")):
        expected = pytest.raises(EnvironmentFailed, match=message)
        with PPO(settings, env_config={"how": how}) as algorithm, expected:
            algorithm.train()


def test_environments_and_algorithms_are_found_by_name() -> None:
    register_env("matching", Matching)
    with get_algorithm("ppo")(QUICK, env="matching") as algorithm:
        assert algorithm.train()["timesteps_total"] == 256
    with pytest.raises(UnknownEnvironment, match="did you mean 'CartPole-v1'"):
        PPO(env="CartPole-v")
    with pytest.raises(UnknownEnvironment, match="env='ale_py:ALE/NoGame-v5'"):
        PPO(env="ALE/NoGame-v5")
    with pytest.raises(UnknownEnvironment, match="each worker makes its own"):
        PPO(env=Matching())
    with pytest.raises(UnknownEnvironment, match=r"pass it again with env=\. To act without one"):
        PPO(env=UNNAMED)  # as a checkpoint says of a class of the program itself
    with pytest.raises(SettingError, match="PPOConfig or a dictionary of settings is needed, but got 5"):
        PPO(5)  # type: ignore[arg-type]
    with pytest.raises(UnknownAlgorithm, match="did you mean 'PPO'"):
        get_algorithm("PPPO")
