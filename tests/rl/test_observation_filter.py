"""The filter of observations is counted, never trained: no gradient moves it, and none of it reaches the optimiser."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from worlds import Aiming, Matching

from weft.rl import PPO, RecurrentPPO, SettingError

QUICK: dict[str, Any] = {
    "env": Aiming,
    "seed": 1,
    "envs_per_worker": 4,
    "fragment_steps": 16,
    "hidden": (8,),
    "epochs": 4,
    "learning_rate": 0.05,
}
MEAN, SCALE = 3.0, 0.25


def first_update(algorithm: Any, batch: dict[str, Any], orders: Any) -> dict[str, Any]:
    learner, _ = algorithm._update(algorithm.learner, batch, orders)
    return {name: np.asarray(value) for name, value in learner["params"].items()}


@pytest.mark.parametrize(("kind", "minibatch"), [(PPO, 16), (RecurrentPPO, 2)])
def test_an_update_through_the_filter_is_the_update_on_filtered_observations(kind: Any, minibatch: int) -> None:
    plain = kind(QUICK, minibatch=minibatch, normalize_observations=False)
    filtered = kind(QUICK, minibatch=minibatch, normalize_observations=True)
    with plain, filtered:
        batch = dict(plain.sample()[0].arrays)
        count = 4 if kind is RecurrentPPO else 64
        orders = np.stack([np.random.default_rng(row).permutation(count) for row in range(4)]).astype(np.int32)
        orders = orders.reshape(-1, minibatch) if kind is RecurrentPPO else orders.reshape(4, -1, minibatch)
        known = {"filter.mean": jnp.full(1, MEAN), "filter.scale": jnp.full(1, SCALE)}
        filtered.learner["filter"] = known
        far = {**batch, "observations": batch["observations"] / np.float32(SCALE) + np.float32(MEAN)}
        expected, found = first_update(plain, batch, orders), first_update(filtered, far, orders)
    assert set(found) == set(expected), "something that is not trained is among what is"
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=2e-3, atol=2e-4, err_msg=name)


def test_the_filter_holds_what_was_seen_and_goes_with_the_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    with PPO(QUICK, env=Matching, minibatch=16, normalize_observations=True) as algorithm:
        seen = []
        sample = algorithm.workers.sample

        def noted(*arguments: Any) -> Any:
            fragments = sample(*arguments)
            seen.append(fragments[0].arrays["observations"][:-1].reshape(-1, 4))
            return fragments

        monkeypatch.setattr(algorithm.workers, "sample", noted)
        for _ in range(3):
            algorithm.train()
        rows, acting = np.concatenate(seen), algorithm.acting_params()
        np.testing.assert_allclose(acting["filter.mean"], rows.mean(axis=0), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(acting["filter.scale"], 1 / rows.std(axis=0), rtol=1e-3)


def test_a_network_with_whole_numbers_among_its_parameters_is_refused() -> None:
    def init(key: Any, observations: Any) -> Any:
        return {"weight": jnp.ones((1, 2)), "steps": jnp.zeros((), jnp.int32)}

    def apply(params: Any, observations: Any) -> Any:
        return observations @ params["weight"]

    with pytest.raises(SettingError, match="steps"):
        PPO(QUICK, minibatch=16, network=(init, apply))
