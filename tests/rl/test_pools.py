"""EnvPool, where it is installed: one environment of it tells the story of Gymnasium's."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from weft.rl import PPO
from weft.rl.pools import EnvPoolMissing
from weft.rl.stepping import open_environments

IS_INSTALLED = importlib.util.find_spec("envpool") is not None


@pytest.mark.skipif(not IS_INSTALLED, reason="EnvPool is not installed")
def test_its_episodes_are_reset_in_the_next_step_and_learnt_from() -> None:
    from weft.rl.environments import make

    environments = open_environments(
        lambda: make("envpool:CartPole-v1", {"seed": 1}, None, 3), 3, np.random.default_rng(0), "pool"
    )
    environments.reset()
    steps = [environments.step(np.ones(3, np.int32)) for _ in range(60)]
    environments.close()
    ended = sum(len(step.finals) for step in steps)
    assert ended == len(environments.episodes) > 6
    assert all(8 <= episode.length <= 11 for episode in environments.episodes), "pushed one way the pole falls at once"
    resets = sum(int((~step.valid).sum()) for step in steps)
    assert ended - 3 <= resets <= ended
    with PPO(env="envpool:CartPole-v1", envs_per_worker=4, fragment_steps=64, seed=1) as algorithm:
        assert 200 < algorithm.train()["timesteps_total"] <= 256


@pytest.mark.skipif(IS_INSTALLED, reason="EnvPool is installed")
def test_without_it_the_error_says_how_to_get_it() -> None:
    with pytest.raises(EnvPoolMissing, match="pip install envpool"):
        PPO(env="envpool:CartPole-v1")
