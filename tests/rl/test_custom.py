"""Networks and losses of users, in the learner and in workers."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import ModuleType
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from gymnasium import spaces
from worlds import Aiming, Masked, Matching, Nested, Offered, Remembering

from weft.rl import PPO, SettingError, get_algorithm
from weft.rl.algorithms import ppo
from weft.rl.custom import CustomNetwork
from weft.rl.spaces import ActionDecoder, ObservationEncoder

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
QUICK: dict[str, Any] = {
    "seed": 1,
    "fragment_steps": 32,
    "learning_rate": 1e-2,
    "gamma": 0.0,
    "metrics_window": 20,
    "hidden": (16,),
}
REPLAY = {**QUICK, "learning_starts": 200, "learning_rate": 3e-3, "fragment_steps": 16, "envs_per_worker": 4}


class Features(nn.Module):
    """Of whatever it is shown."""

    @nn.compact
    def __call__(self, observations: Any) -> Any:
        flat = [leaf.reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(observations)]
        return nn.tanh(nn.Dense(32)(jnp.concatenate(flat, axis=-1)))


class Scores(nn.Module):
    """A score of each offer and a value: the whole of an actor-critic."""

    @nn.compact
    def __call__(self, seen: Any) -> Any:
        scores = jnp.einsum("nk,nok->no", nn.Dense(8)(seen["sign"]), nn.Dense(8)(seen["offers"]))
        return scores, nn.Dense(1)(seen["sign"])


def many_layers(key: Any, observations: Any) -> list[Any]:
    """Eleven of them, so that the order of the names is not the order of the leaves."""
    return [jnp.eye(4) * (1.0 + index / 100) for index in range(10)] + [0.1 * jax.random.normal(key, (4, 16))]


def through_all(layers: list[Any], observations: Any) -> Any:
    for layer in layers:
        observations = observations @ layer
    return observations


class Layers(nnx.Module):
    """Of Flax's other API, in which modules hold their parameters."""

    def __init__(self, inputs: int, *, rngs: nnx.Rngs) -> None:
        self.layers = nnx.List([nnx.Linear(inputs, 24, rngs=rngs), nnx.Linear(24, 16, rngs=rngs)])
        self.norm = nnx.LayerNorm(24, rngs=rngs)

    def __call__(self, observations: Any) -> Any:
        first, second = self.layers
        return nnx.tanh(second(self.norm(nnx.relu(first(observations)))))


def make_layers(rngs: nnx.Rngs) -> Layers:
    return Layers(4, rngs=rngs)


class Dropping(nnx.Module):
    def __init__(self, *, rngs: nnx.Rngs) -> None:
        self.linear, self.dropout = nnx.Linear(4, 4, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, observations: Any) -> Any:
        return self.dropout(self.linear(observations))


class RunningMean(nn.Module):
    @nn.compact
    def __call__(self, observations: Any) -> Any:
        return nn.BatchNorm(use_running_average=False)(observations)


def weighed_loss(model: Any, config: Any, evaluate: Any) -> Any:
    original = ppo.make_loss(model, config, evaluate)

    def loss(params: Any, minibatch: Any) -> Any:
        total, said = original(params, minibatch)
        size = sum(jnp.sum(value**2) for value in jax.tree.leaves(params))
        return total + 10.0 * size, {**said, "size": size}

    return loss


def best_reward(algorithm: Any, enough: float, iterations: int = 40) -> float:
    best = -np.inf
    for _ in range(iterations):
        best = max(best, algorithm.train()["episode_reward_mean"])
        if best >= enough:
            break
    return float(best)


def made(network: Any) -> Any:
    """Modules of nnx hold arrays: made while tests are collected, they would start JAX's threads before other tests
    fork."""
    if network == "layers":
        return Layers(4, rngs=nnx.Rngs(3))
    return Dropping(rngs=nnx.Rngs(0)) if network == "dropping" else network


@pytest.mark.parametrize(
    ("name", "env", "network", "enough", "settings"),
    [
        ("PPO", Nested, Features(), 7.0, QUICK),
        ("PPO", Offered, Scores(), 7.0, QUICK),
        ("PPO", Matching, (many_layers, through_all), 7.0, QUICK),
        ("PPO", Matching, "layers", 7.0, QUICK),
        ("DQN", Matching, make_layers, 7.0, {**REPLAY, "exploration_timesteps": 500}),
        ("ES", Matching, Features(), 6.0, {"seed": 1, "directions": 24, "learning_rate": 0.1}),
        ("ARS", Matching, make_layers, 6.0, {"seed": 1, "learning_rate": 0.3, "directions": 24}),
        ("DQN", Masked, Features(), 6.5, {**REPLAY, "exploration_timesteps": 500}),
        ("TD3", Aiming, Features(), -0.5, {**REPLAY, "random_timesteps": 200}),
    ],
)
def test_it_learns_with_a_network_of_the_user(
    name: str, env: type[Any], network: Any, enough: float, settings: dict[str, Any]
) -> None:
    with get_algorithm(name)(settings, env=env, network=made(network)) as algorithm:
        assert best_reward(algorithm, enough) >= enough


@pytest.mark.parametrize("name", ["PG", "A2C", "RecurrentPPO", "SAC"])
def test_every_family_takes_one(name: str) -> None:
    env = {"SAC": Aiming, "RecurrentPPO": Remembering}.get(name, Matching)
    with get_algorithm(name)(env=env, network=Features(), fragment_steps=8, seed=1) as algorithm:
        before = algorithm.weights()
        assert any("Dense_0" in name for name in algorithm.acting_params())
        algorithm.train()
        assert algorithm.metrics.timesteps and algorithm.policy.act(env().reset(seed=1)[0]) is not None
        assert len(before) == len(algorithm.weights())


def test_workers_jit_it_and_a_killed_one_is_replaced(weft_session: ModuleType) -> None:
    with PPO(QUICK, env=Offered, network=Scores(), workers=1) as algorithm:
        algorithm.train()
        (worker,) = algorithm.workers.statistics()
    assert worker["frameworks"] == ["jax"]


def test_workers_take_a_module_of_nnx_and_a_checkpoint_names_what_makes_it(
    tmp_path: Path, weft_session: ModuleType
) -> None:
    with PPO(QUICK, env=Matching, network=make_layers, workers=1) as algorithm:
        algorithm.train()
        folder = algorithm.save(tmp_path / "here")
        weights = algorithm.weights()
        policy = algorithm.policy
    signs = list(np.eye(4, dtype=np.float32))
    with PPO.from_checkpoint(folder, workers=0) as again:
        assert np.array_equal(again.weights(), weights)
        assert again.policy.act_batch(signs) == policy.act_batch(signs)


def test_a_module_of_nnx_that_is_made_follows_the_seed_and_one_that_is_given_does_not() -> None:
    def first(network: Any, seed: int) -> Any:
        custom = CustomNetwork("network", network, ObservationEncoder(Matching.observation_space))
        return np.concatenate([value.ravel() for value in custom.init(np.random.default_rng(seed)).values()])

    given = Layers(4, rngs=nnx.Rngs(3))
    assert np.array_equal(first(given, 1), first(given, 2))
    assert np.array_equal(first(make_layers, 1), first(make_layers, 1))
    assert not np.array_equal(first(make_layers, 1), first(make_layers, 2))


def test_numpy_and_jax_see_the_same_outputs() -> None:
    encoder = ObservationEncoder(Matching.observation_space)
    network = CustomNetwork("network", (many_layers, through_all), encoder)
    params = network.init(np.random.default_rng(1))
    assert network.features == 16 and len(params) == 11
    encoded = np.random.default_rng(2).standard_normal((3, 2, 4), np.float32)
    ours = network.apply(np, params, encoded)
    assert ours.shape == (3, 2, 16) and isinstance(ours, np.ndarray)
    np.testing.assert_allclose(ours, network.apply(jnp, params, jnp.asarray(encoded)), atol=1e-5)


def test_a_network_sees_the_structure_of_the_space() -> None:
    space = spaces.Dict(
        {
            "a": spaces.Tuple((spaces.Discrete(3), spaces.Box(0, 1, (2, 2)))),
            "action_mask": spaces.MultiBinary(2),
            "b": spaces.MultiDiscrete([2, 2]),
        }
    )
    encoder = ObservationEncoder(space, ActionDecoder(spaces.Discrete(2)))
    box = np.arange(4, dtype=np.float32).reshape(2, 2) / 4
    value = {"a": (1, box), "action_mask": np.array([0, 1], np.int8), "b": np.array([1, 0])}
    seen = encoder.structured(encoder.encode(value)[None])
    assert seen["a"][0].tolist() == [[0, 1, 0]] and seen["a"][1].tolist() == [box.tolist()]
    assert seen["b"].tolist() == [[0, 1, 1, 0]] and seen["action_mask"].tolist() == [[0, 1]]


def test_a_loss_of_the_user_is_what_is_minimised() -> None:
    with PPO(QUICK, env=Matching, make_loss=weighed_loss) as algorithm:
        sizes = [algorithm.train()["learner"]["size"] for _ in range(3)]
    assert sizes[0] > sizes[1] > sizes[2]


def test_a_checkpoint_names_networks_and_losses_that_can_be_imported(tmp_path: Path) -> None:
    local = Features()
    with PPO(QUICK, env=Matching, network=local, make_loss=weighed_loss) as algorithm:
        folder = algorithm.save(tmp_path / "here")
        weights = algorithm.weights()
    with pytest.raises(SettingError, match="pass network="):
        PPO.from_checkpoint(folder)
    with PPO.from_checkpoint(folder, network=local) as again:
        assert again.config.make_loss.endswith(":weighed_loss")
        assert np.array_equal(again.weights(), weights)


@pytest.mark.parametrize(
    ("name", "network", "message"),
    [
        ("PPO", Features, "must be a Flax module"),
        ("PPO", RunningMean(), "only parameters are learnt"),
        ("DQN", (many_layers, lambda params, seen: (seen, seen)), r"features \[N, k\] are needed"),
        ("PPO", (many_layers, lambda params, seen: (seen[:, :3], seen[:, :1])), "need 4 numbers"),
        ("PPO", (many_layers, lambda params, seen: seen.sum()), "for a batch of one observation"),
        ("PPO", "dropping", "variables that are no parameters, such as .*dropout"),
        ("PPO", lambda rngs: 3, "a function of nnx.Rngs"),
    ],
)
def test_a_network_that_does_not_fit_is_refused(name: str, network: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        get_algorithm(name)(env=Matching, network=made(network))


def test_the_example_of_own_networks_runs() -> None:
    assert len(runpy.run_path(str(EXAMPLES / "rl_custom_network.py"))["main"](iterations=1)) == 2


def test_the_example_of_offered_actions_runs() -> None:
    rewards = runpy.run_path(str(EXAMPLES / "rl_offered_actions.py"))["main"](iterations=4)
    assert rewards[-1] > rewards[0]
