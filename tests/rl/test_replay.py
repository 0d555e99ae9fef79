"""Replay: n-step transitions beside the sums that define them, the ring, priorities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.rl.replay import NStep, PrioritizedReplay, Replay

GAMMA = 0.9


def some_steps(steps: int, envs: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    observations = np.arange((steps + 1) * envs, dtype=np.float32).reshape(steps + 1, envs, 1)
    terminated = rng.random((steps, envs)) < 0.2
    truncated = (rng.random((steps, envs)) < 0.2) & ~terminated
    following = observations[1:].copy()
    following[terminated | truncated] *= -1  # an episode's last observation is not what the next begins with
    return {
        "observations": observations,
        "actions": rng.integers(0, 3, (steps, envs)),
        "rewards": rng.standard_normal((steps, envs)).astype(np.float32),
        "terminated": terminated,
        "truncated": truncated,
        "valid": rng.random((steps, envs)) < 0.9,
        "next_observations": following,
    }


def expected_transition(rows: dict[str, Any], start: int, env: int, n: int) -> tuple[float, float, float]:
    total, factor = 0.0, 1.0
    for time in range(start, start + n):
        total += factor * rows["rewards"][time, env]
        factor *= GAMMA
        if rows["terminated"][time, env] or rows["truncated"][time, env]:
            break
    return total, 0.0 if rows["terminated"][time, env] else factor, float(rows["next_observations"][time, env, 0])


@pytest.mark.parametrize("n", [1, 3, 5])
def test_transitions_sum_the_rewards_of_n_steps_within_an_episode(n: int) -> None:
    rows = some_steps(20, 3)
    parts = [
        {name: array[a : b + (name == "observations")] for name, array in rows.items()}
        for a, b in ((0, 2), (2, 9), (9, 20))
    ]
    builder = NStep(n, GAMMA)
    built = [builder.transitions(part) for part in parts]
    found = {
        float(observation[0]): (reward, discount, after[0])
        for part in built
        for observation, reward, discount, after in zip(
            part["observations"], part["rewards"], part["discounts"], part["next_observations"], strict=True
        )
    }
    due = {(time, env) for time in range(20 - n + 1) for env in range(3) if rows["valid"][time, env]}
    assert len(found) == sum(len(part["rewards"]) for part in built) == len(due)
    for time, env in due:
        expected = expected_transition(rows, time, env, n)
        np.testing.assert_allclose(found[float(rows["observations"][time, env, 0])], expected, rtol=1e-4, atol=1e-5)


def transitions(first: int, count: int) -> dict[str, Any]:
    return {"rewards": np.arange(first, first + count, dtype=np.float32)}


@given(st.lists(st.integers(0, 7), max_size=12))
@settings(max_examples=50, deadline=None)
def test_the_memory_holds_the_newest_transitions(counts: list[int]) -> None:
    replay = Replay(7)
    added = 0
    for count in counts:
        replay.add(transitions(added, count))
        added += count
    assert len(replay) == min(added, 7)
    if added:
        _, batch = replay.sample(np.random.default_rng(0), (200,), 1.0)
        assert set(batch["rewards"].tolist()) <= set(range(max(0, added - 7), added))


def test_transitions_are_drawn_in_proportion_to_their_priority() -> None:
    replay = PrioritizedReplay(10, alpha=1.0)
    places = replay.add(transitions(0, 6))
    errors = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 0.0])
    replay.set_priorities(places, errors)
    drawn, batch = replay.sample(np.random.default_rng(0), (100, 200), 1.0)
    shares = np.bincount(drawn.ravel(), minlength=6) / drawn.size
    np.testing.assert_allclose(shares, errors / 10, atol=0.01)
    expected = (1 / errors[drawn]) / (1 / errors[drawn]).max(axis=1, keepdims=True)
    np.testing.assert_allclose(batch["weights"], expected, rtol=1e-3)


@pytest.mark.parametrize("kind", ["uniform", "prioritized"])
def test_a_restored_memory_draws_the_same(kind: str) -> None:
    def make() -> Replay:
        return Replay(8) if kind == "uniform" else PrioritizedReplay(8, 0.6)

    first, second = make(), make()
    first.add(transitions(0, 6))
    first.add(transitions(6, 5))
    first.set_priorities(np.arange(8), np.arange(8.0))
    second.restore(*first.state())
    for replay in (first, second):
        replay.add(transitions(20, 1))
    drawn = [replay.sample(np.random.default_rng(3), (50,), 0.4)[1]["rewards"].tolist() for replay in (first, second)]
    assert drawn[0] == drawn[1]
