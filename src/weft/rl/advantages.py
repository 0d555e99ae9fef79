"""Advantages and targets from fragments, in JAX, backwards through time by `lax.scan`. All arrays are [steps, N]."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


def next_values(values: Any, terminated: Any, truncated: Any, bootstrap: Any) -> Any:
    """The value after each step: 0 after an episode's end, that of its last observation where it was cut off.

    `values` has one row more than the others.
    """
    return jnp.where(terminated, 0.0, jnp.where(truncated, bootstrap, values[1:]))


def generalized_advantages(
    rewards: Any, values: Any, terminated: Any, truncated: Any, bootstrap: Any, gamma: float, lambda_: float
) -> Any:
    """GAE (https://arxiv.org/abs/1506.02438): a sum of temporal differences, discounted by gamma times lambda."""
    following = next_values(values, terminated, truncated, bootstrap)
    differences = rewards + gamma * following - values[:-1]
    goes_on = 1.0 - (terminated | truncated).astype(jnp.float32)

    def backward(later: Any, row: Any) -> tuple[Any, Any]:
        difference, continues = row
        advantage = difference + gamma * lambda_ * continues * later
        return advantage, advantage

    _, advantages = jax.lax.scan(backward, jnp.zeros_like(differences[0]), (differences, goes_on), reverse=True)
    return advantages


class VTrace(NamedTuple):
    """V-trace's value targets and policy-gradient advantages."""

    targets: Any
    advantages: Any


def v_trace(
    ratios: Any,
    rewards: Any,
    values: Any,
    terminated: Any,
    truncated: Any,
    bootstrap: Any,
    gamma: float,
    rho_limit: float = 1.0,
    c_limit: float = 1.0,
) -> VTrace:
    """V-trace (https://arxiv.org/abs/1802.01561), equation 1, for `ratios` = pi(a) / mu(a)."""
    rho, c = jnp.minimum(ratios, rho_limit), jnp.minimum(ratios, c_limit)
    following = next_values(values, terminated, truncated, bootstrap)
    differences = rho * (rewards + gamma * following - values[:-1])
    goes_on = 1.0 - (terminated | truncated).astype(jnp.float32)

    def backward(later: Any, row: Any) -> tuple[Any, Any]:
        difference, continues, trace = row
        correction = difference + gamma * continues * trace * later
        return correction, correction

    _, corrections = jax.lax.scan(backward, jnp.zeros_like(differences[0]), (differences, goes_on, c), reverse=True)
    targets = values[:-1] + corrections
    target_after = jnp.concatenate([targets[1:], values[-1:]], axis=0)
    target_after = jnp.where(terminated, 0.0, jnp.where(truncated, bootstrap, target_after))
    return VTrace(targets, rho * (rewards + gamma * target_after - values[:-1]))


def mean_of_valid(values: Any, valid: Any) -> Any:
    """The mean over the rows that are steps; the rest are resets of vector environments."""
    weights = valid.astype(values.dtype)
    return (values * weights).sum() / jnp.maximum(weights.sum(), 1.0)
