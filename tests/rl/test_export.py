"""A policy as an ONNX file does what the policy does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from flax import nnx
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


class Wide(nn.Module):
    """Something of most that networks are made of."""

    @nn.compact
    def __call__(self, observations: Any) -> Any:
        seen = jax.tree.leaves(observations)
        flat = jnp.concatenate([leaf.reshape(leaf.shape[0], -1) for leaf in seen], axis=-1)
        hidden = nn.LayerNorm()(nn.gelu(nn.Dense(12)(flat)))
        heads = nn.DenseGeneral((3, 4))(hidden)
        weights = nn.softmax(jnp.einsum("nhk,ngk->nhg", heads, heads) / 2.0)
        mixed = jnp.einsum("nhg,ngk->nhk", weights, heads).reshape(flat.shape[0], -1)
        gate = jnp.where(mixed > 0, nn.silu(mixed), nn.elu(mixed) ** 2)
        return nn.relu(gate + jnp.clip(mixed, -1, 1)) + nn.sigmoid(nn.Dense(12)(jnp.maximum(hidden, 0.1)))


class Convolved(nn.Module):
    @nn.compact
    def __call__(self, images: Any) -> Any:
        hidden = nn.relu(nn.Conv(4, (6, 6), strides=(6, 6), padding="SAME")(images / 255.0))
        hidden = nn.relu(nn.Conv(6, (3, 3), padding=1)(hidden))
        return nn.Dense(8)(hidden.reshape(hidden.shape[0], -1))


class Whole(nn.Module):
    @nn.compact
    def __call__(self, observations: Any) -> Any:
        hidden = nn.tanh(nn.Dense(8)(observations))
        return nn.Dense(4)(hidden), nn.Dense(1)(hidden)[:, 0]


class Modern(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first, self.second = nnx.Linear(4, 32, rngs=rngs), nnx.Linear(32, 16, rngs=rngs)

    def __call__(self, observations: Any) -> Any:
        hidden = nnx.leaky_relu(self.first(observations))
        return self.second(hidden) * nnx.softplus(hidden[:, :16])


@pytest.mark.parametrize(
    ("name", "world", "network"),
    [
        ("PPO", Matching, Wide()),
        ("PPO", Nested, Wide()),
        ("PPO", Matching, Whole()),
        ("PPO", Pictures, Convolved()),
        ("A2C", Matching, lambda rngs: Modern(rngs)),
        ("Rainbow", Masked, Wide()),
        ("SAC", Aiming, Wide()),
        ("ES", Matching, Wide()),
    ],
)
def test_the_file_of_a_network_of_the_user_acts_as_the_policy(
    name: str, world: Any, network: Any, tmp_path: Path
) -> None:
    test_the_file_acts_as_the_policy(name, world, {"network": network}, tmp_path)


def test_a_network_that_onnx_cannot_say_is_named(tmp_path: Path) -> None:
    network = (lambda key, seen: {"w": np.ones((4, 3), np.float32)}, lambda params, seen: jnp.sort(seen) @ params["w"])
    expected = pytest.raises(CannotExport, match="uses JAX's 'sort'")
    with get_algorithm("PPO")(QUICK, env=Matching, network=network) as algorithm, expected:
        algorithm.policy.export_onnx(tmp_path / "policy.onnx")
