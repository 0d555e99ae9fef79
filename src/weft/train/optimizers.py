"""How a parameter moves along a gradient, in NumPy, in place. Anything with these two methods can be given instead.

>>> import numpy as np
>>> parameter, sgd = np.ones(2), SGD(0.5)
>>> sgd.update(parameter, np.array([1.0, 2.0]), sgd.begin(parameter))
>>> parameter
array([0.5, 0. ])
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["SGD", "Adam", "Optimizer"]

Array = npt.NDArray[Any]


class Optimizer(Protocol):
    """Its settings; what it remembers of each parameter is kept apart, so that parameters can move between shards."""

    def begin(self, parameter: Array) -> Any:
        """What it wants to remember of a parameter: changed in place by `update`, pickled in checkpoints."""

    def update(self, parameter: Array, gradient: Array, memory: Any) -> None:
        """Change the parameter in place; the gradient may be overwritten."""


@dataclass(frozen=True)
class SGD:
    """Gradient descent; with momentum as PyTorch defines it.

    >>> weights = np.array([1.0, 2.0])
    >>> SGD(learning_rate=0.5).update(weights, np.array([1.0, 1.0]), None)
    >>> weights
    array([0.5, 1.5])
    """

    learning_rate: float
    momentum: float = 0.0

    def begin(self, parameter: Array) -> Any:
        """The velocity, where there is momentum."""
        return np.zeros_like(parameter) if self.momentum else None

    def update(self, parameter: Array, gradient: Array, memory: Any) -> None:
        """Moves the parameter in place."""
        if memory is not None:
            memory *= self.momentum
            memory += gradient
            np.copyto(gradient, memory)
        gradient *= self.learning_rate
        parameter -= gradient


@dataclass(frozen=True)
class Adam:
    """Adam (https://arxiv.org/abs/1412.6980)."""

    learning_rate: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def begin(self, parameter: Array) -> Any:
        """What is remembered for one parameter."""
        return {"step": 0, "mean": np.zeros_like(parameter), "square": np.zeros_like(parameter)}

    def update(self, parameter: Array, gradient: Array, memory: Any) -> None:
        """Moves the parameter in place."""
        memory["step"] += 1
        mean, square = memory["mean"], memory["square"]
        mean += (1 - self.beta1) * (gradient - mean)
        square += (1 - self.beta2) * (gradient * gradient - square)
        rate = self.learning_rate / (1 - self.beta1 ** memory["step"])
        parameter -= rate * mean / (np.sqrt(square / (1 - self.beta2 ** memory["step"])) + self.epsilon)
