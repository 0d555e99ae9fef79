"""Rewrites a logical plan so that less is read and moved: pure, plan in, plan out.

Predicates and projections look at one row each, or they would be in an `AllRows`, past which nothing sinks.

- Filters sink towards the readers, past whatever leaves their columns as they are, and into the sides of joins. What
  stands right above a reader is then pushed into the file format by Polars, within the task that reads.
- Readers, projections and joins are told which columns anybody wants.
- Limits sink past projections.
"""

from __future__ import annotations

from dataclasses import replace

from weft.data.expressions import Expr, conjuncts, roots
from weft.data.plan import (
    AllRows,
    Drop,
    Filter,
    GroupBy,
    Join,
    Limit,
    Node,
    Project,
    Read,
    Rename,
    Repartition,
    Shuffle,
    Sort,
    Union,
    Wanted,
    rebuilt,
)
from weft.data.sources.base import Source


def optimize(node: Node) -> Node:
    return prune(sink_filters(node), None)


def sink_filters(node: Node) -> Node:
    node = rebuilt(node, sink_filters)
    if isinstance(node, Filter):
        return _sunk(node.predicate, node.inputs[0])
    if isinstance(node, Limit) and isinstance(node.inputs[0], Project | Drop | Rename):
        below = node.inputs[0]
        return replace(below, inputs=(sink_filters(replace(node, inputs=below.inputs)),))
    return node


def _sunk(predicate: Expr, below: Node) -> Node:
    """The filter over `below`, as deep as it may go."""
    used = roots(predicate)
    if used is None:  # whatever columns there are, so they have to be the same ones
        if isinstance(below, Sort | Shuffle | Repartition):
            return replace(below, inputs=(_sunk(predicate, below.inputs[0]),))
        return Filter((below,), predicate)
    passes = (
        isinstance(below, Sort | Shuffle | Repartition | Drop)
        or (isinstance(below, Project) and below.passes(used))
        or (isinstance(below, Rename) and not used & frozenset(name for pair in below.mapping for name in pair))
        or (isinstance(below, GroupBy) and used <= frozenset(below.keys) and bool(used))
    )
    if passes:
        return replace(below, inputs=(_sunk(predicate, below.inputs[0]),))
    if isinstance(below, Read):
        return Filter((replace(below, source=_pruned(predicate, below.source)),), predicate)
    if isinstance(below, Union):
        return replace(below, inputs=tuple(_sunk(predicate, child) for child in below.inputs))
    if isinstance(below, Join):
        return _into_join(predicate, used, below)
    return Filter((below,), predicate)


def _pruned(predicate: Expr, source: Source) -> Source:
    """Files are left out by each of the conditions that all have to hold."""
    parts = conjuncts(predicate)
    for part in parts:
        source = source.pruned(part)
    return source


def _into_join(predicate: Expr, used: frozenset[str], join: Join) -> Node:
    left, right = join.inputs
    left_names, right_names = left.columns, right.columns
    if left_names is not None and used <= frozenset(left_names) and join.how in ("inner", "left", "semi", "anti"):
        return replace(join, inputs=(_sunk(predicate, left), right))
    if left_names is None or right_names is None or join.how not in ("inner", "right"):
        return Filter((join,), predicate)
    if used <= frozenset(right_names) - frozenset(left_names):
        return replace(join, inputs=(left, _sunk(predicate, right)))
    return Filter((join,), predicate)


def prune(node: Node, wanted: Wanted) -> Node:
    """Only the wanted columns are made; None: all of them."""
    if isinstance(node, Read):
        return node if wanted is None else replace(node, wanted=wanted)
    if isinstance(node, Project) or (isinstance(node, AllRows) and node.keep):
        node = replace(node, expressions=node.without_unwanted(wanted))
        if node.keep and not node.expressions:
            return prune(node.inputs[0], wanted)
    below = [node.wanted_below(wanted, which) for which in range(len(node.inputs))]
    if isinstance(node, Union):
        node = replace(node, wanted=below[0])
    return replace(node, inputs=tuple(prune(child, each) for child, each in zip(node.inputs, below, strict=True)))
