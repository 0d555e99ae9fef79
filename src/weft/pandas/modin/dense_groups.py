"""Partial results of groups by one column of whole numbers that lie close together: the number says the group.

pandas looks each number up in a table first, which costs more than to sum a column. What is done with the groups then
is done by the same compiled loops as in pandas, so that the results are the same to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
from pandas._libs import groupby as loops

ROWS_A_NUMBER = 8
"""At least so many rows for each number between the smallest and the largest: tables with more holes than groups are
not worth it."""

Array = np.ndarray[Any, Any]


class DenseGroups:
    """The groups of a block. Their keys are those numbers between the smallest and the largest that are there."""

    def __init__(self, keys: Array, smallest: int, largest: int, name: Any) -> None:
        self._codes = np.subtract(keys, smallest, dtype=np.intp)  # the difference may not fit the keys' own type
        self._rows = np.bincount(self._codes, minlength=largest - smallest + 1)
        self._is_there = self._rows > 0
        found = np.flatnonzero(self._is_there) + smallest
        self.keys = pandas.Index(found.astype(keys.dtype, copy=False), name=name)

    def partial(self, kind: str, values: Array) -> Array:
        """A "sum", "min", "max" or "count" for each key."""
        made = self._count(values) if kind == "count" else self._reduced(kind, values)
        return made[self._is_there]

    def _count(self, values: Array) -> Array:
        if values.dtype.kind != "f":
            return self._rows
        missing = np.bincount(self._codes[np.isnan(values)], minlength=len(self._rows))
        return self._rows - missing

    def _reduced(self, kind: str, values: Array) -> Array:
        out = np.zeros((len(self._rows), 1), values.dtype)
        counts = np.zeros(len(self._rows), np.int64)
        loop = getattr(loops, f"group_{kind}")
        loop(out, counts, values.reshape(-1, 1), self._codes, mask=None)
        return out[:, 0]


def dense_groups(keys: pandas.Series[Any]) -> DenseGroups | None:
    """None where the numbers lie too far apart."""
    numbers = keys.to_numpy()
    if len(numbers) == 0 or numbers.dtype.kind != "i":
        return None
    smallest, largest = int(numbers.min()), int(numbers.max())
    if (largest - smallest + 1) * ROWS_A_NUMBER > len(numbers):
        return None
    return DenseGroups(numbers, smallest, largest, keys.name)
