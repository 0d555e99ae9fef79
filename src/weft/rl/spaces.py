"""Observations as arrays that networks take, and what networks choose as actions that environments take.

An `ObservationEncoder` turns any Gymnasium observation into one float32 vector (an image stays uint8): numbers are
flattened, choices become one-hot, parts of a Dict or Tuple follow each other. A Dict with an `action_mask` beside a
discrete action space yields a *masked* encoder: the mask is the last `mask_size` columns of the vector, so that one
array carries everything through fragments and replay.

An `ActionDecoder` does the reverse for actions. Continuous actions with finite bounds are chosen in [-1, 1].
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.rl.space_descriptions import Dict, kind_of

ACTION_MASK = "action_mask"


class SpaceMismatch(ValueError):
    """A value is not what its space says; the message names the field and both sides."""


class ObservationEncoder:
    """Encodes observations of one space; `shape` and `dtype` are those of an encoded observation."""

    def __init__(self, space: Any, decoder: ActionDecoder | None = None) -> None:
        self.space = space
        self._choices = decoder.choices if decoder is not None and _has_mask(space) else ()
        self.mask_size = sum(self._choices)
        self._features = _without_mask(space) if self.mask_size else space
        self.is_image = kind_of(space) == "Box" and len(space.shape) == 3 and space.dtype == np.uint8
        self._box_shape, self._box_dtype = space.shape, space.dtype
        self._plain_box = kind_of(space) == "Box" and len(space.shape) == 1
        if self._plain_box:
            self._least, self._most = _forgiving_bounds(space)
        self.dtype: np.dtype[Any] = np.dtype(np.uint8 if self.is_image else np.float32)
        self.shape: tuple[int, ...]
        if self.is_image and space.shape is not None:
            self.shape = space.shape
        else:
            self.shape = (_encoded_size(self._features) + self.mask_size,)
        self.feature_size = int(np.prod(self.shape)) - self.mask_size
        self.is_identity = (self._plain_box or self.is_image) and self._box_dtype == self.dtype

    def encode(self, observation: Any, is_last: bool = False) -> NDArray[Any]:
        """One observation as an array of `shape`; raises SpaceMismatch where it is not of the space.

        Nothing needs to be allowed by the mask of an episode's last observation.
        """
        if self._plain_box or self.is_image:
            if getattr(observation, "shape", None) == self._box_shape and observation.dtype == self._box_dtype:
                return observation
            return _checked_box(self.space, observation, "observation")
        parts: list[NDArray[Any]] = []
        mask = None
        if self.mask_size:
            if not isinstance(observation, dict) or ACTION_MASK not in observation:
                raise SpaceMismatch(
                    f"observation must be a dict with {ACTION_MASK!r}, but got {_described(observation)}"
                )
            mask = observation[ACTION_MASK]
            observation = {name: part for name, part in observation.items() if name != ACTION_MASK}
        _append_parts(self._features, observation, "observation", parts)
        if mask is not None:
            parts.append(_checked_mask(mask, self._choices, is_last))
        return np.concatenate(parts)

    def structured(self, encoded: Any) -> Any:
        """A batch [N, *shape] of NumPy or JAX in the structure of the space: what custom networks see."""
        if self.is_image:
            return encoded
        found, end = _structured_parts(self._features, encoded, 0)
        if self.mask_size:
            found[ACTION_MASK] = encoded[:, end:]
        return found

    def out_of_bounds(self, encoded: NDArray[Any]) -> NDArray[np.bool_]:
        """Which of a batch [..., *shape] lie far outside the space's bounds; a tenth of the range is forgiven."""
        if not self._plain_box or ((encoded >= self._least) & (encoded <= self._most)).all():
            return np.zeros(encoded.shape[: encoded.ndim - len(self.shape)], bool)
        return np.asarray(((encoded < self._least) | (encoded > self._most)).any(axis=-1))


class ActionDecoder:
    """From an array [N, *shape] that a policy chose to N actions of the space.

    `kind` is "discrete", "multi_discrete" or "box"; `sizes` are the numbers of choices, for a box the dimensions.
    """

    def __init__(self, space: Any) -> None:
        self.space = space
        self.kind: str
        self.sizes: tuple[int, ...]
        self.shape: tuple[int, ...]
        self.offsets: Any = 0  # the least choice, where choices do not begin at 0
        if kind_of(space) == "Discrete":
            self.kind, self.sizes, self.shape = "discrete", (int(space.n),), ()
            self.offsets = int(space.start)
        elif kind_of(space) in ("MultiDiscrete", "MultiBinary"):
            choices = space.nvec if kind_of(space) == "MultiDiscrete" else np.full(space.shape, 2)
            self.kind, self.sizes, self.shape = (
                "multi_discrete",
                tuple(int(n) for n in choices.ravel()),
                (choices.size,),
            )
            self.offsets = np.asarray(getattr(space, "start", np.zeros_like(choices)))
        elif kind_of(space) == "Box":
            self.kind, self.sizes = "box", (int(np.prod(space.shape)),)
            self.shape = self.sizes
            low, high = space.low.ravel().astype(np.float32), space.high.ravel().astype(np.float32)
            self.bounded = bool(np.isfinite(low).all() and np.isfinite(high).all())
            self.low, self.high = low, high
            self.centre: NDArray[Any] = (high + low) / 2 if self.bounded else np.zeros_like(low)
            self.half: NDArray[Any] = (high - low) / 2 if self.bounded else np.ones_like(low)
        else:
            raise SpaceMismatch(
                f"actions of {space} are not supported; use Discrete, MultiDiscrete, MultiBinary or Box"
            )
        self.dtype: np.dtype[Any] = np.dtype(np.float32 if self.kind == "box" else np.int32)

    @property
    def choices(self) -> tuple[int, ...]:
        """How many options each choice has; none for a box, which a mask has nothing to say of."""
        return () if self.kind == "box" else self.sizes

    def decode(self, chosen: NDArray[Any]) -> Any:
        """Actions for environments: a list of ints, or an array [N, ...]."""
        if self.kind == "discrete":
            return (chosen + self.offsets).tolist() if self.offsets else chosen.tolist()
        if self.kind == "multi_discrete":
            shape = self.space.shape or ()
            shaped = (chosen.reshape(len(chosen), *shape) + self.offsets).astype(self.space.dtype)
            return shaped
        scaled = np.clip(chosen, -1.0, 1.0) * self.half + self.centre if self.bounded else chosen
        scaled = np.clip(scaled, self.low, self.high)
        return scaled.reshape(len(chosen), *(self.space.shape or ())).astype(self.space.dtype, copy=False)

    def encode(self, actions: Any) -> NDArray[Any]:
        """The reverse of `decode`: actions of the space as a policy would have chosen them."""
        for action in actions:
            if np.shape(action) != self.space.shape:
                raise SpaceMismatch(f"an action must have shape {self.space.shape}, but got {_described(action)}")
        given = np.asarray(actions)
        if self.kind == "discrete":
            return (given - self.offsets).astype(self.dtype)
        if self.kind == "multi_discrete":
            return (given - self.offsets).reshape(len(given), -1).astype(self.dtype)
        flat = given.reshape(len(given), -1)
        return ((flat - self.centre) / self.half).astype(self.dtype)


def _forgiving_bounds(space: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """The bounds of a box, a tenth of its range further out."""
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)  # whole numbers and flags, too
    with np.errstate(over="ignore", invalid="ignore"):
        slack = np.where(np.isfinite(low) & np.isfinite(high), 0.1 * (high - low), 0.0) + 1e-3
        return (low - slack).astype(np.float32), (high + slack).astype(np.float32)


def _has_mask(space: Any) -> bool:
    return kind_of(space) == "Dict" and ACTION_MASK in space.spaces


def _without_mask(space: Any) -> Any:
    return Dict({name: part for name, part in space.spaces.items() if name != ACTION_MASK})


def _encoded_size(space: Any) -> int:
    if kind_of(space) in ("Box", "MultiBinary"):
        return int(np.prod(space.shape))
    if kind_of(space) == "Discrete":
        return int(space.n)
    if kind_of(space) == "MultiDiscrete":
        return int(space.nvec.sum())
    if kind_of(space) == "Dict":
        return sum(_encoded_size(part) for part in space.spaces.values())
    if kind_of(space) == "Tuple":
        return sum(_encoded_size(part) for part in space.spaces)
    raise SpaceMismatch(
        f"observations of {space} are not supported; use Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple"
    )


def _structured_parts(space: Any, encoded: Any, start: int) -> tuple[Any, int]:
    """The part of a batch that begins at a column, and the column after it."""
    if kind_of(space) == "Dict":
        named: dict[str, Any] = {}
        for name, part in space.spaces.items():
            named[name], start = _structured_parts(part, encoded, start)
        return named, start
    if kind_of(space) == "Tuple":
        parts = []
        for part in space.spaces:
            found, start = _structured_parts(part, encoded, start)
            parts.append(found)
        return tuple(parts), start
    end = start + _encoded_size(space)
    columns = encoded[:, start:end]
    shape = space.shape if kind_of(space) in ("Box", "MultiBinary") else None
    return (columns.reshape(-1, *shape) if shape is not None else columns), end


def _append_parts(space: Any, value: Any, label: str, parts: list[NDArray[Any]]) -> None:
    kind = kind_of(space)
    if kind == "Dict":
        if not isinstance(value, dict) or set(value) != set(space.spaces):
            raise SpaceMismatch(f"{label} must be a dict of {sorted(space.spaces)}, but got {_described(value)}")
        for name, part in space.spaces.items():
            _append_parts(part, value[name], f"{label}[{name!r}]", parts)
    elif kind == "Tuple":
        if not isinstance(value, tuple | list) or len(value) != len(space.spaces):
            raise SpaceMismatch(f"{label} must be a tuple of {len(space.spaces)}, but got {_described(value)}")
        for index, part in enumerate(space.spaces):
            _append_parts(part, value[index], f"{label}[{index}]", parts)
    elif kind == "Discrete":
        parts.append(_one_hot([value], [int(space.start)], [int(space.n)], label))
    elif kind == "MultiDiscrete":
        array = np.asarray(value)
        if array.shape != space.shape:
            raise SpaceMismatch(f"{label} must have shape {space.shape}, but got {_described(value)}")
        starts = np.broadcast_to(np.asarray(getattr(space, "start", 0)), space.shape)
        parts.append(_one_hot(array.ravel(), starts.ravel(), space.nvec.ravel(), label))
    else:
        array = _checked_box(space, value, label)
        scale = 255.0 if space.dtype == np.uint8 and kind == "Box" else 1.0
        parts.append((array.astype(np.float32) / scale).ravel())


def _checked_box(space: Any, value: Any, label: str) -> NDArray[Any]:
    if getattr(value, "shape", None) != space.shape:
        array = np.asarray(value)
        if array.shape != space.shape:
            raise SpaceMismatch(f"{label} must have shape {space.shape} by the space, but got {_described(value)}")
        value = array
    if value.dtype != space.dtype and not np.can_cast(value.dtype, space.dtype or np.float32, "same_kind"):
        raise SpaceMismatch(f"{label} must have dtype {space.dtype} by the space, but got {value.dtype}")
    return value


def _checked_mask(mask: Any, choices: tuple[int, ...], is_last: bool) -> NDArray[np.float32]:
    array = np.asarray(mask, np.float32).ravel()
    if array.size != sum(choices):
        raise SpaceMismatch(f"observation['{ACTION_MASK}'] must have {sum(choices)} entries, but got {array.size}")
    start = 0
    for index, count in enumerate(choices):
        if not is_last and not array[start : start + count].any():
            of = f" of choice {index}" if len(choices) > 1 else ""
            raise SpaceMismatch(f"observation['{ACTION_MASK}'] forbids every action{of}")
        start += count
    return array


def _one_hot(values: Any, starts: Any, sizes: Any, label: str) -> NDArray[np.float32]:
    encoded = np.zeros(int(np.sum(sizes)), np.float32)
    offset = 0
    for value, start, size in zip(values, starts, sizes, strict=True):
        index = int(value) - int(start)
        if index != value - start or not 0 <= index < size:
            raise SpaceMismatch(f"{label} must be a whole number from {start} to {start + size - 1}, but got {value}")
        encoded[offset + index] = 1.0
        offset += int(size)
    return encoded


def _described(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"an array of shape {shape}"
    return f"{type(value).__name__} {value!r}"[:80]
