"""Each algorithm learns something small, and resumes exactly where it can. PPO and BC have files of their own."""

from __future__ import annotations

import signal
from pathlib import Path
from types import ModuleType
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from worlds import Aiming, Bad, Masked, Matching, Remembering, TwoMatching

from weft.rl import EnvironmentFailed, get_algorithm
from weft.rl.algorithms.dqn import project
from weft.rl.algorithms.recurrent_ppo import unroll
from weft.rl.config import AlgorithmConfig
from weft.rl.q_models import QModel
from weft.rl.recurrent import RecurrentActorCritic
from weft.rl.registry import algorithm_names
from weft.rl.spaces import ActionDecoder, ObservationEncoder, SpaceMismatch

ON_POLICY: dict[str, Any] = {"hidden": (32,), "learning_rate": 1e-2, "gamma": 0.5}
REPLAY: dict[str, Any] = {
    "hidden": (32,),
    "learning_rate": 3e-3,
    "gamma": 0.0,
    "learning_starts": 200,
    "rounds_per_iteration": 2,
    "envs_per_worker": 4,
    "fragment_steps": 16,
    "batch": 32,
}
Q = {**REPLAY, "exploration_timesteps": 500}
CONTINUOUS = {**REPLAY, "random_timesteps": 200}
CASES: dict[str, tuple[type[Any], float, dict[str, Any]]] = {
    "PG": (Matching, 7.0, {**ON_POLICY, "fragment_steps": 32}),
    "A2C": (Matching, 7.0, ON_POLICY),
    "A3C": (Matching, 7.0, {**ON_POLICY, "workers": 1}),
    "IMPALA": (Matching, 7.0, {**ON_POLICY, "workers": 2}),
    "DQN": (Matching, 7.0, Q),
    "Rainbow": (Masked, 6.5, {**Q, "value_high": 2.0, "atoms": 11}),
    "ApexDQN": (Matching, 6.0, {**Q, "workers": 2}),
    "ApexDDPG": (Aiming, -0.6, {**CONTINUOUS, "workers": 2}),
    "DDPG": (Aiming, -0.4, CONTINUOUS),
    "TD3": (Aiming, -0.4, CONTINUOUS),
    "ES": (Matching, 7.0, {"hidden": (8,), "directions": 24, "learning_rate": 0.1}),
    "ARS": (Matching, 7.0, {"workers": 2, "learning_rate": 0.3}),
    "RecurrentPPO": (
        Remembering,
        2.5,
        {"hidden": (16,), "units": 16, "learning_rate": 1e-2, "gamma": 0.8, "fragment_steps": 16, "epochs": 6},
    ),
    "MultiAgentPPO": (
        TwoMatching,
        5.8,
        {"hidden": (32,), "learning_rate": 1e-2, "gamma": 0.5, "fragment_steps": 32, "epochs": 4},
    ),
    "SAC": (Aiming, -1.0, {**CONTINUOUS, "initial_temperature": 0.05}),
}


def test_every_algorithm_has_a_case() -> None:
    assert sorted({*CASES, "BC", "PPO"}) == algorithm_names()


@pytest.mark.parametrize("name", CASES)
def test_it_learns(name: str, weft_session: ModuleType) -> None:
    env, enough, settings = CASES[name]
    with get_algorithm(name)(settings, env=env, seed=1, metrics_window=20) as algorithm:
        best = -np.inf
        for _ in range(60):
            best = max(best, algorithm.train()["episode_reward_mean"])
            if best >= enough:
                break
        assert best >= enough
        assert algorithm.evaluate(5)["episode_reward_mean"] >= enough - 1


@pytest.mark.parametrize("name", ["A2C", "ES", "Rainbow", "RecurrentPPO", "TD3"])
def test_a_resumed_run_has_the_curve_of_one_that_went_on(name: str, tmp_path: Path) -> None:
    env, _, settings = CASES[name]
    make = get_algorithm(name)

    def curve(algorithm: Any) -> list[float]:
        return [float(np.sum(algorithm.train() and algorithm.weights())) for _ in range(2)]

    with make(settings, env=env, seed=1) as algorithm:
        for _ in range(3):
            algorithm.train()
        checkpoint = algorithm.save(tmp_path / "checkpoint")
        went_on = curve(algorithm)
    with make.from_checkpoint(checkpoint) as resumed:
        assert curve(resumed) == went_on
    assert len(set(went_on)) == 2


@pytest.mark.parametrize("name", ["A2C", "DQN", "SAC", "RecurrentPPO"])
def test_an_interrupt_while_it_learns_comes_when_the_learner_is_whole(name: str, tmp_path: Path) -> None:
    env, _, settings = CASES[name]
    with get_algorithm(name)(settings, env=env, seed=1) as algorithm:
        while not algorithm.version:
            algorithm.train()
        update = algorithm._update

        def interrupted(*arguments: Any) -> Any:
            result = update(*arguments)
            signal.raise_signal(signal.SIGINT)
            return result

        algorithm._update = interrupted
        with pytest.raises(KeyboardInterrupt):
            algorithm.train()
        algorithm._update = update
        algorithm.save(tmp_path / "checkpoint")
        algorithm.train()


def test_evolution_keeps_to_what_is_allowed() -> None:
    with get_algorithm("ES")(env=Masked, seed=1, hidden=(8,), directions=16, learning_rate=0.1) as algorithm:
        rewards = [algorithm.train()["episode_reward_mean"] for _ in range(12)]
    assert max(rewards) > rewards[0] + 1


def test_a_tree_of_aggregators_moves_the_weights_as_one_process_does(weft_session: ModuleType) -> None:
    moved = []
    for tree in ({}, {"workers": 3, "aggregators": 2}):
        with get_algorithm("ES")(env=Matching, seed=1, directions=6, hidden=(4,), **tree) as algorithm:
            algorithm.train()
            moved.append(algorithm.weights())
    np.testing.assert_allclose(moved[0], moved[1], atol=1e-5)


def test_a_killed_aggregator_is_made_anew_and_asked_again(weft_session: ModuleType) -> None:
    moved = []
    for kills in (False, True):
        settings = {"env": Matching, "seed": 1, "directions": 6, "hidden": (4,), "workers": 2, "aggregators": 2}
        with get_algorithm("ES")(settings) as algorithm:
            algorithm.train()
            if kills:
                weft_session.kill(algorithm._evaluators._actors[0], no_restart=False)
            algorithm.train()
            moved.append(algorithm.weights())
    np.testing.assert_array_equal(moved[0], moved[1])


@pytest.mark.parametrize("name", ["ES", "ARS"])
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("NaN reward", "Bad in worker 0: at step 4 the reward is nan"),
        ("NaN observation", "Bad in worker 0: at step 5 the observation is not finite"),
        ("crash in step", "step 4 of environment 0 of Bad in worker 0 failed"),
    ],
)
def test_evolution_learns_nothing_from_a_bad_environment(name: str, how: str, message: str) -> None:
    with get_algorithm(name)(env=Bad, env_config={"how": how}, seed=1, directions=2, hidden=(4,)) as algorithm:
        before = algorithm.weights()
        with pytest.raises(EnvironmentFailed, match=message):
            algorithm.train()
        np.testing.assert_array_equal(algorithm.weights(), before)


@pytest.mark.parametrize("workers", [0, 1])
def test_evolution_restarts_the_worker_of_a_bad_environment_where_told_to(
    workers: int, tmp_path: Path, weft_session: ModuleType
) -> None:
    once = {"how": "NaN reward", "flag": str(tmp_path / "flag")}
    settings = {"env": Bad, "env_config": once, "seed": 1, "directions": 2, "hidden": (4,), "workers": workers}
    with get_algorithm("ES")(settings, on_environment_error="restart") as algorithm:
        assert algorithm.train()["workers_restarted"] == 1


@pytest.mark.parametrize(
    ("policies", "names"),
    [
        ("shared", ["shared"]),
        ("independent", ["left", "right"]),
        ({"left": "one", "right": "one"}, ["one"]),
        ({"left": "b", "right": "a"}, ["a", "b"]),
    ],
)
def test_agents_share_policies_as_they_are_told_to(policies: Any, names: list[str]) -> None:
    with get_algorithm("MultiAgentPPO")(env=TwoMatching, policies=policies, fragment_steps=16, epochs=1) as algorithm:
        assert sorted(algorithm.learner) == names
        fragment = algorithm.sample()[0]
    # In 16 rows of 8 steps the right agent, out after 5, is there for 10; the left one always.
    assert fragment.arrays["valid"].sum(axis=0).tolist() == [16, 10] * 8
    assert {episode.agent for episode in fragment.episodes} == {"left", "right"}
    assert {(episode.agent, episode.length) for episode in fragment.episodes} == {("left", 8), ("right", 5)}


@pytest.mark.parametrize("memory", ["gru", "lstm"])
def test_a_memory_computes_the_same_in_numpy_and_in_jax(memory: str) -> None:
    rng = np.random.default_rng(2)
    encoder, decoder = ObservationEncoder(Matching.observation_space), ActionDecoder(Matching.action_space)
    model = RecurrentActorCritic.of(encoder, decoder, AlgorithmConfig(hidden=(6,)), memory, 5)
    params, observations = model.init(rng), rng.standard_normal((3, 2, 4), np.float32)
    starts = np.array([[False, False], [False, True], [False, False]])
    state = rng.standard_normal((2, model.cell.state_size), np.float32)
    inputs, values = unroll(model, params, observations, starts, state)
    for time in range(3):
        state = np.where(starts[time][:, None], 0, state)
        ours, value, state = model.step(np, params, observations[time], state)
        np.testing.assert_allclose(ours, inputs[time], atol=1e-5)
        np.testing.assert_allclose(value, values[time], atol=1e-5)


@pytest.mark.parametrize(("name", "env"), [("DQN", Aiming), ("SAC", Matching)])
def test_an_action_space_that_does_not_suit_is_refused(name: str, env: type[Any]) -> None:
    with pytest.raises(SpaceMismatch):
        get_algorithm(name)(env=env)


@pytest.mark.parametrize("switches", [{}, {"dueling": True, "noisy": True}, {"atoms": 7, "low": -1.0, "high": 2.0}])
def test_q_values_are_the_same_in_numpy_and_in_jax(switches: dict[str, Any]) -> None:
    rng = np.random.default_rng(2)
    encoder, decoder = ObservationEncoder(Matching.observation_space), ActionDecoder(Matching.action_space)
    model = QModel.of(encoder, decoder, AlgorithmConfig(hidden=(8,)), **switches)
    params, noise = model.init(rng), model.layer_noise(rng)
    observations = rng.standard_normal((5, 4), np.float32)
    ours = model.q_values(np, params, observations, noise)
    assert ours.shape == (5, 4)
    np.testing.assert_allclose(ours, model.q_values(jnp, params, observations, noise), atol=1e-5)
    if model.noisy:
        assert not np.allclose(ours, model.q_values(np, params, observations, {}))


def test_a_projected_distribution_keeps_its_mass_and_its_mean() -> None:
    model = QModel.of(
        ObservationEncoder(Matching.observation_space),
        ActionDecoder(Matching.action_space),
        AlgorithmConfig(),
        atoms=21,
        low=-10.0,
        high=10.0,
    )
    rng = np.random.default_rng(4)
    probabilities = rng.dirichlet(np.ones(21), 6).astype(np.float32)
    rewards, discounts = rng.uniform(-2, 2, 6), np.array([0.5, 0.5, 0.5, 0.3, 0.0, 0.0])
    projected = project(model, rewards, discounts, probabilities)
    support = np.linspace(-10, 10, 21)
    np.testing.assert_allclose(projected.sum(axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(projected @ support, rewards + discounts * (probabilities @ support), atol=1e-4)
