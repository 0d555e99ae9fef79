"""GAE and V-trace beside the sums that define them."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.rl.advantages import generalized_advantages, mean_of_valid, v_trace

GAMMA, LAMBDA = 0.9, 0.8


def some_fragment(steps: int = 12) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    terminated = rng.random((steps, 3)) < 0.15
    truncated = (rng.random((steps, 3)) < 0.15) & ~terminated
    assert terminated.any() and truncated.any()
    return {
        "rewards": rng.standard_normal((steps, 3)).astype(np.float32),
        "values": rng.standard_normal((steps + 1, 3)).astype(np.float32),
        "terminated": terminated,
        "truncated": truncated,
        "bootstrap": np.where(truncated, rng.standard_normal((steps, 3)), 0).astype(np.float32),
    }


def value_after(data: dict[str, Any], time: int, env: int) -> float:
    if data["terminated"][time, env]:
        return 0.0
    return float(data["bootstrap"][time, env] if data["truncated"][time, env] else data["values"][time + 1, env])


def test_advantages_are_the_discounted_sums_of_differences_within_an_episode() -> None:
    data = some_fragment()
    found = generalized_advantages(**data, gamma=GAMMA, lambda_=LAMBDA)
    steps, envs = data["rewards"].shape
    for env in range(envs):
        for start in range(steps):
            total = 0.0
            for time in range(start, steps):
                difference = (
                    data["rewards"][time, env] + GAMMA * value_after(data, time, env) - data["values"][time, env]
                )
                total += (GAMMA * LAMBDA) ** (time - start) * difference
                if data["terminated"][time, env] or data["truncated"][time, env]:
                    break
            np.testing.assert_allclose(found[start, env], total, rtol=1e-3, atol=1e-4)


def test_v_trace_is_the_sum_of_corrected_differences_within_an_episode() -> None:
    data = some_fragment()
    ratios = np.random.default_rng(1).uniform(0.3, 2.0, data["rewards"].shape).astype(np.float32)
    found = v_trace(ratios, **data, gamma=GAMMA)
    steps, envs = data["rewards"].shape
    clipped = np.minimum(ratios, 1)
    for env in range(envs):
        for start in range(steps):
            total, trace = float(data["values"][start, env]), 1.0
            for time in range(start, steps):
                difference = (
                    data["rewards"][time, env] + GAMMA * value_after(data, time, env) - data["values"][time, env]
                )
                total += GAMMA ** (time - start) * trace * clipped[time, env] * difference
                trace *= clipped[time, env]
                if data["terminated"][time, env] or data["truncated"][time, env]:
                    break
            np.testing.assert_allclose(found.targets[start, env], total, rtol=1e-3, atol=1e-4)


def test_v_trace_on_policy_is_gae_with_lambda_one() -> None:
    data = some_fragment()
    traced = v_trace(np.ones_like(data["rewards"]), **data, gamma=GAMMA)
    advantages = generalized_advantages(**data, gamma=GAMMA, lambda_=1.0)
    np.testing.assert_allclose(traced.targets - data["values"][:-1], advantages, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(traced.advantages, advantages, rtol=1e-3, atol=1e-4)


def test_rows_that_are_no_steps_do_not_count_in_a_mean() -> None:
    assert float(mean_of_valid(np.array([1.0, 100.0, 3.0]), np.array([True, False, True]))) == 2
    assert float(mean_of_valid(np.array([1.0]), np.array([False]))) == 0
