"""How far an expression looks: at one row, or at all of them. Pure.

What looks at one row may run on each block by itself, sink below a sort, and be left out where only rows are counted.
Nothing else may. Polars says of one operation whether it can run in batches (`meta.is_row_separable`), but not of what
is inside of it: `x > x.mean()` counts as separable there. So each node of the tree is asked. A node of which nothing
is known looks at all rows: that may be slow, and is never wrong.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from enum import Enum
from typing import Any

import polars as pl

from weft.data.expressions import Expr


class Reach(Enum):
    ROW = "row"
    """A value for each row, made of that row alone."""
    CONSTANT = "constant"
    """One value, made of no column."""
    RESHAPING = "reshaping"
    """Made of each row alone, but not one value of each: `explode`, `drop_nulls`, `filter`."""
    ALL_ROWS = "all rows"
    """Aggregates, windows, and what depends on the order of the rows."""


def reach(given: Expr) -> Reach:
    nodes = list(_nodes(given))
    if not all(_is_separable(node) for node in nodes):
        return Reach.ALL_ROWS
    if any(_reshapes(node) for node in nodes):
        return Reach.RESHAPING
    return Reach.ROW if any(_is_column(node) for node in nodes) else Reach.CONSTANT


def _nodes(given: Expr) -> Iterator[Expr]:
    """The expression and what is inside of it, but for what is done within the lists of one row."""
    yield given
    inside = given.meta.pop()
    for number, child in enumerate(inside):
        within_lists = number == 0 and len(inside) == 2 and _is_about_lists(given)
        is_a_set = number < len(inside) - 1 and _takes_sets(given) and not child.meta.root_names()
        if not within_lists and not is_a_set:
            yield from _nodes(child)


def _is_separable(node: Expr) -> bool:
    if _takes_sets(node) and any(child.meta.root_names() for child in node.meta.pop()[:-1]):
        return False  # a set that is a column is made of all rows
    if not node.meta.has_multiple_outputs():
        with contextlib.suppress(pl.exceptions.PolarsError):  # where its type depends on columns, Polars does not say
            return bool(node.meta.is_row_separable())
    return _says(node, "ROW_SEPARABLE")


def _reshapes(node: Expr) -> bool:
    if not node.meta.has_multiple_outputs():
        with contextlib.suppress(pl.exceptions.PolarsError):
            return not (node.meta.is_length_preserving() or node.meta.is_scalar())
    return not _says(node, "LENGTH_PRESERVING")


def _is_column(node: Expr) -> bool:
    return not node.meta.pop() and (bool(node.meta.root_names()) or node.meta.has_multiple_outputs())


_ROW_BY_ROW = ("Alias", "RenameAlias", "BinaryExpr", "Cast", "Ternary", "Selector", "StructEval", "Field", "KeepName")


def _says(node: Expr, flag: str) -> bool:
    """What can be read from the node's own form of it, without the types of columns."""
    kind, body = _form(node)
    if kind in _ROW_BY_ROW:
        return True
    if kind == "Eval":
        return _is_about_lists(node)
    if kind == "AnonymousFunction":
        return flag in body["options"]["flags"]
    if kind == "Function":  # the same of columns that are known
        plain = {"Function": {**body, "input": [{"Column": "a"} for _ in body["input"]]}}
        with contextlib.suppress(pl.exceptions.PolarsError):
            asked = Expr.deserialize(io.StringIO(json.dumps(plain)), format="json").meta
            if asked.has_multiple_outputs():
                return isinstance(body["function"], dict) and "StructExpr" in body["function"]
            return asked.is_row_separable() if flag == "ROW_SEPARABLE" else asked.is_length_preserving()
    return False


def _is_about_lists(node: Expr) -> bool:
    """`list.eval` and its like: what is evaluated sees the values of one row."""
    if ".eval(" not in str(node) and ".agg(" not in str(node):
        return False
    kind, body = _form(node)
    variant = "" if kind != "Eval" else body["variant"]
    return (variant if isinstance(variant, str) else next(iter(variant))) in ("List", "ListAgg", "Array", "ArrayAgg")


def _takes_sets(node: Expr) -> bool:
    """`is_in` and `replace`, whose further arguments are the same for all rows even where they are long."""
    if ".is_in(" not in str(node) and ".replace" not in str(node):
        return False
    kind, body = _form(node)
    if kind != "Function":
        return False
    function = body["function"]
    names = function if isinstance(function, dict) else {function: None}
    boolean = names.get("Boolean")
    return "Replace" in names or "ReplaceStrict" in names or (isinstance(boolean, dict) and "IsIn" in boolean)


def _form(node: Expr) -> tuple[str, Any]:
    """Its kind, and what it has, by Polars' JSON of it."""
    try:
        form = json.loads(node.meta.serialize(format="json"))
    except pl.exceptions.PolarsError:  # a function that cannot be pickled, which would not reach a worker either
        return "", None
    return next(iter(form.items())) if isinstance(form, dict) else (str(form), None)
