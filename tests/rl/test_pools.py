"""EnvPool: the same is asked of a double of it, always, and of EnvPool itself, where it is installed.

.venv/bin/pip install envpool && .venv/bin/pytest tests/rl/test_pools.py     it and its pictures take 750 MB
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import envpool_double
import numpy as np
import pytest

from weft.rl import DQN, PPO
from weft.rl.environments import UnknownEnvironment, make
from weft.rl.pools import EnvPoolMissing
from weft.rl.stepping import Environments, Step, open_environments

IS_INSTALLED = importlib.util.find_spec("envpool") is not None
needs_envpool = pytest.mark.skipif(not IS_INSTALLED, reason="EnvPool is not installed")

pytestmark = pytest.mark.filterwarnings("ignore:.*precision lowered by casting")  # EnvPool's own spaces


@pytest.fixture(params=["double", "envpool"] if IS_INSTALLED else ["double"], autouse=True)
def pool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "double":
        monkeypatch.setitem(sys.modules, "envpool", envpool_double)
    return str(request.param)


def opened(task: str, count: int, seed: int = 0, limit: int | None = None) -> Environments:
    rng = np.random.default_rng(seed)
    return open_environments(lambda: make(f"envpool:{task}", {}, limit, count), count, rng, task)


def pushed_right(steps: int, **how: Any) -> tuple[list[Step], Environments]:
    environments = opened("CartPole-v1", 3, **how)
    environments.reset()
    taken = [environments.step(np.ones(3, np.int32)) for _ in range(steps)]
    environments.close()
    return taken, environments


def test_its_episodes_are_reset_in_the_next_step() -> None:
    steps, environments = pushed_right(60)
    ended = sum(len(step.finals) for step in steps)
    assert ended == len(environments.episodes) > 6
    assert all(8 <= episode.length <= 11 for episode in environments.episodes), "pushed one way the pole falls at once"
    resets = sum(int((~step.valid).sum()) for step in steps)
    assert ended - 3 <= resets <= ended


def test_an_episode_limit_truncates() -> None:
    steps, environments = pushed_right(20, limit=5)
    assert {episode.length for episode in environments.episodes} == {5}
    assert all(step.truncated.sum() == len(step.finals) and not step.terminated.any() for step in steps)


def test_a_seed_is_a_run_and_another_seed_another() -> None:
    first, again, other = (pushed_right(20, seed=seed)[0][-1].observations for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert not np.array_equal(first[0], first[1]), "copies in one pool are not of one seed"


def test_pictures_have_their_channels_last() -> None:
    for task, shape in (("Pong-v5", (84, 84, 4)), ("CarRacing-v3", (96, 96, 3))):
        environments = opened(task, 2)
        assert environments.encoder.shape == shape
        assert environments.reset().shape == (2, *shape)
        environments.close()


def test_a_stack_of_frames_is_turned_and_not_read_in_another_order(pool: str) -> None:
    if pool != "double":
        pytest.skip("only the double's pictures are known")
    environments = opened("Pong-v5", 1)
    frames = environments.reset()[0]
    assert (frames[..., -1] == 200).all()
    assert (frames[..., :-1] < 200).all()
    environments.close()


def test_bounds_that_are_none_are_no_errors() -> None:
    with DQN(env="envpool:LunarLander-v3", envs_per_worker=2, seed=1, rounds_per_iteration=1) as algorithm:
        assert algorithm.train()["timesteps_total"] > 60
        assert np.isneginf(algorithm.encoder.space.low).all()


def test_it_is_learnt_from_and_evaluated() -> None:
    with PPO(env="envpool:CartPole-v1", envs_per_worker=4, fragment_steps=64, seed=1) as algorithm:
        result = algorithm.train()
        assert 200 < result["timesteps_total"] <= 256
        assert algorithm.evaluate(5)["episode_len_mean"] > 5


@needs_envpool
def test_workers_have_pools_of_their_own(pool: str, weft_session: None) -> None:
    if pool == "double":
        pytest.skip("workers import EnvPool itself")
    with PPO(env="envpool:CartPole-v1", workers=2, envs_per_worker=4, fragment_steps=64, seed=1) as algorithm:
        fragments = algorithm.sample()
    first, second = (fragment.arrays["observations"][0] for fragment in fragments)
    assert not np.array_equal(first, second)


def test_what_weft_decides_is_refused_in_its_configuration() -> None:
    with pytest.raises(ValueError, match="must not have 'num_envs': say envs_per_worker"):
        PPO(env="envpool:CartPole-v1", env_config={"num_envs": 3})
    with pytest.raises(ValueError, match="must not have 'seed'"):
        PPO(env="envpool:CartPole-v1", env_config={"seed": 3})


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownEnvironment, match="did you mean 'envpool:CartPole-v1'"):
        PPO(env="envpool:CartPol-v1")


@pytest.mark.skipif(IS_INSTALLED, reason="EnvPool is installed")
def test_without_it_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "envpool")
    with pytest.raises(EnvPoolMissing, match="pip install envpool"):
        PPO(env="envpool:CartPole-v1")
