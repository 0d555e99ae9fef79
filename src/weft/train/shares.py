"""What each of several workers gets: a part of a batch, a part of a dataset. Pure, but for datasets that split
themselves.

>>> [share_of(10, rank, 3) for rank in range(3)]
[slice(0, 4, None), slice(4, 7, None), slice(7, 10, None)]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["Part", "share_of", "split_dataset"]


def share_of(total: int, rank: int, size: int) -> slice:
    """The part of `total` things that is this rank's: all parts together are all of them, and differ by one at most."""
    if total < 0 or not 0 <= rank < size:
        raise ValueError(f"total must not be negative and rank below {size}, but got {total=} and {rank=}")
    each, more = divmod(total, size)
    start = rank * each + min(rank, more)
    return slice(start, start + each + (rank < more))


def split_dataset(dataset: Any, size: int) -> list[Any]:
    """One part for each worker: by the dataset's own streaming_split, by slices, or by its own split(size)."""
    if hasattr(dataset, "streaming_split"):
        parts: list[Any] = dataset.streaming_split(size, equal=True)
        return parts
    if hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__"):
        shares = [share_of(len(dataset), rank, size) for rank in range(size)]
        if isinstance(dataset, Sequence | np.ndarray) or type(dataset).__module__.partition(".")[0] in ("torch", "jax"):
            return [_sliced(dataset, share) for share in shares]
        return [Part(dataset, share.start, share.stop) for share in shares]
    if hasattr(dataset, "split"):
        parts = list(dataset.split(size))
        if len(parts) != size:
            raise ValueError(f"{type(dataset).__name__}.split({size}) must give {size} parts, but gave {len(parts)}")
        return parts
    raise TypeError(
        f"a dataset must have streaming_split(n), or a length and items, or split(n), but got {type(dataset).__name__}"
    )


def _sliced(dataset: Any, share: slice) -> Any:
    try:
        return dataset[share]
    except TypeError:  # a map-style dataset of PyTorch, which has items but no slices
        return Part(dataset, share.start, share.stop)


class Part(Sequence[Any]):
    """A range of something that has items."""

    def __init__(self, whole: Any, start: int, stop: int) -> None:
        self._whole, self._start, self._stop = whole, start, stop

    def __len__(self) -> int:
        return self._stop - self._start

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"index must be within {len(self)} items, but got {index}")
        return self._whole[self._start + index % len(self)]
