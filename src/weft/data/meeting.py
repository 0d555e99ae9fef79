"""Runs exchanges: the rows of one side or of two are divided into parts, and the pieces of a part brought together.

How large the parts will be is only estimated before. A part that comes out too large for the arena is divided once
more, by itself, when its turn has come; so an exchange may take several passes, and needs entries in the arena for the
pieces of one pass at a time. Runs where data is consumed.

MEET-1 The parts come in the order of the division, and the pieces of a part in the order of the inputs.
MEET-2 The pieces of a side become one schema where they are gathered, whatever types their blocks had.
MEET-3 The refs of a part are given up here when it is handed out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl
import pyarrow as pa

from weft.data.exchange import Gather
from weft.data.execute import Branch, Bundle, Execution
from weft.data.schemas import common_schema, schema_of
from weft.data.stage import Stage

LITTLE_PROGRESS = 0.9
"""A part that has so much of what it was divided from is of equal keys: it is not divided any more."""


@dataclass(frozen=True)
class Side:
    """What comes to an exchange: rows, and the step that divides them, into as many parts on all sides."""

    branches: list[Branch]
    divide: Any


@dataclass(frozen=True)
class Piece:
    """The rows of one block that belong to one part."""

    ref: Any
    size_bytes: int


def meet(execution: Execution, sides: Sequence[Side], divided_bytes: float = float("inf")) -> Iterator[tuple[Any, ...]]:
    """Of each part a tuple of refs for each side. Without pieces that have no rows, but one, for its columns.

    `divided_bytes` is the size of the part that this divides once more.
    """
    divided, fits = [], []
    for side in sides:
        parts, fit = _divided(execution, side)
        divided.append(parts)
        fits.append(fit)
    for number in range(sides[0].divide.parts):
        met = [parts.popleft() if parts else [] for parts in divided]
        size_bytes = sum(piece.size_bytes for pieces in met for piece in pieces)
        finer = None
        if size_bytes > execution.sizing.most_part_bytes and size_bytes < LITTLE_PROGRESS * divided_bytes:
            finer = _finer(execution, sides, met, number, size_bytes)
        refs: tuple[Any, ...] = ()
        if finer is None:
            refs = tuple(
                (*([fit] if fit is not None and pieces else ()), *(piece.ref for piece in pieces))
                for fit, pieces in zip(fits, met, strict=True)
            )
        del met
        if finer is not None:
            yield from meet(execution, finer, size_bytes)
        elif any(refs):
            yield refs


def _divided(execution: Execution, side: Side) -> tuple[deque[list[Piece]], pa.Schema | None]:
    """The pieces of each part, nothing where there is no input; and what they have to become."""
    branches = [branch.divided(side.divide) for branch in side.branches]
    bundles = sorted(execution.run(branches, ordered=False), key=lambda bundle: bundle.index)
    fit = common([bundle.report.schema for bundle in bundles], str(side.divide))
    return deque(_pieces(bundles, number) for number in range(side.divide.parts)) if bundles else deque(), fit


def common(schemas: Sequence[pa.Schema], what: str) -> pa.Schema | None:
    """What blocks of these schemas have to become; None where they are all of one. As Arrow has it: a task is given it
    before it has seen to it that Polars takes one thread."""
    found: list[pl.Schema] = []
    for schema in _different([schema for schema in schemas if len(schema)]):
        kinds = schema_of(schema)  # two layouts of a text are one type to Polars
        if kinds not in found:
            found.append(kinds)
    return pl.DataFrame(schema=common_schema(found, what)).to_arrow().schema if len(found) > 1 else None


def _different(schemas: Sequence[pa.Schema]) -> list[pa.Schema]:
    different: list[pa.Schema] = []
    for schema in schemas:
        if not any(schema.equals(other) for other in different):
            different.append(schema)
    return different


def _pieces(bundles: Sequence[Bundle], number: int) -> list[Piece]:
    filled = [bundle for bundle in bundles if bundle.report.part_rows[number]]
    if not filled:  # if possible one that has kept its columns
        filled = ([bundle for bundle in bundles if len(bundle.report.schema)] or list(bundles))[:1]
    return [Piece(bundle.refs[number], bundle.report.part_bytes[number]) for bundle in filled]


def _finer(
    execution: Execution, sides: Sequence[Side], met: Sequence[list[Piece]], number: int, size_bytes: int
) -> list[Side] | None:
    """The sides of the exchange within one part; None where it cannot be divided."""
    parts = max(2, execution.sizing.parts(size_bytes))
    divides = [side.divide.finer(number, parts) for side in sides]
    if any(divide is None for divide in divides):
        return None
    block_bytes = execution.sizing.block_bytes
    return [
        Side([Branch(partial(_together, deque(pieces), block_bytes), [Stage(Gather("pieces"))])], divide)
        for pieces, divide in zip(met, divides, strict=True)
    ]


def _together(pieces: deque[Piece], block_bytes: int) -> Iterator[tuple[Any, ...]]:
    """Refs of neighbours that are as much as a block together."""
    while pieces:
        taken = [pieces.popleft()]
        size_bytes = taken[0].size_bytes
        while pieces and size_bytes + pieces[0].size_bytes <= block_bytes:
            taken.append(pieces.popleft())
            size_bytes += taken[-1].size_bytes
        refs = tuple(piece.ref for piece in taken)
        del taken
        yield refs
