"""Little data: a plan that is one query of Polars in this process, with Polars' own threads, in place of tasks.

A task costs a millisecond and Polars in it has one thread, so what one process does in a moment is not given out. It is
chosen by bytes, before anything runs: what sources hold of the wanted columns, and what joins can make of it at most.
Only what Polars does by itself is run here: a user's function may not stop or end the program that consumes the data.

SML-1 The answer is that of the tasks: a node means here what it means there (`tests/data/random_plans.py` runs both).
SML-2 Where anything fails, the tasks run, and what they tell names the file, the row and the column.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl
import pyarrow as pa

from weft.data import plan
from weft.data.block import block_of, coalesced, compact
from weft.data.collecting import KERNEL_FAILURES
from weft.data.errors import DataError
from weft.data.expressions import Expr
from weft.data.running import Report
from weft.data.schemas import fitted
from weft.data.sizing import Sizing
from weft.exceptions import WeftError

VARIABLE = "WEFT_DATA_IN_PROCESS_BYTES"
MOST_BYTES = 2**30
"""Of the columns that are read and what joins make of them, unless the variable says otherwise; 0 is: always tasks."""
NAME = "in this process"


def most_bytes(sizing: Sizing) -> int:
    """What may run here: where the cluster has more CPUs than Polars has threads in this process, a block."""
    said = os.environ.get(VARIABLE)
    try:
        most = MOST_BYTES if said is None else int(said)
    except ValueError:
        raise ValueError(f"{VARIABLE} must be a number of bytes, but is {said!r}") from None
    return min(most, sizing.budget_bytes if pl.thread_pool_size() >= sizing.cpus else sizing.block_bytes)


@dataclass(frozen=True)
class Held:
    """What a part of a plan holds at most."""

    size_bytes: int
    rows: int
    row_bytes: int


@dataclass
class Small:
    """Of one execution."""

    sizing: Sizing
    most: int = field(init=False)

    def __post_init__(self) -> None:
        self.most = most_bytes(self.sizing)

    def query(self, node: plan.Node) -> pl.LazyFrame | None:
        """The plan as one query; None where it is large, or where something in it is for tasks."""
        try:
            held = self._held(node)
            most = self.most if _meets(node) else min(self.most, self.sizing.block_bytes)
            return None if held is None or held.size_bytes > most else _frame(node)
        except (DataError, WeftError, OSError, *KERNEL_FAILURES):
            return None

    def run(self, node: plan.Node, for_tasks: bool) -> tuple[list[pa.Table], Report] | None:
        """The blocks; None where it fails or is for tasks, as are blocks that tasks could read themselves."""
        begun = time.perf_counter()
        query = self.query(node) if self.most and (_meets(node) or not for_tasks) else None
        if query is None:
            return None
        try:
            whole = block_of(query.collect(engine="streaming"))
        except (DataError, OSError, *KERNEL_FAILURES):
            return None
        made = list(coalesced(iter([whole]), self.sizing.block_sizes))
        if for_tasks and len(made) == 1:
            rows = -(-whole.num_rows // (2 * self.sizing.cpus)) or 1
            made = [compact(whole.slice(at, rows)) for at in range(0, whole.num_rows, rows)] or made
        counts, sizes = tuple(block.num_rows for block in made), tuple(block.nbytes for block in made)
        schema, took = whole.schema.remove_metadata(), time.perf_counter() - begun
        return made, Report(sum(counts), sum(sizes), schema, took, (), _skipped(node), counts, sizes, {})

    # ---- how much it is, at most --------------------------------------------------------------------

    def _held(self, node: plan.Node) -> Held | None:
        """What is read and made at most; None where that is too much, not known, or no work for this process."""
        if isinstance(node, plan.Read):
            return self._read(node)
        if not isinstance(node, _HERE) or any(".python_udf(" in str(expr) for expr in _expressions(node)):
            return None
        below = [self._held(child) for child in node.inputs]
        known = [held for held in below if held is not None]
        if len(known) < len(below):
            return None
        total = sum(held.size_bytes for held in known)
        if total > self.most:
            return None
        if isinstance(node, plan.Join):
            return self._joined(node, *known)
        rows, widest = sum(held.rows for held in known), max(held.row_bytes for held in known)
        most = {plan.Limit: getattr(node, "rows", 0), plan.Count: 1}.get(type(node), rows)
        return Held(total, min(rows, most), widest)

    def _read(self, node: plan.Read) -> Held | None:
        source, kinds = node.source, node.schema
        size, names = source.size_bytes(), source.columns()
        if size is None or kinds is None or not names:
            return None
        size, rows = size * len(kinds) // len(names), source.row_count()
        least = 8 * len(kinds)  # what is packed in a file has its width here
        if rows is None:  # of a file of text: a row has at least a byte
            return Held(size, size, least)
        return Held(max(size, rows * least), rows, max(least, size // max(1, rows)))

    def _joined(self, node: plan.Join, left: Held, right: Held) -> Held | None:
        """No more than each row of one side with the most rows that one key has on the other."""
        total, width = left.size_bytes + right.size_bytes, left.row_bytes + right.row_bytes
        if node.how in ("semi", "anti"):
            return Held(total, left.rows, left.row_bytes)
        pairs = left.rows * right.rows
        sides = [(left.rows, node.inputs[0], node.left_on, right), (right.rows, node.inputs[1], node.right_on, left)]
        for _, child, keys, other in sorted(sides, key=lambda side: side[0]):
            if pairs * width > self.most:
                most = _most_of_a_key(child, keys)
                pairs = pairs if most is None else min(pairs, other.rows * most)
        rows = pairs + (left.rows if node.how in ("left", "full") else 0)
        rows += right.rows if node.how in ("right", "full") else 0
        return Held(total + rows * width, rows, width) if rows * width <= self.most else None


_HERE = (
    plan.Filter
    | plan.Project
    | plan.AllRows
    | plan.Drop
    | plan.Rename
    | plan.GroupBy
    | plan.Join
    | plan.Sort
    | plan.Limit
    | plan.Union
    | plan.Count
)


def _meets(node: plan.Node) -> bool:
    """Whether rows of different blocks meet in it, or only some are wanted: otherwise blocks can be had one by one."""
    if isinstance(node, plan.AllRows | plan.GroupBy | plan.Join | plan.Sort | plan.Limit | plan.Count):
        return True
    return any(map(_meets, node.inputs))


def _skipped(node: plan.Node) -> dict[str, int]:
    """What the sources leave out before anything is read."""
    found = Counter(getattr(node.source, "skipped", dict)() if isinstance(node, plan.Read) else {})
    for child in node.inputs:
        found.update(_skipped(child))
    return dict(found)


def _expressions(node: plan.Node) -> Sequence[Expr]:
    if isinstance(node, plan.Filter):
        return (node.predicate,)
    return node.expressions if isinstance(node, plan.Project | plan.AllRows) else ()


def _most_of_a_key(node: plan.Node, keys: tuple[str, ...]) -> int | None:
    """How many rows of it have the same key at most; None where that is not known without much work."""
    if isinstance(node, plan.Read):
        return node.source.most_of_a_key(keys)
    if isinstance(node, plan.GroupBy):
        return 1 if node.keys and set(node.keys) <= set(keys) else None
    if isinstance(node, plan.Rename):
        back = {new: old for old, new in node.mapping}
        return _most_of_a_key(node.inputs[0], tuple(back.get(key, key) for key in keys))
    passes = isinstance(node, plan.Filter | plan.Drop | plan.Sort | plan.Limit)
    if passes or (isinstance(node, plan.Project) and node.passes(frozenset(keys))):
        return _most_of_a_key(node.inputs[0], keys)
    return None


# ---- the query --------------------------------------------------------------------------------------


def _frame(node: plan.Node) -> pl.LazyFrame | None:
    if isinstance(node, plan.Read):
        return node.source.whole(node.wanted)
    frames = [frame for frame in map(_frame, node.inputs) if frame is not None]
    if len(frames) < len(node.inputs):
        return None
    if isinstance(node, plan.Sort):
        return node.in_order(frames[0])
    if isinstance(node, plan.Limit):
        return frames[0].head(node.rows)
    if isinstance(node, plan.Count):
        return frames[0].select(pl.len().alias("rows"))
    if isinstance(node, plan.Union):
        return None if node.schema is None else pl.concat([fitted(frame, node.schema) for frame in frames])
    return node.of(*frames)
