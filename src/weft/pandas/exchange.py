"""Frames to and from weft.data, Arrow and torch. NumPy needs nothing: `frame.to_numpy()`, `DataFrame(array)`.

Parts of a deferred frame are converted in workers and stay in object memory; a dataset that becomes a frame passes
through this process one block at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas

import weft
from weft.pandas.facade import deferred
from weft.pandas.frames import is_deferred, plan_of, wrap
from weft.pandas.limits import limits
from weft.pandas.moves import moves
from weft.pandas.parts import home
from weft.pandas.plans import Rows, Table, run, same_type, stored, together

if TYPE_CHECKING:
    import pyarrow as pa

    from weft.data import Dataset

__all__ = ["from_arrow", "from_dataset", "to_arrow", "to_dataset", "to_torch"]


def to_dataset(frame: Any) -> Dataset:
    """A weft.data.Dataset of the frame's rows, without its index.

    >>> import weft.pandas as pd
    >>> pd.to_dataset(pd.DataFrame({"n": [1, 2, 3]})).count()
    3
    """
    from weft import data
    from weft.pandas.frame_source import FrameSource

    if not is_deferred(frame):
        return data.from_arrow(_as_table(frame))
    handles, told = run(plan_of(frame), _as_table)
    refs = [each if isinstance(each, weft.ObjectRef) else weft.put(each) for each in handles]
    names = [str(name) for name in told[0].meta.columns]
    return data.read_datasource(FrameSource(refs, names, sum(each.length for each in told)))


def from_dataset(dataset: Dataset) -> Any:
    """A DataFrame of a dataset's rows: deferred, a part for each block, where it is large and its blocks are of one
    type."""
    place = home()
    handles, lengths, metas = [], [], []
    for piece in dataset.iter_batches(batch_size=None, batch_format="pandas"):
        piece.index = pandas.RangeIndex(len(piece))
        handles.append(place.put(stored(piece)))
        lengths.append(len(piece))
        metas.append(piece.iloc[:0].copy())
    if not handles:
        return dataset.to_pandas()
    are_alike = all(same_type(metas[0], meta) for meta in metas) and metas[0].columns.is_unique
    if not are_alike:
        return pandas.concat(place.get(handles), ignore_index=True)
    if not all(lengths) or not limits.are_passed_by(sum(lengths), len(metas[0].columns)):
        return together(place.get(handles), pandas.RangeIndex(sum(lengths)))
    moves.cut += 1
    return wrap(Table(handles, Rows(lengths), metas[0]))


def from_arrow(table: pa.Table) -> Any:
    """A DataFrame of an Arrow table."""
    frame = table.to_pandas()
    return deferred(frame) if limits.are_passed_by(*frame.shape) else frame


def to_arrow(frame: Any) -> pa.Table:
    """An Arrow table of the frame's rows, without its index."""
    import pyarrow as pa

    if not is_deferred(frame):
        return _as_table(frame)
    return pa.concat_tables(home().get(run(plan_of(frame), _as_table)[0]), promote_options="permissive")


def to_torch(frame: Any, dtype: Any = None) -> Any:
    """A tensor with a row for each of the frame's, of columns that are all numbers."""
    import torch

    values = frame.to_numpy()
    if values.dtype == object:
        raise TypeError(f"columns must be numbers, but got {dict(frame.dtypes.astype(str))}")
    tensor = torch.from_numpy(np.ascontiguousarray(values) if values.flags.writeable else values.copy())
    return tensor if dtype is None else tensor.to(dtype)


def _as_table(frame: pandas.DataFrame) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_pandas(frame.rename(columns=str), preserve_index=False).replace_schema_metadata(None)
