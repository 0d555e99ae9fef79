"""Policies as files: everything that acting needs in one safetensors file, read with NumPy alone."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from worlds import Aiming, Masked, Matching, Nested, Pictures

from weft.rl import PPO, Policy, SettingError, checkpoint, get_algorithm, load
from weft.rl.checkpoint import CheckpointError
from weft.rl.policy_file import PolicyFileError
from weft.rl.space_descriptions import described, space_of

SMALL: dict[str, Any] = {"seed": 3, "hidden": (8,), "envs_per_worker": 1}
PICTURES = {"convolutions": ((4, 6, 6), (8, 2, 2)), "image_features": 16}
CASES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "vector": ("PPO", Matching, {"normalize_observations": True, "minibatch": 8}),
    "box": ("PPO", Aiming, {"minibatch": 8}),
    "nested": ("PPO", Nested, {"activation": "elu"}),
    "masked": ("PPO", Masked, {"activation": "silu"}),
    "pictures": ("PPO", Pictures, PICTURES),
    "gru": ("RecurrentPPO", Matching, {"minibatch": 1}),
    "lstm": ("RecurrentPPO", Aiming, {"minibatch": 1, "memory": "lstm"}),
    "a2c": ("A2C", Matching, {}),
    "pg": ("PG", Matching, {}),
    "dqn": ("DQN", Matching, {"dueling": True}),
    "rainbow": ("Rainbow", Masked, {"value_low": -1.0, "value_high": 10.0}),
    "sac": ("SAC", Aiming, {}),
    "td3": ("TD3", Aiming, {}),
    "ars": ("ARS", Matching, {"noise_table": 10_000, "workers": 1}),
}
READER = """
import importlib.abc, json, pickle, sys

class Refused(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("jax", "gymnasium", "safetensors", "optax", "flax", "torch", "msgspec"):
            raise ImportError(name + " is not there")

sys.meta_path.insert(0, Refused())
import numpy, weft.rl
acted = {}
for name, observations in pickle.load(open(sys.argv[1] + "/observations.pkl", "rb")).items():
    policy = weft.rl.load(sys.argv[1] + "/" + name + ".safetensors")
    acted[name] = [numpy.asarray(policy.act(observation)).tolist() for observation in observations]
    acted[name].append(numpy.asarray(policy.act(observations[0], explore=True)).tolist())
assert not [name for name in sys.modules if name.partition(".")[0] in ("jax", "gymnasium", "safetensors")]
print(json.dumps(acted))
"""


def test_every_kind_of_policy_is_read_and_acts_with_numpy_alone(tmp_path: Path, weft_session: Any) -> None:
    expected: dict[str, Any] = {}
    shown: dict[str, Any] = {}
    for name, (kind, env, settings) in CASES.items():
        with get_algorithm(kind)({**SMALL, **settings}, env=env) as algorithm:
            policy = algorithm.policy
            policy.save(tmp_path / f"{name}.safetensors")
            world = env()
            observations = [world.reset(seed=seed)[0] for seed in range(4)]
            shown[name] = observations
            expected[name] = [np.asarray(policy.act(observation)).tolist() for observation in observations]
            expected[name].append(np.asarray(policy.act(observations[0], explore=True)).tolist())
    (tmp_path / "observations.pkl").write_bytes(pickle.dumps(shown))
    found = subprocess.run([sys.executable, "-c", READER, str(tmp_path)], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout) == expected


def test_a_checkpoint_gives_its_policy_without_the_environment_the_replay_and_jax(tmp_path: Path) -> None:
    with get_algorithm("DQN")(SMALL, env="CartPole-v1", learning_starts=64, fragment_steps=64) as algorithm:
        algorithm.train()
        folder = algorithm.save(tmp_path / "checkpoint")
        action = algorithm.policy.act(np.zeros(4, np.float32))
    (folder / "learner.safetensors").unlink()
    (folder / "workers.safetensors").unlink()
    state = json.loads((folder / "state.json").read_text())
    state["config"]["env"] = "no such environment"
    (folder / "state.json").write_text(json.dumps(state))
    code = (
        "import sys; from weft.rl import Policy; policy = Policy.from_checkpoint(sys.argv[1]); "
        "print(policy.act([0.0] * 4), 'jax' in sys.modules, 'gymnasium' in sys.modules)"
    )
    read = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
    assert read.stdout.split() == [str(action), "False", "False"]
    assert load(folder / "policy.safetensors").act(np.zeros(4, np.float32)) == action
    with pytest.raises(CheckpointError, match="is of DQN, not of PPO"):
        PPO.load_policy(folder)


def test_a_policy_of_a_network_of_ones_own_still_comes_from_its_checkpoint(tmp_path: Path) -> None:
    import jax.numpy as jnp

    def init(key: Any, observations: Any) -> Any:
        return {"weight": jnp.ones((4, 3))}

    def apply(params: Any, observations: Any) -> Any:
        return observations @ params["weight"]

    with PPO(SMALL, env=Matching, network=(init, apply)) as algorithm:
        folder = algorithm.save(tmp_path / "checkpoint")
        with pytest.raises(PolicyFileError, match="CustomNetwork is a program; export_onnx"):
            algorithm.policy.save(tmp_path / "policy.safetensors")
        action = algorithm.policy.act(np.eye(4, dtype=np.float32)[1])
    with pytest.raises(PolicyFileError, match="has weights alone"):
        load(folder / "policy.safetensors")
    policy = Policy.from_checkpoint(folder, env=Matching, network=(init, apply))
    assert policy.act(np.eye(4, dtype=np.float32)[1]) == action


def test_loading_an_algorithm_reads_its_memory_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with PPO(SMALL, env=Matching) as algorithm:
        folder = algorithm.save(tmp_path / "checkpoint")
    read: list[str] = []
    load_file = checkpoint.load_file

    def noted(path: Any) -> Any:
        read.append(Path(path).name)
        return load_file(path)

    monkeypatch.setattr(checkpoint, "load_file", noted)
    with load(folder, env=Matching):
        assert read.count("learner.safetensors") == 1


def test_a_damaged_file_is_said_to_be_one(tmp_path: Path) -> None:
    with PPO(SMALL, env=Matching) as algorithm:
        whole = algorithm.policy.save(tmp_path / "policy.safetensors").read_bytes()
    for length in (0, 7, 20, len(whole) // 2, len(whole) - 1):
        (tmp_path / "cut.safetensors").write_bytes(whole[:length])
        with pytest.raises(PolicyFileError, match=r"cut\.safetensors is no safetensors file, or is damaged"):
            load(tmp_path / "cut.safetensors")
    (tmp_path / "other.safetensors").write_bytes(whole.replace(b"Stochastic", b"Subprocess"))
    with pytest.raises(PolicyFileError, match="'Subprocess', which is no part of a policy"):
        load(tmp_path / "other.safetensors")
    with pytest.raises(SettingError, match="takes no settings, but got workers"):
        load(tmp_path / "policy.safetensors", workers=2)


@pytest.mark.parametrize(
    "space",
    [
        gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32),
        gymnasium.spaces.Box(np.array([[0.0, -np.inf], [0.0, 0.1]]), np.ones((2, 2)), dtype=np.float64),
        gymnasium.spaces.Box(0, 255, (4, 4, 1), np.uint8),
        gymnasium.spaces.Discrete(5, start=-2),
        gymnasium.spaces.MultiDiscrete([[2, 3], [4, 5]]),
        gymnasium.spaces.MultiBinary((2, 3)),
        gymnasium.spaces.Dict(a=gymnasium.spaces.Discrete(2), b=gymnasium.spaces.Tuple([gymnasium.spaces.Discrete(3)])),
    ],
)
def test_spaces_are_described_and_come_back_as_they_were(space: Any) -> None:
    again = space_of(json.loads(json.dumps(described(space))))
    assert described(again) == described(space)
    assert again.shape == space.shape and again.dtype == space.dtype
    for bound in ("low", "high", "nvec"):
        if hasattr(space, bound):
            np.testing.assert_array_equal(getattr(again, bound), getattr(space, bound))
