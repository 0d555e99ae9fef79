"""Spaces, distributions and networks: the same numbers in NumPy and in JAX, and right ones."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from weft.rl.config import AlgorithmConfig
from weft.rl.distributions import Categorical, DiagonalGaussian, MultiCategorical, SquashedGaussian
from weft.rl.models import ActorCritic
from weft.rl.networks import CNN, MLP, WeightLayout, convolve_by_products
from weft.rl.spaces import ActionDecoder, ObservationEncoder, SpaceMismatch

RNG = np.random.default_rng(7)


@pytest.mark.parametrize("activation", ["tanh", "relu", "elu", "silu"])
def test_an_mlp_computes_the_same_in_numpy_and_in_jax(activation: str) -> None:
    network = MLP("net", (5, 16, 3), activation)
    params, inputs = network.init(RNG), RNG.standard_normal((4, 5), np.float32)
    np.testing.assert_allclose(network.apply(np, params, inputs), network.apply(jnp, params, inputs), atol=1e-5)


def test_a_cnn_computes_the_same_in_numpy_and_in_jax() -> None:
    network = CNN("net", (20, 24, 2), ((4, 8, 4), (3, 2, 1)), 6)
    params, images = network.init(RNG), RNG.integers(0, 255, (2, 3, 20, 24, 2)).astype(np.uint8)
    outputs = network.apply(np, params, images)
    assert outputs.shape == (2, 3, 6) and outputs.any()
    np.testing.assert_allclose(outputs, network.apply(jnp, params, jnp.asarray(images)), atol=1e-5)


@pytest.mark.parametrize(("size", "stride"), [(8, 4), (4, 2), (3, 1), (5, 2), (4, 3), (2, 3)])
def test_a_convolution_by_products_and_its_gradient_are_those_of_xla(size: int, stride: int) -> None:
    images, kernel = RNG.random((2, 13, 17, 3), np.float32), RNG.random((size, size, 3, 4), np.float32)

    def of_xla(images: Any, kernel: Any) -> Any:
        dimensions = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(images, kernel, (stride, stride), "VALID", dimension_numbers=dimensions)

    def ours(images: Any, kernel: Any) -> Any:
        return convolve_by_products(jnp, images, kernel, stride)

    expected = of_xla(images, kernel)
    np.testing.assert_allclose(convolve_by_products(np, images, kernel, stride), expected, rtol=1e-4)
    weights = RNG.random(expected.shape, np.float32)
    for argument in (0, 1):
        gradients = [jax.grad(lambda *both, of=of: (of(*both) * weights).sum(), argument) for of in (of_xla, ours)]
        np.testing.assert_allclose(*(gradient(images, kernel) for gradient in gradients), rtol=1e-3, atol=1e-4)


def test_initial_weights_are_orthogonal() -> None:
    weight = MLP("net", (64, 32, 8)).init(RNG)["net.0.weight"]
    np.testing.assert_allclose(weight.T @ weight, 2 * np.eye(32), atol=1e-4)


def test_packed_weights_are_read_in_place() -> None:
    params = MLP("net", (3, 4, 2)).init(RNG)
    layout = WeightLayout(params)
    vector = layout.pack(params)
    unpacked = layout.unpack(vector)
    assert all(np.array_equal(unpacked[name], params[name]) for name in params)
    assert all(np.shares_memory(array, vector) for array in unpacked.values())


DISTRIBUTIONS: list[tuple[Any, tuple[int, ...]]] = [
    (Categorical, (4,)),
    (MultiCategorical, (2, 3)),
    (DiagonalGaussian, (2,)),
    (SquashedGaussian, (2,)),
]


@pytest.mark.parametrize(("kind", "sizes"), DISTRIBUTIONS)
def test_a_distribution_is_the_same_in_numpy_and_in_jax(kind: Any, sizes: tuple[int, ...]) -> None:
    inputs = RNG.standard_normal((6, kind.input_size(sizes)), np.float32)
    noise = kind.noise(RNG, (6,), sizes)
    ours, theirs = kind(np, inputs, sizes), kind(jnp, jnp.asarray(inputs), sizes)
    actions = ours.sample(noise)
    np.testing.assert_allclose(actions, theirs.sample(noise), atol=1e-5)
    np.testing.assert_allclose(ours.log_prob(actions), theirs.log_prob(actions), atol=1e-3)
    np.testing.assert_allclose(ours.entropy(), theirs.entropy(), atol=1e-5)
    np.testing.assert_allclose(ours.kl(ours), 0, atol=1e-6)


@pytest.mark.parametrize(("kind", "sizes"), DISTRIBUTIONS[:3])
def test_entropy_is_the_mean_of_minus_log_prob_of_samples(kind: Any, sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    inputs = np.broadcast_to(rng.standard_normal(kind.input_size(sizes), np.float32), (40_000, kind.input_size(sizes)))
    distribution = kind(np, inputs, sizes)
    samples = distribution.sample(kind.noise(rng, (40_000,), sizes))
    assert math.isclose(-distribution.log_prob(samples).mean(), distribution.entropy()[0], rel_tol=0.02)


def test_a_squashed_sample_has_the_log_prob_that_it_says() -> None:
    inputs = RNG.standard_normal((50, 4), np.float32)
    distribution = SquashedGaussian(np, inputs, (2,))
    actions, log_probs = distribution.sample_with_log_prob(0.5 * RNG.standard_normal((50, 2)))
    assert np.abs(actions).max() < 1
    np.testing.assert_allclose(distribution.log_prob(actions), log_probs, atol=2e-2)


def test_nested_observations_become_one_vector() -> None:
    space = spaces.Dict(
        {"a": spaces.Tuple((spaces.Discrete(3, start=1), spaces.MultiBinary(2))), "b": spaces.Box(0, 9, (2, 1))}
    )
    encoder = ObservationEncoder(space)
    value = {"a": (2, np.array([1, 0], np.int8)), "b": np.array([[4.0], [5.0]], np.float32)}
    assert encoder.encode(value).tolist() == [0, 1, 0, 1, 0, 4, 5]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": 1}, "must be a dict of"),
        ({"a": 5, "b": np.zeros(2, np.float32)}, r"observation\['a'\] must be a whole number from 0 to 2, but got 5"),
        ({"a": 1, "b": np.zeros(3, np.float32)}, r"observation\['b'\] must have shape \(2,\)"),
        ({"a": 1, "b": np.zeros(2, complex)}, r"observation\['b'\] must have dtype float32"),
    ],
)
def test_an_observation_that_is_not_of_its_space_is_named(value: Any, message: str) -> None:
    encoder = ObservationEncoder(spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Box(0, 1, (2,))}))
    with pytest.raises(SpaceMismatch, match=message):
        encoder.encode(value)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(3, start=-1),
        spaces.MultiDiscrete([2, 3]),
        spaces.MultiBinary(3),
        spaces.Box(-2, 5, (2, 2), np.float32),
        spaces.Box(0, np.inf, (2,), np.float64),
    ],
)
def test_decoded_actions_are_of_the_space(space: Any) -> None:
    decoder = ActionDecoder(space)
    chosen = RNG.standard_normal((20, *decoder.shape)) * 3
    if decoder.kind != "box":
        chosen = RNG.integers(0, decoder.sizes, (20, len(decoder.sizes))).reshape(20, *decoder.shape)
    assert all(
        space.contains(np.int64(action) if decoder.kind == "discrete" else action) for action in decoder.decode(chosen)
    )


def test_bounded_actions_use_their_whole_range() -> None:
    decoder = ActionDecoder(spaces.Box(np.float32([0, -2]), np.float32([10, 2])))
    assert decoder.decode(np.array([[-1.0, 1.0], [0.0, 0.5]])).tolist() == [[0, 2], [5, 1]]


def test_a_masked_action_has_no_probability() -> None:
    space = spaces.Dict({"x": spaces.Box(-1, 1, (2,)), "action_mask": spaces.MultiBinary(3)})
    decoder = ActionDecoder(spaces.Discrete(3))
    encoder = ObservationEncoder(space, decoder)
    model = ActorCritic.of(encoder, decoder, AlgorithmConfig(hidden=(8,)))
    observation = encoder.encode({"x": np.zeros(2, np.float32), "action_mask": np.array([1, 0, 1], np.int8)})
    inputs = model.action_inputs(np, model.init(RNG), observation[None])
    probabilities = np.exp(model.distribution(np, inputs).log_probs())[0]
    assert probabilities[1] == 0 and math.isclose(probabilities.sum(), 1, rel_tol=1e-5)


@pytest.mark.parametrize(
    ("actions", "mask", "message"),
    [
        (spaces.Discrete(3), [0, 0, 0], "forbids every action$"),
        (spaces.Discrete(3), [1, 1], "must have 3 entries, but got 2"),
        (spaces.MultiDiscrete([2, 3]), [1, 0, 0, 0, 0], "forbids every action of choice 1"),
    ],
)
def test_a_mask_that_leaves_nothing_to_do_is_named(actions: Any, mask: list[int], message: str) -> None:
    space = spaces.Dict({"x": spaces.Box(-1, 1, (2,)), "action_mask": spaces.MultiBinary(len(mask))})
    encoder = ObservationEncoder(space, ActionDecoder(actions))
    value = {"x": np.zeros(2, np.float32), "action_mask": np.array(mask, np.int8)}
    with pytest.raises(SpaceMismatch, match=message):
        encoder.encode(value)
    if len(mask) == encoder.mask_size:
        assert encoder.encode(value, is_last=True).tolist() == [0, 0, *mask]


def test_a_mask_beside_continuous_actions_is_an_observation_like_others() -> None:
    space = spaces.Dict({"x": spaces.Box(-1, 1, (2,)), "action_mask": spaces.MultiBinary(2)})
    encoder = ObservationEncoder(space, ActionDecoder(spaces.Box(-1, 1, (2,))))
    assert encoder.mask_size == 0 and encoder.shape == (4,)
    seen = encoder.encode({"x": np.ones(2, np.float32), "action_mask": np.array([0, 1], np.int8)})
    assert sorted(seen.tolist()) == [0, 1, 1, 1]
