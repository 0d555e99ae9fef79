"""Networks as pure functions of their parameters, written once for NumPy (rollouts) and JAX (learning).

Parameters are a flat dictionary from names such as "policy.0.weight" to arrays: what a checkpoint holds, and what the
`WeightLayout` packs into the one float32 vector that is shared with the workers.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Params = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class MLP:
    """Dense layers with an activation between them. `final_gain` scales the last layer's initial weights."""

    name: str
    sizes: tuple[int, ...]
    activation: str = "tanh"
    final_gain: float = 1.0
    activate_final: bool = False

    def init(self, rng: np.random.Generator) -> dict[str, NDArray[np.float32]]:
        params: dict[str, NDArray[np.float32]] = {}
        last = len(self.sizes) - 2
        for index in range(last + 1):
            gain = self.final_gain if index == last else math.sqrt(2)
            params[f"{self.name}.{index}.weight"] = orthogonal(rng, self.sizes[index], self.sizes[index + 1], gain)
            params[f"{self.name}.{index}.bias"] = np.zeros(self.sizes[index + 1], np.float32)
        return params

    def apply(self, xp: Any, params: Params, inputs: Any) -> Any:
        hidden = inputs
        last = len(self.sizes) - 2
        for index in range(last + 1):
            hidden = hidden @ params[f"{self.name}.{index}.weight"] + params[f"{self.name}.{index}.bias"]
            if index < last or self.activate_final:
                hidden = activate(xp, self.activation, hidden)
        return hidden


@dataclasses.dataclass(frozen=True)
class CNN:
    """Convolutions over uint8 images [..., height, width, channels], then one dense layer (Mnih et al. 2015).

    `layers` are (filters, size, stride).
    """

    name: str
    image: tuple[int, int, int]
    layers: tuple[tuple[int, int, int], ...] = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
    output: int = 512

    def __post_init__(self) -> None:
        if min(self._final_image()[:2]) < 1:
            raise ValueError(f"an image of {self.image} is too small for convolutions of {self.layers}")

    def _final_image(self) -> tuple[int, int, int]:
        height, width, channels = self.image
        for filters, size, stride in self.layers:
            height, width, channels = (height - size) // stride + 1, (width - size) // stride + 1, filters
        return height, width, channels

    def init(self, rng: np.random.Generator) -> dict[str, NDArray[np.float32]]:
        params: dict[str, NDArray[np.float32]] = {}
        channels = self.image[2]
        for index, (filters, size, _) in enumerate(self.layers):
            weight = orthogonal(rng, size * size * channels, filters, math.sqrt(2))
            params[f"{self.name}.{index}.weight"] = weight.reshape(size, size, channels, filters)
            params[f"{self.name}.{index}.bias"] = np.zeros(filters, np.float32)
            channels = filters
        flat = math.prod(self._final_image())
        params[f"{self.name}.dense.weight"] = orthogonal(rng, flat, self.output, math.sqrt(2))
        params[f"{self.name}.dense.bias"] = np.zeros(self.output, np.float32)
        return params

    def apply(self, xp: Any, params: Params, images: Any) -> Any:
        batch = images.shape[:-3]
        hidden = images.reshape(-1, *self.image).astype(np.float32) / np.float32(255)
        for index, (_, _, stride) in enumerate(self.layers):
            hidden = _convolve(xp, hidden, params[f"{self.name}.{index}.weight"], stride)
            hidden = xp.maximum(hidden + params[f"{self.name}.{index}.bias"], 0)
        flat = hidden.reshape(hidden.shape[0], -1)
        dense = flat @ params[f"{self.name}.dense.weight"] + params[f"{self.name}.dense.bias"]
        return xp.maximum(dense, 0).reshape(*batch, self.output)


class WeightLayout:
    """Where each parameter lies in one float32 vector, so that a worker reads them in place from the arena."""

    def __init__(self, params: Params) -> None:
        self.shapes = {name: tuple(np.shape(value)) for name, value in params.items()}
        self.size = sum(math.prod(shape) for shape in self.shapes.values())

    def pack(self, params: Params, xp: Any = np) -> Any:
        """The vector, of NumPy or JAX."""
        return xp.concatenate([xp.asarray(params[name], np.float32).ravel() for name in self.shapes])

    def unpack(self, vector: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        """Views of the vector, no copies."""
        params: dict[str, NDArray[np.float32]] = {}
        offset = 0
        for name, shape in self.shapes.items():
            size = math.prod(shape)
            params[name] = vector[offset : offset + size].reshape(shape)
            offset += size
        return params


def normalize(params: Params, features: Any) -> Any:
    """What a network sees: the features in units of their spread, where the parameters have a filter."""
    return (features - params["filter.mean"]) * params["filter.scale"] if "filter.mean" in params else features


def activate(xp: Any, activation: str, values: Any) -> Any:
    if activation == "tanh":
        return xp.tanh(values)
    if activation == "relu":
        return xp.maximum(values, 0)
    if activation == "elu":
        return xp.where(values > 0, values, xp.expm1(xp.minimum(values, 0)))
    return values / (1 + xp.exp(-values))


def orthogonal(rng: np.random.Generator, rows: int, columns: int, gain: float) -> NDArray[np.float32]:
    """Orthogonal columns or rows, times the gain (Saxe et al. 2014)."""
    square = rng.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(square)
    q *= np.sign(np.diag(r))
    return np.ascontiguousarray((q if rows >= columns else q.T) * gain, np.float32)


def _convolve(xp: Any, images: Any, kernel: Any, stride: int) -> Any:
    if hasattr(xp, "convolve") and not hasattr(xp, "ndarray"):  # an `xp` of our own, which writes a graph
        return xp.convolve(images, kernel, stride)
    if xp is not np:
        import jax

        if jax.default_backend() != "cpu":
            dimensions = ("NHWC", "HWIO", "NHWC")
            return jax.lax.conv_general_dilated(images, kernel, (stride, stride), "VALID", dimension_numbers=dimensions)
    return convolve_by_products(xp, images, kernel, stride)


def convolve_by_products(xp: Any, images: Any, kernel: Any, stride: int) -> Any:
    """A convolution as matrix products: cells of `stride` × `stride` pixels, one product for each cell of a kernel.

    In a loop, as a compiled update is, XLA's own convolutions and their gradients take nine times as long on a CPU.
    """
    size, _, channels, filters = kernel.shape
    count, height, width, _ = images.shape
    rows, columns = (height - size) // stride + 1, (width - size) // stride + 1
    across = -(-size // stride)  # cells of a kernel in each direction
    if missing := across * stride - size:
        kernel = xp.pad(kernel, ((0, missing), (0, missing), (0, 0), (0, 0)))
        images = xp.pad(images, ((0, 0), (0, missing), (0, missing), (0, 0)))
    down, right = rows + across - 1, columns + across - 1
    pixels = images[:, : down * stride, : right * stride].reshape(count, down, stride, right, stride, channels)
    cells = pixels.swapaxes(2, 3).reshape(count, down, right, stride * stride * channels)
    parts = kernel.reshape(across, stride, across, stride, channels, filters).swapaxes(1, 2)
    parts = parts.reshape(across, across, stride * stride * channels, filters)
    return sum(cells[:, i : i + rows, j : j + columns] @ parts[i, j] for i in range(across) for j in range(across))
