"""Policies that are served, and the loop closed: their episodes train them while they serve."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from weft import serve
from weft.rl import PG, Policy
from weft.rl.registry import get_algorithm

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def serving(shared_weft_session: ModuleType) -> Iterator[None]:
    yield
    serve.shutdown()


class Counting:
    """Answers with its weight and how many observations came together."""

    def __init__(self, weight: int) -> None:
        self.weight = weight

    def act_batch(self, observations: Any, explore: bool = False) -> list[tuple[int, bool]]:
        return [(self.weight, explore) for _ in observations]


def test_the_policy_of_a_checkpoint_is_served(serving: None, tmp_path: Path) -> None:
    with PG(env="CartPole-v1", envs_per_worker=2, fragment_steps=16, seed=1) as algorithm:
        folder = algorithm.save(tmp_path)
        expected = algorithm.policy
    observations = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    handle = serve.run(Policy.from_checkpoint(folder), name="policy", route_prefix=None)
    answers = [handle.remote(one) for one in observations]
    assert [one.result(60) for one in answers] == list(expected.act_batch(observations))


def test_new_weights_are_used_by_the_replicas_that_run(serving: None) -> None:
    handle = serve.run(serve.policy_app(Counting(1), num_replicas=2), route_prefix=None)
    assert handle.remote([0.0]).result() == (1, False)
    assert handle.explore.remote([0.0]).result() == (1, True)
    serve.run(serve.policy_app(Counting(2), num_replicas=2), route_prefix=None)
    while {handle.remote([0.0]).result()[0] for _ in range(20)} != {2}:
        pass
    assert serve.status()["default"].deployments["policy"].replicas == {"RUNNING": 2}


def test_what_is_no_policy_is_refused() -> None:
    with pytest.raises(TypeError, match="a policy has an act_batch"):
        serve.policy_app(object())  # type: ignore[arg-type]


def test_episodes_of_the_served_policy_train_it(serving: None) -> None:
    example = runpy.run_path(str(EXAMPLES / "serve_closed_loop.py"))
    rewards = example["main"](rounds=6)
    assert max(rewards[-2:]) > 1.5 * rewards[0], rewards


class Remembering:
    """Answers with what it has seen in an episode."""

    remembers = True

    def act_batch(self, observations: Any, explore: bool = False) -> list[Any]:
        raise AssertionError("it is asked with memories")

    def act_remembering(self, observations: Any, memories: list[Any], explore: bool) -> tuple[list[Any], list[Any]]:
        seen = [(memory or 0) + one for memory, one in zip(memories, observations, strict=True)]
        return seen, seen


def test_a_policy_that_remembers_has_a_memory_for_each_session(serving: None) -> None:
    handle = serve.run(serve.policy_app(Remembering(), num_replicas=2), route_prefix=None)
    sessions = [handle.options(session_id=f"player {number}") for number in range(6)]
    for step in range(1, 4):
        answers = [one.remote(number) for number, one in enumerate(sessions)]
        assert [one.result(60) for one in answers] == [number * step for number in range(6)]
    at_once = [sessions[0].remote(1) for _ in range(20)]
    assert [one.result(60) for one in at_once] == list(range(1, 21))
    sessions[0].reset.remote().result(60)
    assert sessions[0].explore.remote(5).result(60) == 5
    with pytest.raises(ValueError, match="session_id"):
        handle.remote(1).result(60)


@pytest.mark.parametrize("memory", ["gru", "lstm"])
def test_memories_that_are_given_back_are_those_of_the_episode(memory: str) -> None:
    settings = {"env": "CartPole-v1", "envs_per_worker": 2, "fragment_steps": 16, "memory": memory, "units": 4}
    with get_algorithm("RecurrentPPO")(**settings) as algorithm:
        policy, alone = algorithm.policy, algorithm.policy
    episodes = np.random.default_rng(0).normal(size=(5, 3, 4)).astype(np.float32)
    memories: list[Any] = [None] * 3
    together = []
    for step in episodes:
        actions, memories = policy.act_remembering(step, memories)
        together.append(list(actions))
    for index in range(3):
        alone.reset()
        assert [alone.act(step[index]) for step in episodes] == [step[index] for step in together]
