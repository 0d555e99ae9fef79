"""Modin's frame over blocks in Weft's object memory."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from modin.core.dataframe.pandas.dataframe.dataframe import PandasDataframe

from weft.pandas.calls import labelled
from weft.pandas.partitions import WeftPartitions
from weft.pandas.registration import NAME, register

# A process that is sent a frame loads this module first, and needs the backend to read it.
register()


class WeftFrame(PandasDataframe):
    _partition_mgr_cls = WeftPartitions
    _partitions: Any
    _deferred_index: bool
    _deferred_column: bool

    @property
    def engine(self) -> str:
        return NAME

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
