"""Corners: environments that raise at random or never end, memories of other sizes, bounds, and what is not meant."""

from __future__ import annotations

import dataclasses
import json
import logging
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gymnasium import spaces
from worlds import Bad, Matching

from weft.rl import DQN, PPO, EnvironmentFailed, Rainbow, SettingError, get_algorithm, stepping
from weft.rl.algorithms import ppo
from weft.rl.algorithms.dqn import share_outside
from weft.rl.offline import EpisodeWriter
from weft.rl.replay import PrioritizedReplay, Replay
from weft.rl.replay_shard import ReplayShard
from weft.rl.rollout import Blueprint, RolloutWorker
from weft.rl.spaces import ObservationEncoder
from weft.rl.stepping import EnvironmentList

QUICK: dict[str, Any] = {
    "seed": 1,
    "envs_per_worker": 4,
    "fragment_steps": 64,
    "hidden": (16,),
    "minibatch": 64,
    "epochs": 2,
    "metrics_window": 20,
}


class Flaky(Matching):
    """Raises at random, in a step or in a reset: each of them with this chance."""

    def __init__(self, chance: float = 0.02, in_reset: float = 0.0) -> None:
        super().__init__()
        self._chance, self._in_reset = chance, in_reset
        self._draws = np.random.default_rng(0)
        self.closed = False

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self._draws = np.random.default_rng([seed, 1])
        if self._draws.random() < self._in_reset:
            raise OSError("no simulator to reset")
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._draws.random() < self._chance:
            raise OSError("the simulator has gone")
        return super().step(action)


class Endless(Matching):
    """A continuing task."""

    steps = 10**9


def lossy(envs: int = 2, **kind: Any) -> EnvironmentList:
    environments = stepping.open_environments(
        lambda: Flaky(**kind), envs, np.random.default_rng(3), "Flaky", restarts=True
    )
    assert isinstance(environments, EnvironmentList)
    return environments


@pytest.mark.parametrize("workers", [0, 2])
def test_an_environment_that_raises_at_random_does_not_end_the_run_nor_its_worker(
    workers: int, weft_session: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {**QUICK, "env": Flaky, "env_config": {"in_reset": 0.02}, "workers": workers}
    with caplog.at_level(logging.WARNING, "weft.rl"), PPO(settings, on_environment_error="restart") as algorithm:
        for _ in range(8):
            result = algorithm.train()
        evaluated = algorithm.evaluate(20)
    assert result["environments_restarted"] >= 8
    assert result["workers_restarted"] == 0
    assert result["timesteps_total"] < 8 * 64 * 4 * max(workers, 1), "steps that raised were counted"
    assert evaluated["episode_len_mean"] == 8, "an episode that was cut off was counted"
    assert "was made anew" in caplog.text and "Flaky" in caplog.text


def test_it_still_ends_the_run_where_it_is_not_told_to_restart() -> None:
    settings = {**QUICK, "env_config": {"chance": 0.2}}
    with PPO(settings, env=Flaky) as algorithm, pytest.raises(EnvironmentFailed, match="simulator has gone"):
        algorithm.train()


@pytest.mark.parametrize("how", ["crash in step", "step of old", "ended by text"])
def test_one_that_fails_again_and_again_ends_the_run_in_the_end(how: str) -> None:
    settings = {**QUICK, "env": Bad, "env_config": {"how": how}, "on_environment_error": "restart"}
    with PPO(settings) as algorithm, pytest.raises(EnvironmentFailed, match="step 4 of environment 0"):
        algorithm.train()


def test_an_environment_that_cannot_be_reset_at_all_ends_the_run() -> None:
    settings = {**QUICK, "env": Flaky, "env_config": {"in_reset": 1.0}, "on_environment_error": "restart"}
    with PPO(settings) as algorithm, pytest.raises(EnvironmentFailed, match="no simulator to reset"):
        algorithm.train()


def test_an_episode_that_was_cut_off_ends_before_the_step_that_raised() -> None:
    with PPO(QUICK, env=Matching) as algorithm:
        behaviour, layout, weights = algorithm.behaviour, algorithm.layout, algorithm.weights()
    blueprint = Blueprint(
        env=Flaky,
        env_config={"chance": 0.05},
        envs=2,
        steps=64,
        seed=1,
        behaviour=behaviour,
        layout=layout,
        restarts=True,
    )
    worker = RolloutWorker(blueprint, 0)
    fragment = worker.sample(weights)
    arrays = fragment.arrays
    lost = np.argwhere(~arrays["valid"])
    assert len(lost) == len(fragment.failures) > 0
    assert not arrays["rewards"][~arrays["valid"]].any()
    for time, index in lost.tolist():
        if not time:
            continue
        begins = arrays["terminated"][time - 1, index]  # it raised in an episode's first step
        assert begins or arrays["truncated"][time - 1, index]
        if not begins:
            value = behaviour.value(layout.unpack(weights), arrays["observations"][time, index], index)
            assert arrays["bootstrap"][time - 1, index] == pytest.approx(value)
    worker.close()


def test_environments_that_raise_can_be_saved_and_played_again() -> None:
    environments = lossy(chance=0.05)
    observations = environments.reset()
    for _ in range(100):
        observations = environments.step(np.zeros(2, np.int64)).observations
    assert environments.failures
    again = lossy(chance=0.05)
    assert np.array_equal(again.restore(environments.state() or {}), observations)


def test_a_task_that_never_ends_keeps_no_endless_history(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepping, "RESEED_STEPS", 8)
    monkeypatch.setattr(stepping, "MOST_HISTORY", 64)
    rng = np.random.default_rng(0)
    environments = EnvironmentList([Endless(), Matching()], rng, "Endless")
    environments.reset()
    longest = 0
    for _ in range(1000):
        environments.step(np.zeros(2, np.int64))
        longest = max(longest, len(environments._history))
    assert longest <= 64 + 4 * 8 + 8
    saved = environments.state()
    assert saved is not None and saved["seeds"][0] == stepping.UNKEPT and "actions.0" not in saved
    again = EnvironmentList([Endless(), Matching()], np.random.default_rng(0), "Endless")
    observations = again.restore(saved)
    assert np.array_equal(observations[1], environments._observations[1]), "the other one goes on where it was"
    again.step(np.zeros(2, np.int64))


def transitions(count: int, first: int = 0) -> dict[str, Any]:
    rows = np.arange(first, first + count, dtype=np.float32)
    return {"observations": rows[:, None], "rewards": rows}


@pytest.mark.parametrize("make", [Replay, lambda capacity: PrioritizedReplay(capacity, 1.0)])
@pytest.mark.parametrize("capacity", [4, 8, 12])
@pytest.mark.parametrize("added", [3, 8, 13])
def test_a_memory_of_another_capacity_keeps_the_newest(make: Any, capacity: int, added: int) -> None:
    before = make(8)
    for first in range(added):
        before.add(transitions(1, first))
        before.set_priorities(np.asarray([first % 8]), np.asarray([first + 1.0]))
    after = make(capacity)
    after.restore(*before.state())
    for first in range(added, added + 2):
        after.add(transitions(1, first))
    wanted = set(range(max(0, added - min(8, capacity), added + 2 - capacity), added + 2))
    _, drawn = after.sample(np.random.default_rng(0), (2000,), 0.0)
    assert set(drawn["rewards"].astype(int).tolist()) == wanted


@pytest.mark.parametrize("changed", [{"replay_capacity": 200}, {"replay_capacity": 5000}, {"envs_per_worker": 3}])
def test_a_run_goes_on_with_another_memory_or_other_environments(changed: dict[str, Any], tmp_path: Path) -> None:
    settings = {
        "env": Matching,
        "seed": 1,
        "hidden": (8,),
        "learning_starts": 100,
        "replay_capacity": 400,
        "rounds_per_iteration": 4,
        "prioritized": True,
        "updates_per_step": 0.1,
    }
    with DQN(settings) as algorithm:
        algorithm.train()
        folder = algorithm.save(tmp_path / "checkpoint")
    with DQN.from_checkpoint(folder, env=Matching, **changed) as resumed:
        resumed.train()
        assert len(resumed.replay) <= resumed.config.replay_capacity


def test_priorities_of_a_shard_that_was_restarted_meanwhile_are_void() -> None:
    shard = ReplayShard(64, 1.0, 0)
    filled = {**transitions(64), "actions": np.zeros(64, np.int64)}
    shard.add(filled, np.ones(64))
    drawn = shard.draw((2, 16), 0.4)
    assert drawn is not None
    life, places, _ = drawn
    restarted = ReplayShard(64, 1.0, 0)
    restarted.add({name: array[:4] for name, array in filled.items()}, np.ones(4))
    restarted.set_priorities(life, places, np.full(places.shape, 1e6))
    again = restarted.draw((250, 4), 0.4)
    assert again is not None
    counts = np.bincount(again[1].ravel(), minlength=4)
    assert counts.min() > 150, f"drawn {counts}: a place of the memory before has a priority"
    shard.set_priorities(life, places, np.full(places.shape, 1e6))
    assert shard._replay._sums[1] > 1e6


def test_apex_refuses_what_it_would_ignore() -> None:
    for kind in ("ApexDQN", "ApexDDPG"):
        with pytest.raises(SettingError, match="episodes must be None, but is 'folder'"):
            get_algorithm(kind)(env="CartPole-v1", episodes="folder")
        with pytest.raises(SettingError, match="checkpoint_replay must be False"):
            get_algorithm(kind)(env="CartPole-v1", checkpoint_replay=True)


def test_rainbow_warns_of_returns_outside_its_range() -> None:
    settings = {
        "env": Matching,
        "seed": 1,
        "hidden": (8,),
        "learning_starts": 64,
        "learning_rate": 0.01,
        "reward_scale": 1.0,
        "target_interval": 20,
        "rounds_per_iteration": 6,
    }
    warned = pytest.warns(UserWarning, match="value_low=10")
    with Rainbow(settings, value_low=10.0, value_high=20.0) as algorithm, warned:
        result = algorithm.train()
    assert result["learner"]["returns_outside"] > 0.2
    with Rainbow(settings, value_low=0.0, value_high=10.0) as algorithm, warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            result = algorithm.train()
    assert result["learner"]["returns_outside"] < 0.2
    assert json.dumps(result["learner"])


def test_the_share_outside_is_that_of_the_projected_returns() -> None:
    with Rainbow(env=Matching, hidden=(8,), value_low=0.0, value_high=1.0, atoms=2, noisy=False) as algorithm:
        params = {name: np.zeros_like(value) for name, value in algorithm.learner["params"].items()}
        batch = {
            "next_observations": np.zeros((3, 4), np.float32),
            "rewards": np.asarray([0.0, -1.0, 5.0], np.float32),
            "discounts": np.asarray([1.0, 1.0, 0.0], np.float32),
        }
        # 0 and 1 stay; 0 and 1 become -1 and 0; both become 5
        assert share_outside(algorithm.model, params, batch) == pytest.approx((0 + 0.5 + 1) / 3)


def test_a_minibatch_beyond_the_kl_bound_is_not_learnt_from() -> None:
    with PPO(QUICK, env=Matching, target_kl=0.01, learning_rate=1e-6) as algorithm:
        batch = algorithm.sample()[0].arrays
        orders = algorithm._shuffles(batch["rewards"].size)
        config = algorithm.config
        model: Any = algorithm.behaviour.model  # type: ignore[attr-defined]

        def far_from_the_third(evaluated: Any, config: Any, evaluate: Any) -> Any:
            """A loss whose gradient is 1 everywhere, with a divergence beyond the bound after two steps."""

            def loss(params: Any, minibatch: Any) -> tuple[Any, dict[str, Any]]:
                moved = params["policy.0.bias"][0]
                return sum(value.sum() for value in params.values()), {"kl": jnp.where(moved < -1.5e-6, 1.0, 0.0)}

            return loss

        optimizer = optax.sgd(1e-6)
        changed = dataclasses.replace(config, make_loss=far_from_the_third)
        update = jax.jit(ppo.make_update(model, optimizer, changed))
        start = {name: jnp.zeros_like(value) for name, value in algorithm.learner["params"].items()}
        learner, _ = update({"params": start, "optimizer": optimizer.init(start)}, batch, orders)
        steps = -np.asarray(learner["params"]["policy.0.bias"])[0] / 1e-6
    assert steps == pytest.approx(2), "steps were taken after the bound, or not before it"


def test_a_stopped_algorithm_says_that_it_is() -> None:
    with PPO(QUICK, env=Matching) as algorithm:
        algorithm.train()
    for call in (algorithm.train, algorithm.evaluate, lambda: algorithm.save("nowhere")):
        with pytest.raises(RuntimeError, match="PPO was stopped, so it cannot"):
            call()
    assert algorithm.policy.act(np.zeros(4, np.float32)) in range(4)
    algorithm.stop()


def test_evolution_with_aggregators_can_be_stopped_twice(weft_session: ModuleType) -> None:
    settings = {"env": Matching, "seed": 1, "noise_table": 10_000, "workers": 2, "aggregators": 1, "directions": 2}
    with get_algorithm("ES")(settings) as algorithm:
        algorithm.stop()
    with pytest.raises(RuntimeError, match="ES was stopped"):
        algorithm.train()


class Spoilt(Endless):
    """Answers at its `at`-th step, and each `at` steps later, with what nothing can be learnt from."""

    def __init__(self, how: str, at: int = 20, steps: int = 8, truncates: bool = False) -> None:
        super().__init__()
        self.steps, self._how, self._at, self._truncates = steps, how, at, truncates
        self._count = 0

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        self._count += 1
        if self._truncates and terminated:
            terminated, truncated = False, True
        if self._count % self._at:
            return observation, reward, terminated, truncated, info
        bad: dict[str, tuple[Any, Any]] = {
            "reward is NaN": (observation, np.nan),
            "reward is huge": (observation, 1e300),
            "reward is text": (observation, "much"),
            "observation is NaN": (observation * np.nan, reward),
            "observation is wide": (np.zeros(9, np.float32), reward),
            "observation is far out": (observation + 100, reward),
        }
        return (*bad[self._how], terminated, truncated, info)


def worker_of(algorithm: Any, restarts: bool = False, **kind: Any) -> tuple[RolloutWorker, Any]:
    """A worker of `Spoilt` environments that acts as the algorithm does, and its weights."""
    behaviour, layout, weights = algorithm.behaviour, algorithm.layout, algorithm.weights()
    blueprint = Blueprint(
        env=Spoilt, env_config=kind, envs=2, steps=64, seed=1, behaviour=behaviour, layout=layout, restarts=restarts
    )
    return RolloutWorker(blueprint, 0), weights


@pytest.mark.parametrize("truncates", [False, True])
def test_an_episodes_last_observation_that_is_not_finite_is_not_learnt_from(truncates: bool) -> None:
    kind = {"how": "observation is NaN", "at": 8, "truncates": truncates}
    with DQN(env=Matching, seed=1, hidden=(16,)) as algorithm:
        worker, weights = worker_of(algorithm, **kind)
        with pytest.raises(EnvironmentFailed, match="at its step 7 the observation after it is not finite"):
            worker.sample(weights)
    with PPO(QUICK, env=Matching) as algorithm:
        worker, weights = worker_of(algorithm, **kind)
        if truncates:
            with pytest.raises(EnvironmentFailed, match="at its step 7 the value of its episode's last observation"):
                worker.sample(weights)
        else:  # what comes after a terminated episode's end is worth nothing, whatever it shows
            assert all(np.isfinite(array).all() for array in worker.sample(weights).arrays.values())


def test_a_reward_that_float32_cannot_hold_is_not_learnt_from() -> None:
    with PPO(QUICK, env=Matching) as algorithm:
        worker, weights = worker_of(algorithm, how="reward is huge")
        with pytest.raises(EnvironmentFailed, match=r"at its step 19 the reward is too large for float32: 1e\+300"):
            worker.sample(weights)


@pytest.mark.parametrize("how", ["NaN", "huge", "text"])
def test_a_bad_reward_costs_its_environment_alone_where_it_may_be_made_anew(how: str) -> None:
    spoilt_alone(f"reward is {how}")


@pytest.mark.parametrize("how", ["NaN", "wide", "far out"])
def test_a_bad_observation_costs_its_environment_alone_where_it_may_be_made_anew(how: str) -> None:
    spoilt_alone(f"observation is {how}")


def spoilt_alone(how: str) -> None:
    with PPO(QUICK, env=Matching) as algorithm:
        worker, weights = worker_of(algorithm, restarts=True, how=how)
        fragments = [worker.sample(weights) for _ in range(8)]
    for fragment in fragments:
        arrays = fragment.arrays
        assert len(fragment.failures) == (~arrays["valid"]).sum() > 0
        assert all(np.isfinite(array).all() for array in arrays.values())
    worker.close()


def test_an_episode_with_an_observation_that_is_not_finite_is_not_recorded(tmp_path: Path) -> None:
    world = Matching()
    rows = [np.zeros(4, np.float32), np.full(4, np.nan, np.float32)]
    writer = EpisodeWriter(tmp_path / "episodes", world.observation_space, world.action_space)
    with pytest.raises(ValueError, match="observations must be finite, but that of step 1 is not"):
        writer.add(rows, [0], [1.0], True)


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint8, np.int16, np.int64, np.float16, np.float32, np.float64])
def test_bounds_of_every_dtype_hold_what_lies_within_them(dtype: Any) -> None:
    least, most = {np.bool_: (0, 1), np.float16: (-6e4, 6e4)}.get(dtype, (-1e30, 1e30))
    if np.issubdtype(dtype, np.integer):
        least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    encoder = ObservationEncoder(spaces.Box(least, most, (2,), dtype))
    rows = np.array([[least, most], [most, least]], dtype).astype(np.float32)
    assert not encoder.out_of_bounds(rows).any()
    if dtype is np.int8:
        assert encoder.out_of_bounds(np.array([[0, 200]], np.float32)).all()
