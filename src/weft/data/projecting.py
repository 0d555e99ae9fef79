"""Which nodes of a plan an expression becomes, by how far it looks. Pure: a plan and expressions in, a plan out.

PROJ-1 The expressions of Filter and Project look at one row: all that looks further is computed below them, by an
       AllRows, under names that nobody else has.
PROJ-2 A Project gives as many rows as it gets.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import polars as pl

from weft.data.expressions import Expr, col, output
from weft.data.plan import AllRows, Drop, Filter, Node, Project, Reshape
from weft.data.reach import Reach, reach

_numbers = itertools.count()


def _unnamed() -> str:
    return f"__weft_{next(_numbers)}"


def selected(below: Node, expressions: Sequence[Expr]) -> Node:
    """Exactly these columns."""
    reaches = [reach(expr) for expr in expressions]
    if reaches == [Reach.RESHAPING]:
        return Reshape((below,), expressions[0])
    if Reach.ROW not in reaches or Reach.RESHAPING in reaches:  # how many rows there are depends on all of them
        return AllRows((below,), tuple(expressions))
    far = [expr for expr, found in zip(expressions, reaches, strict=True) if found is Reach.ALL_ROWS]
    if far and any(expr.meta.has_multiple_outputs() for expr in expressions):  # they would see the names from below
        return AllRows((below,), tuple(expressions))
    names = {id(expr): _unnamed() for expr in far}
    if far:
        below = AllRows((below,), tuple(expr.alias(names[id(expr)]) for expr in far), keep=True)
    return Project(
        (below,), tuple(col(names[id(expr)]).alias(output(expr)) if id(expr) in names else expr for expr in expressions)
    )


def extended(below: Node, expression: Expr) -> Node:
    """With the column that the expression makes, besides or in place of those there are."""
    kind = Project if reach(expression) in (Reach.ROW, Reach.CONSTANT) else AllRows
    return kind((below,), (expression,), keep=True)


def filtered(below: Node, predicate: Expr) -> Node:
    """The rows for which it holds."""
    if reach(predicate) in (Reach.ROW, Reach.CONSTANT):
        return Filter((below,), predicate)
    name = _unnamed()
    if predicate.meta.has_multiple_outputs():
        predicate = pl.all_horizontal(predicate)
    held = Filter((AllRows((below,), (predicate.alias(name),), keep=True),), col(name))
    return Drop((held,), (name,))
