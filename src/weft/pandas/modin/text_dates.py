"""Dates of a CSV file that is read in parts: all parts take the format that pandas takes for the whole column.

pandas guesses it by the first date that it sees, and leaves a column as text where another date does not have it. A
part begins elsewhere, and 13/01/2026 says something else than 01/02/2026.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas
from pandas.api.types import is_datetime64_any_dtype
from pandas.tseries.api import guess_datetime_format

FIRST_ROWS = 1_000


def guessed_formats(keywords: dict[str, Any], read_first: Callable[..., pandas.DataFrame]) -> dict[Any, str] | None:
    """For `date_format`, by the names of columns; None where none is to be guessed. `read_first` reads rows as text."""
    wanted = _columns_of_dates(keywords)
    if not wanted or keywords.get("date_format") is not None:
        return None
    first = read_first(
        nrows=FIRST_ROWS,
        parse_dates=False,
        index_col=None,
        dtype=str,
        converters=None,
        skipfooter=0,
        engine="python" if keywords.get("engine") == "python" else "c",
    )
    formats = {}
    for column in wanted:
        texts = (first.iloc[:, column] if isinstance(column, int) else first[column]).dropna()
        guess = guess_datetime_format(texts.iloc[0], dayfirst=bool(keywords.get("dayfirst"))) if len(texts) else None
        if guess is not None:
            formats[texts.name] = guess
    return formats or None


def _columns_of_dates(keywords: dict[str, Any]) -> list[Any]:
    """Names, or places where all columns are read; nothing where several columns make one date."""
    asked, index = keywords.get("parse_dates"), keywords.get("index_col")
    columns = [index] if asked is True else asked
    if not isinstance(columns, list | tuple) or not all(isinstance(column, str | int) for column in columns):
        return []
    is_by_place = any(isinstance(column, int) for column in columns)
    if any(isinstance(column, bool) for column in columns) or (is_by_place and keywords.get("usecols") is not None):
        return []
    return list(columns)


def have_one_type(types_of_parts: Sequence[pandas.Series[Any]]) -> bool:
    """Whether each column that is of dates in one part is so in all."""
    for types in zip(*types_of_parts, strict=True):
        if any(map(is_datetime64_any_dtype, types)) and len(set(types)) > 1:
            return False
    return True


def mark_holes(frame: pandas.DataFrame) -> pandas.Series[Any]:
    """The types of a part's columns, with a note of those that have no value at all: they could be of any type."""
    types = frame.dtypes
    floats = [place for place, dtype in enumerate(types) if dtype == "float64"]
    types.attrs["holes"] = [place for place in floats if not frame.iloc[:, place].notna().any()]
    return types


def mixed_column(types_of_parts: Sequence[pandas.Series[Any]]) -> Any:
    """The name of a column whose parts, put together, are not what pandas reads from the whole: such as numbers in one
    part and text in another, which is all text. None where there is none."""
    if not types_of_parts:
        return None
    for place, name in enumerate(types_of_parts[0].index):
        filled = [types for types in types_of_parts if len(types) and place not in types.attrs.get("holes", ())]
        kinds = {types.iloc[place] for types in filled}
        are_categories = all(isinstance(kind, pandas.CategoricalDtype) for kind in kinds)
        if len(kinds) > 1 and not are_categories and not kinds <= {np.dtype("int64"), np.dtype("float64")}:
            return name
    return None
