"""Evaluation beside training, a learner on several devices, and workers that are killed whenever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from types import ModuleType
from typing import Any

import pytest
from worlds import Matching

from weft.rl import PPO, SettingError, get_algorithm

QUICK: dict[str, Any] = {"env": Matching, "seed": 1, "hidden": (16,), "fragment_steps": 16, "envs_per_worker": 4}


def evaluated(algorithm: Any) -> dict[str, Any]:
    for _ in range(500):
        result = algorithm.train()
        if "evaluation" in result:
            return dict(result["evaluation"])
    raise AssertionError("no evaluation came back")


def test_evaluation_goes_on_beside_training_and_survives_its_workers_death(weft_session: ModuleType) -> None:
    with PPO(QUICK, evaluation_workers=2, evaluation_interval=1, evaluation_episodes=5, epochs=1) as algorithm:
        found = evaluated(algorithm)
        assert 0 <= found["episode_reward_mean"] <= 8 and found["episode_len_mean"] == 8
        assert found["training_iteration"] < algorithm.metrics.iteration, "training waited for it"
        assert algorithm._evaluation is not None
        for pid in algorithm._evaluation.pids():
            os.kill(pid, signal.SIGKILL)
        assert evaluated(algorithm)["episode_len_mean"] == 8
        assert evaluated(algorithm)["training_iteration"] > found["training_iteration"]


def test_without_workers_of_its_own_training_waits_for_it() -> None:
    with PPO(QUICK, evaluation_interval=2, evaluation_episodes=3, epochs=1) as algorithm:
        results = [algorithm.train() for _ in range(2)]
    assert "evaluation" not in results[0]
    assert results[1]["evaluation"]["training_iteration"] == 2


@pytest.mark.parametrize("name", ["IMPALA", "A3C", "ApexDQN", "ES"])
def test_killing_any_worker_of_an_asynchronous_run_costs_its_fragment(name: str, weft_session: ModuleType) -> None:
    settings = {"env": Matching, "seed": 1, "hidden": (8,), "workers": 2}
    if name == "ApexDQN":
        settings |= {"learning_starts": 100, "rounds_per_iteration": 2, "batch": 16}
    with get_algorithm(name)(settings) as algorithm:
        before = algorithm.train()["timesteps_total"]
        workers = algorithm._evaluators._local._actors if name == "ES" else algorithm.workers._actors
        for actor in list(workers):
            weft_session.kill(actor)
        result = algorithm.train()
        while result["workers_restarted"] < 2 or result["timesteps_total"] == before:  # new ones take their time
            result = algorithm.train()
        assert result["workers_restarted"] == 2
        assert result["timesteps_total"] > before


PARALLEL = """
    import sys
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax
    from gymnasium import spaces
    from weft.rl.algorithms import impala, ppo
    from weft.rl.models import ActorCritic
    from weft.rl.spaces import ActionDecoder, ObservationEncoder

    assert len(jax.devices()) == 4
    rng = np.random.default_rng(0)
    batch = {
        "observations": rng.standard_normal((5, 8, 4), np.float32),
        "actions": rng.integers(0, 3, (4, 8)).astype(np.int32),
        "rewards": rng.standard_normal((4, 8), np.float32),
        "terminated": rng.random((4, 8)) < 0.1,
        "truncated": np.zeros((4, 8), bool),
        "valid": rng.random((4, 8)) < 0.9,
        "bootstrap": np.zeros((4, 8), np.float32),
        "action_inputs": rng.standard_normal((4, 8, 3), np.float32),
    }
    orders = np.stack([rng.permutation(32).reshape(4, 8) for _ in range(2)]).astype(np.int32)
    module, settings, extra = {
        "PPO": (ppo, {"minibatch": 8}, [orders]),
        "IMPALA": (impala, {}, []),
    }[sys.argv[1]]
    config_class = {"PPO": ppo.PPOConfig, "IMPALA": impala.ImpalaConfig}[sys.argv[1]]
    found = []
    for devices in (1, 4):
        config = config_class(devices=devices, hidden=(4,), **settings)
        model = ActorCritic.of(ObservationEncoder(spaces.Box(-9, 9, (4,))), ActionDecoder(spaces.Discrete(3)), config)
        before = model.init(np.random.default_rng(1))
        params = {name: jnp.asarray(value) for name, value in before.items()}
        optimizer = optax.sgd(0.1)
        update = jax.jit(module.make_update(model, optimizer, config))
        learner, _ = update({"params": params, "optimizer": optimizer.init(params)}, batch, *extra)
        (holders,) = {len(value.sharding.device_set) for value in learner["params"].values()}
        assert holders == devices
        found.append({name: np.asarray(value) for name, value in learner["params"].items()})
    for name in before:
        np.testing.assert_allclose(found[0][name], found[1][name], atol=1e-5)
    assert any(np.abs(found[0][name] - before[name]).max() > 1e-3 for name in before)
    print("the same on four devices")
"""


@pytest.mark.parametrize("name", ["PPO", "IMPALA"])
def test_four_devices_learn_what_one_does(name: str) -> None:
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    command = [sys.executable, "-c", textwrap.dedent(PARALLEL), name]
    done = subprocess.run(command, env={**os.environ, **flags}, capture_output=True, text=True, timeout=115)
    assert done.stdout == "the same on four devices\n", done.stderr[-2000:]


def test_devices_must_be_there_and_share_the_batch_evenly() -> None:
    with pytest.raises(SettingError, match="devices is 64, but JAX has"):
        PPO(QUICK, devices=64, envs_per_worker=64, minibatch=64)
    with pytest.raises(SettingError, match="environments must be a multiple of devices=3, but is 4"):
        PPO(QUICK, devices=3)
