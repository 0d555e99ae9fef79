"""Means of columns of numbers: the sum and the count of each in a block, then the quotient of all of them.

pandas makes a mask of the whole block for either, and a copy without missing values for the sum; here a piece of a
column is worked on while it is in a core's own cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas

from weft.pandas.modin.late_blocks import PIECE


def is_possible(dtypes: pandas.Series[Any], keywords: dict[str, Any]) -> bool:
    """Of plain numbers, with missing ones left out, which is pandas' default."""
    is_default = keywords.get("skipna", True) is True and keywords.keys() <= {"skipna", "numeric_only"}
    return is_default and all(isinstance(dtype, np.dtype) and _is_summed(dtype) for dtype in dtypes)


def _is_summed(dtype: np.dtype[Any]) -> bool:
    return dtype == np.float64 or dtype.kind in "iu"


def of_block(block: pandas.DataFrame) -> pandas.DataFrame:
    """A row of sums, and a row of counts."""
    totals = np.empty((2, block.shape[1]))
    for part in block._mgr.blocks:
        for place, column in zip(part.mgr_locs, part.values, strict=True):
            totals[:, place] = _sum_and_count(column)
    return pandas.DataFrame(totals, columns=block.columns)


def together(stacked: pandas.DataFrame) -> pandas.Series[Any]:
    """The means, of the rows of all blocks one below another."""
    return stacked.iloc[0::2].sum(skipna=False) / stacked.iloc[1::2].sum()


def _sum_and_count(column: np.ndarray[Any, Any]) -> tuple[float, int]:
    if column.dtype.kind != "f":
        return float(column.sum(dtype=np.float64)), len(column)
    total, count = 0.0, 0
    for start in range(0, len(column), PIECE):
        piece = column[start : start + PIECE]
        present = piece[piece == piece]  # all but NaN
        total += float(present.sum(dtype=np.float64))
        count += len(present)
    return total, count
