"""Modin's frame over blocks in Weft's object memory.

A frame that is dropped frees its blocks at once. Modin's own are kept until Python's garbage collector runs, because
labels and types that nobody has looked at yet are computed from the frame that holds them. Here no cache holds its own
frame: labels are computed from the `Blocks`, types from a twin that has all of the frame but its types.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from modin.core.dataframe.pandas.dataframe.dataframe import PandasDataframe
from modin.core.dataframe.pandas.metadata import DtypesDescriptor, ModinDtypes, ModinIndex

from weft.pandas.modin.calls import labelled
from weft.pandas.modin.partitions import WeftPartitions
from weft.pandas.modin.registration import NAME, register

# A process that is sent a frame loads this module first, and needs the backend to read it.
register()


class Blocks:
    """The blocks that a frame has now, for those who must not hold the frame."""

    __slots__ = ("grid",)

    def __init__(self, grid: Any) -> None:
        self.grid = grid

    def row_lengths(self) -> list[int]:
        return [block.length() for block in self.grid[:, 0]] if self.grid.size else []

    def _compute_axis_labels_and_lengths(self, axis: int) -> tuple[Any, list[int]]:
        """Under the name by which Modin's caches call a frame."""
        labels, of_blocks = WeftPartitions.get_indices(axis, self.grid)
        return labels, list(map(len, of_blocks))


class _TypesApart:
    """Types of columns in a place of their own: all else of a frame is in its __dict__, which a twin shares."""

    __slots__ = ("_dtypes",)


class WeftFrame(_TypesApart, PandasDataframe):
    _partition_mgr_cls = WeftPartitions
    blocks: Blocks
    _dtypes: Any
    _columns_cache: Any
    _deferred_index: bool
    _deferred_column: bool

    @property
    def engine(self) -> str:
        return NAME

    @property
    def _partitions(self) -> Any:
        return self.blocks.grid

    @_partitions.setter
    def _partitions(self, grid: Any) -> None:
        if "blocks" in self.__dict__:
            self.blocks.grid = grid
        else:
            self.blocks = Blocks(grid)

    def set_index_cache(self, index: Any) -> None:
        self._index_cache = self._labels(index, axis=0)

    def set_columns_cache(self, columns: Any) -> None:
        self._columns_cache = self._labels(columns, axis=1)

    def _labels(self, labels: Any, axis: int) -> ModinIndex:
        """Those given, or the blocks' own when they are asked for."""
        given = labels if labels is None or isinstance(labels, ModinIndex) else ModinIndex(labels)
        return (ModinIndex(axis=axis) if given is None else given).maybe_specify_new_frame_ref(self.blocks, axis)

    def set_dtypes_cache(self, dtypes: Any) -> None:
        if dtypes is None and self.has_materialized_columns:
            try:
                dtypes = ModinDtypes(DtypesDescriptor(cols_with_unknown_dtypes=self.columns.tolist()))
            except NotImplementedError:  # several columns of one name
                dtypes = None
        if dtypes is not None and not isinstance(dtypes, ModinDtypes):
            dtypes = ModinDtypes(dtypes)
        self._dtypes = None if dtypes is None else dtypes.maybe_specify_new_frame_ref(self._twin())

    def _twin(self) -> WeftFrame:
        """The same frame, now and later, but for its types."""
        twin = type(self).__new__(type(self))
        twin.__dict__ = self.__dict__
        twin._dtypes = None
        return twin

    def support_materialization_in_worker_process(self) -> bool:
        """A worker may get the blocks of a frame that it was sent: it gives its CPU back while it waits."""
        return True

    def _propagate_index_objs(self, axis: int | None = None) -> None:
        """Queue on each block the labels that the frame has for it. Modin's own way copies the block for it; here
        blocks are read-only, so labels are all that is new."""
        self._filter_empties(compute_metadata=False)
        if self._partitions.size == 0:  # a file with names of columns alone
            return
        is_needed = {0: axis in (None, 0), 1: axis in (None, 1)}
        rows = self._labels_of_blocks(0) if is_needed[0] else [None] * len(self._partitions)
        columns = self._labels_of_blocks(1) if is_needed[1] else [None] * self._partitions.shape[1]
        lengths = self.row_lengths if is_needed[0] or self._row_lengths_cache is not None else [None] * len(rows)
        widths = self.column_widths if is_needed[1] or self._column_widths_cache is not None else [None] * len(columns)
        self._partitions = np.array(
            [
                [
                    block.add_to_apply_calls(labelled, rows[i], columns[j], length=lengths[i], width=widths[j])
                    for j, block in enumerate(row)
                ]
                for i, row in enumerate(self._partitions)
            ]
        )
        self._deferred_index = self._deferred_index and not is_needed[0]
        self._deferred_column = self._deferred_column and not is_needed[1]

    def finalize(self) -> None:
        """Run what is queued. Labels are not written into the blocks for it, as Modin does: they are the frame's."""
        self._partition_mgr_cls.finalize(self._partitions)

    def _labels_of_blocks(self, axis: int) -> list[Any]:
        labels, lengths = (self.index, self.row_lengths) if axis == 0 else (self.columns, self.column_widths)
        ends = np.cumsum([0, *lengths])
        return [labels[start:end] for start, end in itertools.pairwise(ends)]
