"""The noise by which continuous policies explore."""

from __future__ import annotations

import numpy as np
import pytest

from weft.rl import SAC, TD3
from weft.rl.behaviours import correlated_normal, uniform_of_normal


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.95])
def test_noise_has_the_correlation_it_is_told_and_the_spread_of_one(correlation: float) -> None:
    noise = correlated_normal(np.random.default_rng(0), (50, 4000, 1), correlation)[..., 0]
    for step in (1, 49):
        assert np.corrcoef(noise[step - 1], noise[step])[0, 1] == pytest.approx(correlation, abs=0.05)
        assert noise[step].std() == pytest.approx(1, abs=0.05)


def test_uniform_actions_fill_their_range_evenly() -> None:
    actions = uniform_of_normal(correlated_normal(np.random.default_rng(0), (20, 1000, 1), 0.9))
    shares, _ = np.histogram(actions[-1], bins=4, range=(-1, 1))
    assert shares.sum() == 1000 and shares.min() > 200


@pytest.mark.parametrize("algorithm", [TD3, SAC])
def test_an_algorithm_explores_with_the_correlation_it_is_told(algorithm: type[TD3] | type[SAC]) -> None:
    settings = {"fragment_steps": 64, "learning_starts": 10_000, "rounds_per_iteration": 8, "seed": 1}
    kept = []
    for correlation in (0.0, 0.99):
        with algorithm(settings, env="Pendulum-v1", noise_correlation=correlation) as made:
            made.train()
            _, arrays = made.replay.state()
            kept.append(np.abs(np.diff(arrays["actions"][:, 0])).mean())
    assert kept[1] < 0.5 * kept[0]
