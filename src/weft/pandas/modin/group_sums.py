"""Sums, means, counts and extremes of groups, where the columns are plain numbers: partial results of each block, put
together in one task.

Modin's own reduction does the same for any function and any column, through frames with columns of several levels; on
numbers that costs more than the grouping does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas

from weft.pandas.modin.dense_groups import dense_groups

PARTIALS = {"sum": ("sum",), "mean": ("sum", "count"), "count": ("count",), "min": ("min",), "max": ("max",)}
_TOGETHER = {"sum": "sum", "count": "sum", "min": "min", "max": "max"}
_NUMBERS = frozenset(map(np.dtype, ("int64", "float64")))
_LARGEST_SUM = 1 << 53
"""Of the whole numbers of a block; it is far from the largest of all, because blocks are many."""
_KEYS = frozenset(map(np.dtype, ("int64", "int32", "O", "M8[ns]")))


def is_possible(functions: Any, dtypes: pandas.Series[Any], labels: list[Any], grouping: Mapping[str, Any]) -> bool:
    """Whether each column is of numbers and its function one of these, by their names."""
    return bool(
        isinstance(functions, dict)
        and functions
        and all(isinstance(name, str) and name in PARTIALS for name in functions.values())
        and all(column in dtypes.index and dtypes[column] in _NUMBERS for column in functions)
        and all(dtypes[label] in _KEYS for label in labels)
        and grouping.get("as_index", True)
        and grouping.get("sort", True)
    )


def of_block(block: pandas.DataFrame, labels: list[Any], functions: dict[Any, str], dropna: bool) -> pandas.DataFrame:
    """In a worker: a row for each group of the block, a column for each partial result."""
    block = _that_can_be_summed(block, [column for column, name in functions.items() if name == "mean"], labels)
    dense = dense_groups(block[labels[0]]) if len(labels) == 1 else None
    if dense is not None:
        partials = {
            _name(kind, place): dense.partial(kind, block[column].to_numpy())
            for column, kind, place in _wanted(functions)
        }
        return pandas.DataFrame(partials, index=dense.keys)
    groups = block.groupby(labels if len(labels) > 1 else labels[0], sort=False, dropna=dropna)
    made = {_name(kind, place): getattr(groups[column], kind)() for column, kind, place in _wanted(functions)}
    return pandas.DataFrame(made)


def _that_can_be_summed(block: pandas.DataFrame, averaged: list[Any], labels: list[Any]) -> pandas.DataFrame:
    """With floats for the whole numbers whose sum, on the way to their mean, might not fit."""
    large = [column for column in averaged if column not in labels and not _fits(block[column].to_numpy())]
    return block.astype(dict.fromkeys(large, np.float64)) if large else block


def _fits(numbers: np.ndarray[Any, Any]) -> bool:
    """Whether a sum of so many numbers of this size does, in all blocks of a frame together."""
    if numbers.dtype.kind != "i" or len(numbers) == 0:
        return True
    return max(abs(int(numbers.min())), abs(int(numbers.max()))) * len(numbers) < _LARGEST_SUM


def together(partials: pandas.DataFrame, functions: dict[Any, str], dropna: bool) -> pandas.DataFrame:
    """In a worker: of the partial results of all blocks, one below the other, what was asked for."""
    levels = list(range(partials.index.nlevels))
    groups = partials.groupby(level=levels if len(levels) > 1 else 0, sort=True, dropna=dropna)
    whole: dict[Any, Any] = {}
    for column, kind, place in _wanted(functions):
        part = getattr(groups[_name(kind, place)], _TOGETHER[kind])()
        whole[column] = whole[column] / part if column in whole else part
    return pandas.DataFrame(whole)


def _wanted(functions: dict[Any, str]) -> list[tuple[Any, str, int]]:
    """A column, the kind of a partial result, and the place of the column; of a mean the sum comes before the count."""
    places = enumerate(functions.items())
    return [(column, kind, place) for place, (column, function) in places for kind in PARTIALS[function]]


def _name(kind: str, place: int) -> str:
    return f"{kind} {place}"
