"""Expressions over columns: Polars' own, so that everything it can compute is there.

>>> from weft import data
>>> ds = data.from_items([{"price": 2, "name": "apple"}, {"price": 5, "name": "apricot"}, {"price": 7, "name": "plum"}])
>>> ds.filter(data.col("price") > 3).count()
2
>>> ds.filter("price > 3 AND name LIKE 'a%'").count()
1
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import polars as pl
from polars import Expr, col, lit, when

__all__ = ["Expr", "col", "expression", "lit", "named", "roots", "when"]


def expression(given: Any) -> Expr:
    """An expression from itself or from SQL."""
    if isinstance(given, str):
        try:
            return pl.sql_expr(given)
        except pl.exceptions.PolarsError as error:
            raise ValueError(f"{given!r} is no SQL expression: {error}") from None
    if isinstance(given, Expr):
        return given
    raise TypeError(f"expected an expression such as col('x') > 3, or one in SQL, but got {given!r}")


def named(given: Iterable[Any]) -> list[Expr]:
    """Columns to select, from names and expressions."""
    return [col(item) if isinstance(item, str) else expression(item) for item in given]


def roots(given: Expr) -> frozenset[str] | None:
    """The columns that it reads; None where that depends on which there are, as for `pl.all()`."""
    return None if given.meta.has_multiple_outputs() else frozenset(given.meta.root_names())


def conjuncts(given: Expr) -> list[Expr]:
    """The conditions that all have to hold: of `a & b`, both."""
    inside = given.meta.pop()
    if len(inside) != 2 or not (inside[1] & inside[0]).meta.eq(given):
        return [given]
    return [part for side in reversed(inside) for part in conjuncts(side)]


def all_roots(given: Iterable[Expr]) -> frozenset[str] | None:
    """The columns that any of them reads; None for all."""
    found = [roots(expr) for expr in given]
    return None if None in found else frozenset().union(*(names for names in found if names is not None))


def output(given: Expr) -> str:
    return str(given.meta.output_name())


def outputs(given: Iterable[Expr]) -> list[str] | None:
    """The names of what they make; None where that depends on the columns that there are."""
    found = list(given)
    return None if any(expr.meta.has_multiple_outputs() for expr in found) else [output(expr) for expr in found]


def is_plain(given: Expr) -> bool:
    """Whether it is a column under its own name."""
    return bool(given.meta.is_column()) and given.meta.output_name() == given.meta.root_names()[0]
