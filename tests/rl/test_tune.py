"""Algorithms as Tune's trainables, by the names and settings of 2018."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from worlds import Matching

from weft import tune
from weft.rl import get_trainable, register_env
from weft.rl.environments import make


def test_an_experiment_names_an_algorithm_an_environment_and_old_settings(
    weft_session: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNE_RESULT_DIR", str(tmp_path))
    trials = tune.run_experiments(
        {
            "my": {
                "run": "PG",
                "env": "CartPole-v1",
                "stop": {"training_iteration": 2},
                "config": {
                    "num_workers": 0,
                    "num_envs": 2,
                    "sample_batch_size": 16,
                    "sgd_stepsize": tune.grid_search([0.01, 0.001]),
                },
                "local_dir": str(tmp_path),
            }
        }
    )
    assert [trial.last_result["timesteps_total"] for trial in trials] == [64, 64]
    assert sorted(trial.config["sgd_stepsize"] for trial in trials) == [0.001, 0.01]


def test_a_name_that_is_no_algorithm_is_none_to_tune() -> None:
    assert get_trainable("none such") is None


def test_a_creator_may_take_the_whole_configuration() -> None:
    register_env("whole", lambda config: Matching(**config))
    register_env("keywords", Matching)
    for name in ("whole", "keywords"):
        assert make(name, {"terminates": False})._terminates is False
