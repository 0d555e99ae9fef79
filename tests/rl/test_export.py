"""A policy as an ONNX file does what the policy does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from gymnasium import spaces
from worlds import Aiming, Masked, Matching, Nested, Pictures

from weft.rl import get_algorithm
from weft.rl.export import CannotExport

QUICK: dict[str, Any] = {"seed": 3, "hidden": (16,)}


class Shifted(Matching):
    action_space = spaces.Discrete(4, start=5)


def run(path: Path, **inputs: Any) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, inputs))


@pytest.mark.parametrize(
    ("name", "world", "settings"),
    [
        ("PPO", Matching, {"activation": "tanh", "normalize_observations": True}),
        ("PPO", Shifted, {"activation": "elu"}),
        ("PPO", Aiming, {"activation": "silu"}),
        ("A2C", Nested, {}),
        ("PPO", Masked, {"activation": "relu"}),
        ("PPO", Pictures, {"convolutions": ((4, 6, 6), (8, 2, 2)), "image_features": 16}),
        ("DQN", Matching, {"dueling": True}),
        ("Rainbow", Masked, {"atoms": 7, "value_high": 2.0}),
        ("TD3", Aiming, {}),
        ("SAC", Aiming, {}),
        ("ES", Matching, {"directions": 2}),
    ],
)
def test_the_file_acts_as_the_policy(name: str, world: Any, settings: dict[str, Any], tmp_path: Path) -> None:
    env = world()
    seen = [env.reset(seed=seed)[0] for seed in range(20)]
    with get_algorithm(name)({**QUICK, **settings}, env=world) as algorithm:
        policy, encoder = algorithm.policy, algorithm.encoder
    policy.export_onnx(tmp_path / "policy.onnx")
    (actions,) = run(tmp_path / "policy.onnx", observation=np.stack([encoder.encode(one) for one in seen]))
    np.testing.assert_allclose(actions, np.asarray(policy.act_batch(seen)), atol=1e-5)
    assert len(np.unique(actions, axis=0)) > 1


@pytest.mark.parametrize("memory", ["gru", "lstm"])
def test_a_memory_is_carried_from_call_to_call(memory: str, tmp_path: Path) -> None:
    with get_algorithm("RecurrentPPO")(QUICK, env=Aiming, memory=memory, units=6) as algorithm:
        policy, size = algorithm.policy, algorithm.behaviour.model.cell.state_size
    policy.export_onnx(tmp_path / "policy.onnx")
    state = np.zeros((1, size), np.float32)
    policy.reset()
    for value in (0.5, -0.25, 0.75):
        seen = np.array([value], np.float32)
        action, state = run(tmp_path / "policy.onnx", observation=seen[None], state=state)
        np.testing.assert_allclose(action[0], policy.act(seen), atol=1e-5)


def test_a_network_of_the_user_is_refused(tmp_path: Path) -> None:
    network = (lambda key, seen: {"w": np.ones((4, 3), np.float32)}, lambda params, seen: seen @ params["w"])
    with get_algorithm("PPO")(QUICK, env=Matching, network=network) as algorithm, pytest.raises(CannotExport):
        algorithm.policy.export_onnx(tmp_path / "policy.onnx")
