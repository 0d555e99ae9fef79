"""Merges by the frames' own columns, where a block has whole rows: each block of the left side with all of the right.

Modin does the same for any merge; its functions are pickled anew for each call, the right side is put together by a
task of its own, and labels and types are computed the long way, which costs more than a worker's share at half a
million rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas
from modin.config import NPartitions

_USUAL = {
    "left_on": None,
    "right_on": None,
    "left_index": False,
    "right_index": False,
    "sort": False,
    "indicator": False,
    "validate": None,
}


@dataclass(frozen=True)
class Joined:
    """In a worker: a block and all blocks of the right side. pandas shares the columns of the block with the result
    instead of copying them twice: the result is stored at once."""

    how: str
    on: list[Any]

    def __call__(self, block: pandas.DataFrame, *right: pandas.DataFrame) -> pandas.DataFrame:
        with pandas.option_context("mode.copy_on_write", True):
            whole = right[0] if len(right) == 1 else pandas.concat(right)
            return block.merge(whole, how=self.how, on=self.on)


def keys(left: Any, right: Any, keywords: Mapping[str, Any]) -> list[Any] | None:
    """Of the compilers of two frames: the names of the columns that they are merged by; None where this is not such a
    merge."""
    if keywords.get("how") not in ("inner", "left") or any(
        keywords.get(name, usual) is not usual for name, usual in _USUAL.items()
    ):
        return None
    frames = (left._modin_frame, right._modin_frame)
    if any(frame._partitions.shape[1] != 1 or not frame.has_materialized_columns for frame in frames):
        return None
    if len(frames[0]._partitions) < 0.3 * NPartitions.get():  # Modin cuts it anew
        return None
    on = keywords.get("on")
    names = on if isinstance(on, list) else [on]
    if not names or any(type(name) is not str for name in names):
        return None
    columns = [set(frame.columns) for frame in frames]
    is_unique = all(len(found) == len(frame.columns) for found, frame in zip(columns, frames, strict=True))
    return names if is_unique and columns[0] & columns[1] == set(names) and not _are_levels(frames, names) else None


def _are_levels(frames: Any, names: list[Any]) -> bool:
    """Whether one of the names may also be that of labels of rows."""
    return any(not frame.has_materialized_index or not set(names).isdisjoint(frame.index.names) for frame in frames)


def merged(left: Any, right: Any, how: str, on: list[Any]) -> Any:
    """Modin's frame of the merge, whose rows have the numbers that blocks gave them."""
    for frame in (left, right):
        if frame._deferred_column:
            frame._propagate_index_objs(axis=1)
    grid = left._partition_mgr_cls
    beside = [block.for_task() for block in right._partitions[:, 0]]
    made = grid.map_partitions(left._partitions, Joined(how, on), func_args=beside)
    columns = left.columns.append(right.columns.drop(on))
    return type(left)(made, columns=columns, column_widths=[len(columns)], dtypes=_types(left, right, how, on))


def _types(left: Any, right: Any, how: str, on: list[Any]) -> Any:
    """Where they are known: rows that the right side has not make holes, which change types."""
    if how != "inner" or not left.has_materialized_dtypes or not right.has_materialized_dtypes:
        return None
    if any(left.dtypes[name] != right.dtypes[name] for name in on):
        return None
    return pandas.concat([left.dtypes, right.dtypes.drop(on)])
