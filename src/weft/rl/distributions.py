"""Distributions over actions, written once for NumPy (rollouts) and JAX (learning).

Each class wraps the numbers that a network put out, `inputs` of shape [..., input_size]. Sampling is split in two:
`noise(rng, shape)` draws standard noise with NumPy, and `sample(noise)` turns it into actions without any randomness.
So a worker draws the noise of a whole fragment at once, and a gradient can flow through `sample`.

`xp` is `numpy` or `jax.numpy`.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

FORBIDDEN = -1e9  # the logit of a masked action: no probability, yet no infinity in a gradient
HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


class Categorical:
    """One of n choices; inputs are logits."""

    def __init__(self, xp: Any, inputs: Any, sizes: tuple[int, ...]) -> None:
        self.xp = xp
        self.logits = inputs

    @staticmethod
    def input_size(sizes: tuple[int, ...]) -> int:
        return sizes[0]

    @staticmethod
    def noise(rng: np.random.Generator, shape: tuple[int, ...], sizes: tuple[int, ...]) -> NDArray[np.float32]:
        uniform = rng.random((*shape, sizes[0]), np.float32)
        return -np.log(-np.log(uniform + 1e-20) + 1e-20)  # Gumbel: the argmax of logits + noise is a fair draw

    def sample(self, noise: Any) -> Any:
        return (self.logits + noise).argmax(axis=-1)

    def mode(self) -> Any:
        return self.logits.argmax(axis=-1)

    def log_probs(self) -> Any:
        return log_softmax(self.xp, self.logits)

    def log_prob(self, actions: Any) -> Any:
        return pick(self.xp, self.log_probs(), actions)

    def entropy(self) -> Any:
        log_probs = self.log_probs()
        return -(self.xp.exp(log_probs) * log_probs).sum(axis=-1)

    def kl(self, other: Categorical) -> Any:
        mine, theirs = self.log_probs(), other.log_probs()
        return (self.xp.exp(mine) * (mine - theirs)).sum(axis=-1)


class MultiCategorical:
    """Several independent choices; inputs are their logits one after the other."""

    def __init__(self, xp: Any, inputs: Any, sizes: tuple[int, ...]) -> None:
        self.xp = xp
        starts = [sum(sizes[:index]) for index in range(len(sizes))]
        self.parts = [
            Categorical(xp, inputs[..., start : start + size], (size,))
            for start, size in zip(starts, sizes, strict=True)
        ]
        self.starts, self.sizes = starts, sizes

    @staticmethod
    def input_size(sizes: tuple[int, ...]) -> int:
        return sum(sizes)

    @staticmethod
    def noise(rng: np.random.Generator, shape: tuple[int, ...], sizes: tuple[int, ...]) -> NDArray[np.float32]:
        return Categorical.noise(rng, shape, (sum(sizes),))

    def sample(self, noise: Any) -> Any:
        return self.xp.stack(
            [
                part.sample(noise[..., start : start + size])
                for part, start, size in zip(self.parts, self.starts, self.sizes, strict=True)
            ],
            axis=-1,
        )

    def mode(self) -> Any:
        return self.xp.stack([part.mode() for part in self.parts], axis=-1)

    def log_prob(self, actions: Any) -> Any:
        return sum(part.log_prob(actions[..., index]) for index, part in enumerate(self.parts))

    def entropy(self) -> Any:
        return sum(part.entropy() for part in self.parts)

    def kl(self, other: MultiCategorical) -> Any:
        return sum(mine.kl(theirs) for mine, theirs in zip(self.parts, other.parts, strict=True))


class DiagonalGaussian:
    """Independent normal distributions; inputs are means, then logarithms of standard deviations."""

    LOG_STD_RANGE: ClassVar[tuple[float, float]] = (-20.0, 2.0)

    def __init__(self, xp: Any, inputs: Any, sizes: tuple[int, ...]) -> None:
        self.xp = xp
        self.mean = inputs[..., : sizes[0]]
        self.log_std = xp.clip(inputs[..., sizes[0] :], *self.LOG_STD_RANGE)

    @staticmethod
    def input_size(sizes: tuple[int, ...]) -> int:
        return 2 * sizes[0]

    @staticmethod
    def noise(rng: np.random.Generator, shape: tuple[int, ...], sizes: tuple[int, ...]) -> NDArray[np.float32]:
        return rng.standard_normal((*shape, sizes[0]), np.float32)

    def sample(self, noise: Any) -> Any:
        return self.mean + self.xp.exp(self.log_std) * noise

    def mode(self) -> Any:
        return self.mean

    def log_prob(self, actions: Any) -> Any:
        scaled = (actions - self.mean) * self.xp.exp(-self.log_std)
        return -(0.5 * scaled**2 + self.log_std + HALF_LOG_TWO_PI).sum(axis=-1)

    def entropy(self) -> Any:
        return (self.log_std + 0.5 + HALF_LOG_TWO_PI).sum(axis=-1)

    def kl(self, other: DiagonalGaussian) -> Any:
        ratio = self.xp.exp(2 * (self.log_std - other.log_std))
        distance = ((self.mean - other.mean) * self.xp.exp(-other.log_std)) ** 2
        return (other.log_std - self.log_std + 0.5 * (ratio + distance - 1)).sum(axis=-1)


class SquashedGaussian(DiagonalGaussian):
    """A normal distribution pressed into (-1, 1) by tanh (SAC, appendix C)."""

    LOG_STD_RANGE: ClassVar[tuple[float, float]] = (-5.0, 2.0)

    def sample(self, noise: Any) -> Any:
        return self.xp.tanh(super().sample(noise))

    def mode(self) -> Any:
        return self.xp.tanh(self.mean)

    def log_prob(self, actions: Any) -> Any:
        inner = self.xp.arctanh(self.xp.clip(actions, -1 + 1e-6, 1 - 1e-6))
        return super().log_prob(inner) - self._log_slope(inner)

    def sample_with_log_prob(self, noise: Any) -> tuple[Any, Any]:
        """Both from the unsquashed value, which arctanh could only give back inexactly."""
        inner = self.mean + self.xp.exp(self.log_std) * noise
        log_prob = -(0.5 * noise**2 + self.log_std + HALF_LOG_TWO_PI).sum(axis=-1)
        return self.xp.tanh(inner), log_prob - self._log_slope(inner)

    def _log_slope(self, inner: Any) -> Any:
        softplus = self.xp.logaddexp(-2.0 * inner, 0.0)
        return (2.0 * (math.log(2.0) - inner - softplus)).sum(axis=-1)


Distribution = Categorical | MultiCategorical | DiagonalGaussian
DISTRIBUTIONS: dict[str, type[Categorical] | type[MultiCategorical] | type[DiagonalGaussian]] = {
    "discrete": Categorical,
    "multi_discrete": MultiCategorical,
    "box": DiagonalGaussian,
}


def log_softmax(xp: Any, logits: Any) -> Any:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - xp.log(xp.exp(shifted).sum(axis=-1, keepdims=True))


def pick(xp: Any, table: Any, index: Any) -> Any:
    """table[..., index]: of the last axis, the entry that `index` names."""
    return xp.take_along_axis(table, index[..., None].astype(xp.int32), axis=-1)[..., 0]
