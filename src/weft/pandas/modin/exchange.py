"""Frames to and from weft.data, Arrow and torch. NumPy needs nothing: `frame.to_numpy()`, `DataFrame(array)`.

Rows of blocks are converted in workers and stay in object memory; a dataset that becomes a frame passes through this
process one block at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas

import weft
from weft.pandas.modin.frame import WeftFrame
from weft.pandas.modin.partition import WeftPartition
from weft.pandas.modin.query_compiler import WeftQueryCompiler
from weft.pandas.modin.wrapper import WeftWrapper

if TYPE_CHECKING:
    import pyarrow as pa

    from weft.data import Dataset

__all__ = ["from_arrow", "from_dataset", "to_arrow", "to_dataset", "to_torch"]


def to_dataset(frame: Any) -> Dataset:
    """A weft.data.Dataset of the frame's rows, without its index.

    >>> import weft.pandas.modin as pd
    >>> pd.to_dataset(pd.DataFrame({"n": [1, 2, 3]})).count()
    3
    """
    from weft import data
    from weft.pandas.frame_source import FrameSource

    names = [str(name) for name in frame.columns]
    return data.read_datasource(FrameSource(_arrow_refs(frame), names, len(frame)))


def from_dataset(dataset: Dataset) -> Any:
    """A DataFrame of a dataset's rows, on Weft: a row of blocks a block."""
    return _of_pieces(batch for batch in dataset.iter_batches(batch_size=None, batch_format="pandas"))


def from_arrow(table: pa.Table) -> Any:
    """A DataFrame of an Arrow table."""
    import modin.pandas
    from modin.core.execution.dispatching.factories.dispatcher import FactoryDispatcher

    return modin.pandas.DataFrame(query_compiler=FactoryDispatcher.from_pandas(table.to_pandas()))


def to_arrow(frame: Any) -> pa.Table:
    """An Arrow table of the frame's rows, without its index."""
    import pyarrow as pa

    return pa.concat_tables(WeftWrapper.materialize(_arrow_refs(frame)), promote_options="permissive")


def to_torch(frame: Any, dtype: Any = None) -> Any:
    """A tensor with a row for each of the frame's, of columns that are all numbers."""
    import torch

    values = frame.to_numpy()
    if values.dtype == object:
        raise TypeError(f"columns must be numbers, but got {dict(frame.dtypes.astype(str))}")
    tensor = torch.from_numpy(np.ascontiguousarray(values) if values.flags.writeable else values.copy())
    return tensor if dtype is None else tensor.to(dtype)


def _arrow_refs(frame: Any) -> list[Any]:
    """Refs of Arrow tables, one for each row of blocks, made in workers."""
    compiler = frame._query_compiler
    if not isinstance(compiler, WeftQueryCompiler):
        return [weft.put(_as_table([compiler.to_pandas()]))]
    grid = compiler._modin_frame
    grid._propagate_index_objs(axis=None)
    return [WeftWrapper.deploy(_as_table, [[block.list_of_blocks[0] for block in row]]) for row in grid._partitions]


def _as_table(blocks: list[pandas.DataFrame]) -> pa.Table:
    import pyarrow as pa

    frame = blocks[0] if len(blocks) == 1 else pandas.concat(blocks, axis=1)
    return pa.Table.from_pandas(frame.rename(columns=str), preserve_index=False).replace_schema_metadata(None)


def _of_pieces(pieces: Any) -> Any:
    import modin.pandas

    partitions, length = [], 0
    for piece in pieces:
        piece.index = pandas.RangeIndex(length, length + len(piece))
        length += len(piece)
        partitions.append([WeftPartition.put(piece)])
    if not partitions:
        return modin.pandas.DataFrame()
    return modin.pandas.DataFrame(query_compiler=WeftQueryCompiler(WeftFrame(np.array(partitions))))
