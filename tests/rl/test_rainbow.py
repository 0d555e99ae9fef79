"""Each of Rainbow's six parts beside a slow reference: one transition, one atom, one weight at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from worlds import Matching

from weft.rl.algorithms.dqn import LayerNoise, RainbowConfig, distribution_errors, project, value_errors
from weft.rl.behaviours import EpsilonGreedy
from weft.rl.config import AlgorithmConfig
from weft.rl.q_models import QModel
from weft.rl.replay import PrioritizedReplay
from weft.rl.spaces import ActionDecoder, ObservationEncoder

FEATURES, ACTIONS, BATCH = 8, 4, 6


def q_model(**switches: Any) -> QModel:
    encoder, decoder = ObservationEncoder(Matching.observation_space), ActionDecoder(Matching.action_space)
    return QModel.of(encoder, decoder, AlgorithmConfig(hidden=(FEATURES,)), **switches)


def rainbow_model() -> QModel:
    return q_model(dueling=True, noisy=True, atoms=11, low=-2.0, high=3.0)


def some_batch(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "observations": rng.standard_normal((BATCH, 4), np.float32),
        "next_observations": rng.standard_normal((BATCH, 4), np.float32),
        "actions": rng.integers(0, ACTIONS, BATCH),
        "rewards": rng.uniform(-3, 4, BATCH).astype(np.float32),
        "discounts": np.array([0.9, 0.9, 0.0, 0.5, 0.0, 0.9], np.float32),
    }


def slow_outputs(model: QModel, params: Any, observation: Any, noise: dict[str, Any]) -> Any:
    """[actions, atoms] of one observation, each noisy weight made on its own and the streams joined as in the paper."""
    features = np.tanh(observation @ params["torso.0.weight"] + params["torso.0.bias"])

    def head(name: str, outputs: int) -> Any:
        found = np.zeros(outputs)
        for j in range(outputs):
            found[j] = params[f"{name}.bias"][j] + params[f"{name}.bias_noise"][j] * noise[f"{name}.out"][j]
            for i in range(FEATURES):
                epsilon = noise[f"{name}.in"][i] * noise[f"{name}.out"][j]
                found[j] += features[i] * (
                    params[f"{name}.weight"][i, j] + params[f"{name}.weight_noise"][i, j] * epsilon
                )
        return found

    advantages = head("advantage", ACTIONS * model.atoms).reshape(ACTIONS, model.atoms)
    value = head("value", model.atoms)
    joined = np.zeros((ACTIONS, model.atoms))
    for action in range(ACTIONS):
        for atom in range(model.atoms):
            joined[action, atom] = value[atom] + advantages[action, atom] - advantages[:, atom].sum() / ACTIONS
    return joined


def softmax(logits: Any) -> Any:
    return np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()


def slow_projection(model: QModel, reward: float, discount: float, probabilities: Any) -> Any:
    """Algorithm 1 of https://arxiv.org/abs/1707.06887."""
    gap = (model.high - model.low) / (model.atoms - 1)
    found = np.zeros(model.atoms)
    for atom, probability in enumerate(probabilities):
        moved = min(max(reward + discount * (model.low + atom * gap), model.low), model.high)
        place = (moved - model.low) / gap
        lower, upper = math.floor(place + 1e-9), math.ceil(place - 1e-9)
        if lower == upper:
            found[lower] += probability
        else:
            found[lower] += probability * (upper - place)
            found[upper] += probability * (place - lower)
    return found


def test_noisy_dueling_outputs_are_those_of_weights_made_one_by_one() -> None:
    rng = np.random.default_rng(0)
    model = rainbow_model()
    params, noise = model.init(rng), model.layer_noise(rng)
    observations = rng.standard_normal((BATCH, 4), np.float32)
    found = model.outputs(np, params, observations, noise)
    for row, observation in enumerate(observations):
        np.testing.assert_allclose(found[row], slow_outputs(model, params, observation, noise), atol=1e-4)


def test_a_draw_for_each_observation_is_as_if_each_were_alone() -> None:
    rng = np.random.default_rng(1)
    model = rainbow_model()
    params, noise = model.init(rng), model.layer_noise(rng, (BATCH,))
    observations = rng.standard_normal((BATCH, 4), np.float32)
    found = model.outputs(np, params, observations, noise)
    for row in range(BATCH):
        own = {name: drawn[row] for name, drawn in noise.items()}
        np.testing.assert_allclose(found[row], model.outputs(np, params, observations[row], own), atol=1e-4)


def test_noisy_layers_begin_as_their_paper_says() -> None:
    model = q_model(noisy=True)
    params = model.init(np.random.default_rng(0))
    limit = 1 / math.sqrt(FEATURES)
    for name in ("advantage.weight", "advantage.bias"):
        assert np.abs(params[name]).max() <= limit
        assert len(np.unique(params[name])) == params[name].size
        np.testing.assert_allclose(params[f"{name}_noise"], 0.5 * limit)


def test_a_worker_draws_noise_anew_for_every_step_and_environment() -> None:
    model = rainbow_model()
    params = model.init(np.random.default_rng(0))
    behaviour = EpsilonGreedy(model)
    behaviour.begin(np.random.default_rng(3), 50, 40, 0.0)
    same = np.tile(np.array([0.1, -0.2, 0.3, 0.0], np.float32), (40, 1))
    actions = np.stack([behaviour.act(params, same, time) for time in range(50)])
    assert (actions != actions[:, :1]).any()  # environments differ within a step
    assert (actions != actions[:1]).any()  # and steps within an environment
    best = np.bincount(actions.ravel(), minlength=ACTIONS).argmax()
    assert (behaviour.best(params, same) == best).all()  # noise of mean 0 moves the choice about the quiet one


def test_projected_distributions_are_those_of_the_papers_loop() -> None:
    model = q_model(atoms=11, low=-2.0, high=3.0)
    rng = np.random.default_rng(4)
    probabilities = rng.dirichlet(np.ones(11), 40).astype(np.float32)
    rewards, discounts = rng.uniform(-4, 4, 40), rng.choice([0.0, 0.5, 0.97], 40)
    rewards[:4], discounts[:4] = [0.5, -2.0, 3.0, 0.0], [0.0, 0.0, 0.0, 1.0]  # on points, at the ends, not moved
    found = project(model, rewards, discounts, probabilities)
    for row in range(40):
        expected = slow_projection(model, rewards[row], discounts[row], probabilities[row])
        np.testing.assert_allclose(found[row], expected, atol=1e-5)


@pytest.mark.parametrize("double", [True, False])
def test_losses_and_errors_of_distributions_are_those_of_one_transition_at_a_time(double: bool) -> None:
    rng = np.random.default_rng(5)
    model = rainbow_model()
    params, target = model.init(rng), model.init(rng)
    batch, noise = some_batch(rng), LayerNoise(*(model.layer_noise(rng) for _ in range(3)))
    losses, errors = distribution_errors(model, RainbowConfig(double=double), params, target, batch, noise)
    support = np.linspace(model.low, model.high, model.atoms)
    for row in range(BATCH):
        chooser, drawn = (params, noise.choosing) if double else (target, noise.target)
        after = batch["next_observations"][row]
        values = [softmax(logits) @ support for logits in slow_outputs(model, chooser, after, drawn)]
        following = softmax(slow_outputs(model, target, after, noise.target)[int(np.argmax(values))])
        goal = slow_projection(model, batch["rewards"][row], batch["discounts"][row], following)
        logits = slow_outputs(model, params, batch["observations"][row], noise.online)[batch["actions"][row]]
        predicted = softmax(logits)
        divergence = sum(p * math.log(p / q) for p, q in zip(goal, predicted, strict=True) if p > 0)
        assert losses[row] == pytest.approx(-(goal @ np.log(predicted)), abs=1e-4)
        assert errors[row] == pytest.approx(divergence, abs=1e-4)


def test_values_are_chosen_by_one_network_and_given_by_the_other() -> None:
    model = q_model(atoms=1)
    rng = np.random.default_rng(6)
    params, target, batch = model.init(rng), model.init(rng), some_batch(rng)
    quiet = LayerNoise({}, {}, {})
    for double in (True, False):
        _, errors = value_errors(model, RainbowConfig(atoms=1, double=double), params, target, batch, quiet)
        for row in range(BATCH):
            theirs = model.q_values(np, target, batch["next_observations"][row], {})
            ours = model.q_values(np, params, batch["next_observations"][row], {})
            after = theirs[ours.argmax()] if double else theirs.max()
            value = model.q_values(np, params, batch["observations"][row], {})[batch["actions"][row]]
            expected = batch["rewards"][row] + batch["discounts"][row] * after - value
            assert errors[row] == pytest.approx(float(expected), abs=1e-4)


def test_a_batch_has_one_draw_of_each_equal_part_of_the_priorities() -> None:
    replay = PrioritizedReplay(8, alpha=1.0)
    places = replay.add({"rewards": np.arange(8, dtype=np.float32)})
    replay.set_priorities(
        places, np.array([4.0, 1.0, 1.0, 2.0, 4.0, 2.0, 1.0, 1.0])
    )  # parts of 4: 0 | 1 2 3 | 4 | rest
    drawn, _ = replay.sample(np.random.default_rng(0), (200, 4), 0.5)
    for part, of in enumerate(([0], [1, 2, 3], [4], [5, 6, 7])):
        assert set(drawn[:, part].tolist()) == set(of)


def test_weights_are_those_of_the_paper_within_each_batch() -> None:
    replay = PrioritizedReplay(50, alpha=0.5)
    places = replay.add({"rewards": np.zeros(30, np.float32)})
    errors = np.random.default_rng(2).uniform(0.1, 5, 30)
    replay.set_priorities(places, errors)
    drawn, batches = replay.sample(np.random.default_rng(3), (7, 10), 0.6)
    priorities = [(error + 1e-6) ** 0.5 for error in errors]
    for row in range(7):
        raw = [(30 * priorities[place] / sum(priorities)) ** -0.6 for place in drawn[row]]
        np.testing.assert_allclose(batches["weights"][row], np.array(raw) / max(raw), rtol=1e-4)


def test_weights_correct_for_priorities_more_and_more() -> None:
    config = RainbowConfig(priority_beta=0.4, priority_beta_updates=1000)
    assert [config.priority_beta_after(updates) for updates in (0, 500, 1000, 9000)] == pytest.approx([0.4, 0.7, 1, 1])
