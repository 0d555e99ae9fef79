"""Spaces in plain values, as policy files hold them, and what stands for them where Gymnasium is not imported.

The classes here have the names and the attributes of Gymnasium's that encoders and decoders read, and nothing else:
reading a policy shall cost no import of Gymnasium. `kind_of` tells the kind of either.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

KINDS = ("Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple")
_kinds: dict[type[Any], str | None] = {}


class _Described:
    """Equal and shown by what describes it."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Described) and described(self) == described(other)

    def __hash__(self) -> int:
        return hash(repr(described(self)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v}' for k, v in described(self).items() if k != 'kind')})"


class Box(_Described):
    def __init__(self, low: Any, high: Any, shape: tuple[int, ...], dtype: str) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.low: NDArray[Any] = np.broadcast_to(np.asarray(low, self.dtype), shape)
        self.high: NDArray[Any] = np.broadcast_to(np.asarray(high, self.dtype), shape)


class Discrete(_Described):
    def __init__(self, n: int, start: int) -> None:
        self.n, self.start = n, start
        self.shape: tuple[int, ...] = ()
        self.dtype = np.dtype(np.int64)


class MultiDiscrete(_Described):
    def __init__(self, nvec: Any, start: Any, dtype: str) -> None:
        self.dtype = np.dtype(dtype)
        self.nvec, self.start = np.asarray(nvec, self.dtype), np.asarray(start, self.dtype)
        self.shape = self.nvec.shape


class MultiBinary(_Described):
    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape, self.dtype = shape, np.dtype(np.int8)


class Dict(_Described):
    shape = dtype = None

    def __init__(self, spaces: Mapping[str, Any]) -> None:
        self.spaces = dict(spaces)


class Tuple(_Described):
    shape = dtype = None

    def __init__(self, spaces: Any) -> None:
        self.spaces = tuple(spaces)


def kind_of(space: Any) -> str | None:
    """Which of KINDS a space is, of Gymnasium or of this module; None for another."""
    cls = type(space)
    if cls not in _kinds:
        _kinds[cls] = next((base.__name__ for base in cls.__mro__ if base.__name__ in KINDS), None)
    return _kinds[cls]


def described(space: Any) -> dict[str, Any]:
    """A space in values that JSON has; ValueError for one of another kind."""
    kind = kind_of(space)
    if kind == "Box":
        bounds = {"low": _bound(space.low), "high": _bound(space.high)}
        return {"kind": kind, **bounds, "shape": list(space.shape), "dtype": np.dtype(space.dtype).name}
    if kind == "Discrete":
        return {"kind": kind, "n": int(space.n), "start": int(space.start)}
    if kind == "MultiDiscrete":
        start = np.broadcast_to(np.asarray(getattr(space, "start", 0)), np.shape(space.nvec))
        return {"kind": kind, "nvec": space.nvec.tolist(), "start": start.tolist(), "dtype": np.dtype(space.dtype).name}
    if kind == "MultiBinary":
        return {"kind": kind, "shape": list(space.shape)}
    if kind == "Dict":
        return {"kind": kind, "spaces": {name: described(part) for name, part in space.spaces.items()}}
    if kind == "Tuple":
        return {"kind": kind, "spaces": [described(part) for part in space.spaces]}
    raise ValueError(f"{space} cannot be described; use {', '.join(KINDS)}")


def space_of(description: Mapping[str, Any]) -> Any:
    """The space that was described."""
    kind = description["kind"]
    if kind == "Box":
        low, high = _bound_of(description["low"]), _bound_of(description["high"])
        return Box(low, high, tuple(description["shape"]), description["dtype"])
    if kind == "Discrete":
        return Discrete(description["n"], description["start"])
    if kind == "MultiDiscrete":
        return MultiDiscrete(description["nvec"], description["start"], description["dtype"])
    if kind == "MultiBinary":
        return MultiBinary(tuple(description["shape"]))
    if kind == "Dict":
        return Dict({name: space_of(part) for name, part in description["spaces"].items()})
    if kind == "Tuple":
        return Tuple(space_of(part) for part in description["spaces"])
    raise ValueError(f"a space of kind {kind!r} is not known: the file is of a newer version")


def _bound(values: NDArray[Any]) -> Any:
    """One number where all are equal, else nested lists; infinities by name, which JSON has not."""
    if values.size and (values == values.flat[0]).all():
        return _named(values.flat[0].item())
    return _named(values.tolist())


def _named(bound: Any) -> Any:
    if isinstance(bound, list):
        return [_named(part) for part in bound]
    return str(bound) if bound in (math.inf, -math.inf) else bound


def _bound_of(stored: Any) -> Any:
    if isinstance(stored, list):
        return [_bound_of(part) for part in stored]
    return float(stored) if isinstance(stored, str) else stored
