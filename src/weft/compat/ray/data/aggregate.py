"""`ray.data.aggregate` of Ray 2.60: the aggregates that Weft has, called as Ray calls their columns."""

from __future__ import annotations

from weft.data import Aggregate

__all__ = ["Count", "Max", "Mean", "Min", "Std", "Sum"]


def _of(kind: str, on: str | None, alias_name: str | None) -> Aggregate:
    if on is None:
        raise ValueError(f"{kind.capitalize()}(on=...) wants the name of a column")
    return Aggregate(kind, on, alias_name or f"{kind}({on})")


def Count(on: str | None = None, ignore_nulls: bool = False, alias_name: str | None = None) -> Aggregate:
    """Of the rows, or of those with a value in the column."""
    if on is not None and ignore_nulls:
        return _of("count", on, alias_name)
    return Aggregate("len", None, alias_name or ("count()" if on is None else f"count({on})"))


def Sum(on: str | None = None, ignore_nulls: bool = True, alias_name: str | None = None) -> Aggregate:
    """Without nulls."""
    return _of("sum", on, alias_name)


def Min(on: str | None = None, ignore_nulls: bool = True, alias_name: str | None = None) -> Aggregate:
    """Without nulls."""
    return _of("min", on, alias_name)


def Max(on: str | None = None, ignore_nulls: bool = True, alias_name: str | None = None) -> Aggregate:
    """Without nulls."""
    return _of("max", on, alias_name)


def Mean(on: str | None = None, ignore_nulls: bool = True, alias_name: str | None = None) -> Aggregate:
    """Without nulls."""
    return _of("mean", on, alias_name)


def Std(on: str | None = None, ddof: int = 1, ignore_nulls: bool = True, alias_name: str | None = None) -> Aggregate:
    """Of a sample: `ddof` is 1."""
    if ddof != 1:
        raise ValueError(f"Std(ddof=...) must be 1, but got {ddof}")
    return _of("std", on, alias_name)
