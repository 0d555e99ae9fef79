"""A block of a frame: the ref of a pandas DataFrame in object memory, and the calls that wait to be run on it.

Queued calls run together, in one task, when their result is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas
from modin.core.dataframe.pandas.partitioning.partition import PandasDataframePartition
from modin.pandas.indexing import compute_sliced_len

import weft
from weft.pandas.modin.calls import (
    Labelled,
    SentFunction,
    block_task,
    labelled,
    lift_step,
    send_function,
    shape_of,
    shape_task,
    storable,
)
from weft.pandas.modin.wrapper import WeftWrapper

_slice_task = weft.remote(compute_sliced_len)


class WeftPartition(PandasDataframePartition):
    """One block. Its length and width are numbers, refs of numbers, or None while nobody asked."""

    execution_wrapper = WeftWrapper

    def __init__(self, data: Any, length: Any = None, width: Any = None, call_queue: list[Any] | None = None) -> None:
        super().__init__()
        self._data = data
        self._length_cache = length
        self._width_cache = width
        self.call_queue = call_queue if call_queue is not None else []

    @classmethod
    def put(cls, obj: Any) -> WeftPartition:
        return cls(weft.put(storable(obj)), *shape_of(obj))

    @classmethod
    def empty(cls) -> WeftPartition:
        return cls.put(pandas.DataFrame())

    @classmethod
    def preprocess_func(cls, func: Any) -> Any:
        return func if isinstance(func, SentFunction | weft.ObjectRef) else send_function(func)

    def apply(self, func: Any, *args: Any, **kwargs: Any) -> WeftPartition:
        """The block that a function makes of this one, after the calls that are queued."""
        return type(self)(*self._submit([*self.call_queue, [func, args, kwargs]]))

    def for_task(self) -> Any:
        """What a task is given for this block: its ref, and its labels beside it where those are all that is queued."""
        if len(self.call_queue) == 1 and self.call_queue[0][0] is labelled:
            rows, columns = self.call_queue[0][1]
            if rows is None or isinstance(rows, pandas.RangeIndex):
                return Labelled(self._data, rows, columns)
        self.drain_call_queue()
        return self._data

    def drain_call_queue(self) -> None:
        if not self.call_queue:
            return
        self._data, length, width = self._submit(self.call_queue)
        self.call_queue = []
        if not isinstance(self._length_cache, int):
            self._length_cache = length
        if not isinstance(self._width_cache, int):
            self._width_cache = width

    def _submit(self, steps: list[Any]) -> Any:
        refs: list[Any] = []
        lifted = [
            lift_step((send_function(step[0]) if _is_bare(step[0]) else step[0], *step[1:]), refs) for step in steps
        ]
        return block_task.remote(lifted, self._data, *refs)

    def wait(self) -> None:
        self.drain_call_queue()
        WeftWrapper.wait(self._data)

    def mask(self, row_labels: Any, col_labels: Any) -> WeftPartition:
        """A block with these rows and columns, made when it is needed."""
        masked: WeftPartition = super().mask(row_labels, col_labels)
        if isinstance(row_labels, slice) and isinstance(self._length_cache, weft.ObjectRef):
            masked._length_cache = _sliced(row_labels, self._length_cache)
        if isinstance(col_labels, slice) and isinstance(self._width_cache, weft.ObjectRef):
            masked._width_cache = _sliced(col_labels, self._width_cache)
        return masked

    def length(self, materialize: bool = True) -> Any:
        self._measure()
        if materialize:
            self._length_cache = WeftWrapper.materialize(self._length_cache)
        return self._length_cache

    def width(self, materialize: bool = True) -> Any:
        self._measure()
        if materialize:
            self._width_cache = WeftWrapper.materialize(self._width_cache)
        return self._width_cache

    def _measure(self) -> None:
        self_knows = self._length_cache is not None and self._width_cache is not None
        if not self_knows:
            self.drain_call_queue()
        if self._length_cache is None or self._width_cache is None:
            length, width = shape_task.remote(self._data)
            self._length_cache = length if self._length_cache is None else self._length_cache
            self._width_cache = width if self._width_cache is None else self._width_cache


def _is_bare(function: Callable[..., Any]) -> bool:
    return not isinstance(function, SentFunction | weft.ObjectRef)


def _sliced(labels: slice, length: Any) -> Any:
    return length if labels == slice(None) else _slice_task.remote(labels, length)
