"""Blocks: Arrow tables in the arena, what a task takes and returns; and the forms in which users see them.

A block's buffers travel out of band, so that whoever gets one reads it in place. Kernels see it as a Polars frame, by
reference. Runs in any process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from weft.data.errors import RowError
from weft.data.schemas import common_schema, fitting, schema_of
from weft.data.sizing import BlockSizes
from weft.library.checks import one_of

if TYPE_CHECKING:
    import polars as pl

BATCH_FORMATS = ("numpy", "pandas", "arrow", "polars", "torch", "jax")


def check_batch_format(name: str) -> str:
    one_of("batch_format", name, BATCH_FORMATS)
    return name


def frame_of(block: pa.Table) -> pl.DataFrame:
    """The block as a Polars frame, by reference where the layouts agree."""
    import polars as pl

    frame = pl.from_arrow(block, rechunk=False)
    assert isinstance(frame, pl.DataFrame)
    return frame


def block_of(frame: pl.DataFrame) -> pa.Table:
    """A Polars frame as a block. Strings become `large_string`: a view could drag along the text of other rows."""
    import polars as pl

    wide = [name for name, kind in frame.schema.items() if kind in (pl.Int128, pl.UInt128)]
    if wide:  # such as of an unsigned and a signed number of 64 bits
        reason = "it has come to integers of 128 bits, which blocks cannot hold; cast it, or what it is made of, before"
        raise RowError("putting rows into a block", "what was computed", None, wide[0], reason)
    return frame.to_arrow()


def piece_of(frame: pl.DataFrame) -> pa.Table:
    """A frame as a block that is read by `gathered` only. Short texts stay the views that Polars has of them, which
    saves making them anew on both ends of an exchange; longer ones would drag along the texts of other rows."""
    import polars as pl

    if not any(kind == pl.String for kind in frame.dtypes):
        return block_of(frame)
    block = frame.to_arrow(compat_level=pl.CompatLevel.newest())
    other = [field.name for field in block.schema if not _is_whole_in_itself(block.column(field.name))]
    for name, column in zip(other, block_of(frame.select(other)).columns if other else (), strict=True):
        block = block.set_column(block.schema.get_field_index(name), name, column)
    return block


def _is_whole_in_itself(column: pa.ChunkedArray) -> bool:
    """Not of a type that older kernels do not know, but for views of texts that are all in the views."""
    if column.type == pa.string_view():
        return all(len(chunk.buffers()) == 2 for chunk in column.chunks)
    return not (pa.types.is_nested(column.type) or pa.types.is_binary_view(column.type))


def gathered(inputs: Sequence[pa.Table | pa.Schema]) -> pl.DataFrame:
    """All rows of pieces; of one schema, which is the one among the inputs, or else what these have in common."""
    pieces = [piece for piece in inputs if not isinstance(piece, pa.Schema)]
    fit = next((piece for piece in inputs if isinstance(piece, pa.Schema)), None)
    filled = [piece for piece in pieces if piece.num_rows]
    if fit is None and filled and all(piece.schema.equals(filled[0].schema) for piece in filled):
        return frame_of(pa.concat_tables(filled))
    return frame_of(concatenate([block_of(frame_of(piece)) for piece in pieces], fit))


def compact(block: pa.Table) -> pa.Table:
    """The same rows without what a slice still refers to: a pickled slice would carry its whole source."""
    return block if block.get_total_buffer_size() <= 2 * block.nbytes + 4096 else copied(block)


def copied(block: pa.Table) -> pa.Table:
    """The same rows in memory of their own."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, block.schema) as writer:
        writer.write_table(block)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def concatenate(blocks: Sequence[pa.Table], fit: pa.Schema | None = None) -> pa.Table:
    """All rows of blocks, in the types and with the columns that these have in common, or as `fit` says."""
    filled = [block for block in blocks if block.num_rows]
    if not filled:  # an empty block may have lost its columns
        filled = [max(blocks, key=lambda block: block.num_columns, default=pa.table({}))]
    if fit is None and all(block.schema.equals(filled[0].schema) for block in filled):
        return pa.concat_tables(filled)
    schemas = [schema_of(block.schema) for block in filled]
    wanted = common_schema(schemas, "putting blocks together") if fit is None else schema_of(fit)
    return pa.concat_tables([refitted(block, wanted) for block in filled])


def refitted(block: pa.Table, wanted: pl.Schema) -> pa.Table:
    """The block with other types or columns."""
    frame = frame_of(block)
    return block_of(frame if frame.schema == wanted else frame.select(fitting(frame.schema, wanted)))


def coalesced(blocks: Iterable[pa.Table], sizes: BlockSizes) -> Iterator[pa.Table]:
    """The same rows in blocks of about that size: small neighbours together, large ones cut. At least one block."""
    waiting: list[pa.Table] = []
    size_bytes, given = 0, False
    for block in blocks:
        if waiting and size_bytes + block.nbytes > sizes.most_bytes:
            yield from _cut(concatenate(waiting), sizes)
            waiting, size_bytes, given = [], 0, True
        waiting.append(block)
        size_bytes += block.nbytes
        if size_bytes >= sizes.target_bytes:
            yield from _cut(concatenate(waiting), sizes)
            waiting, size_bytes, given = [], 0, True
    if not given or any(block.num_rows for block in waiting):
        yield from _cut(concatenate(waiting), sizes)


def _cut(block: pa.Table, sizes: BlockSizes) -> Iterator[pa.Table]:
    if block.nbytes <= sizes.most_bytes:
        yield compact(block)
        return
    rows = -(-block.num_rows // -(-block.nbytes // sizes.target_bytes))
    for at in range(0, block.num_rows, rows):
        yield compact(block.slice(at, rows))


# ---- what users see --------------------------------------------------------------------------------


def to_batch(block: pa.Table, batch_format: str) -> Any:
    """The rows in one of BATCH_FORMATS; numbers without nulls are not copied, and then read-only."""
    if batch_format == "arrow":
        return block
    if batch_format == "pandas":
        return block.to_pandas()
    if batch_format == "polars":
        return frame_of(block)
    columns = {name: to_array(block.column(name)) for name in block.column_names}
    if batch_format == "torch":
        return {name: to_tensor(array) for name, array in columns.items()}
    if batch_format == "jax":
        import jax.numpy as jnp

        return {name: jnp.asarray(array) if array.dtype != object else array for name, array in columns.items()}
    return columns


def to_array(column: pa.ChunkedArray) -> np.ndarray[Any, Any]:
    """A column as NumPy has it; lists of one length become a further dimension."""
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # what combine_chunks gives for no chunks
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], column.type)
    shape = [len(array)]
    while pa.types.is_fixed_size_list(array.type) and array.null_count == 0:
        shape.append(array.type.list_size)
        array = array.flatten()
    values: np.ndarray[Any, Any] = array.to_numpy(zero_copy_only=False)
    return values.reshape(shape) if len(shape) > 1 else values


def to_tensor(array: np.ndarray[Any, Any]) -> Any:
    """A tensor of its own memory; what torch has no type for stays an array."""
    import torch

    if array.dtype.kind not in "biuf":
        return array
    return torch.from_numpy(array.copy() if not array.flags.writeable else array)


def from_batch(batch: Any, columns_of: str = "the result") -> pa.Table:
    """What a user's function returned, as a block. ValueError says what is wrong with it, naming the column."""
    if isinstance(batch, pa.Table):
        return batch
    if isinstance(batch, pa.RecordBatch):
        return pa.Table.from_batches([batch])
    if isinstance(batch, Mapping):
        columns = {str(name): column_of(values, str(name)) for name, values in batch.items()}
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"the columns of {columns_of} have different lengths: {lengths}")
        return pa.table(columns)
    kind = type(batch)
    if kind.__name__ == "DataFrame" and kind.__module__.partition(".")[0] == "pandas":
        return pa.Table.from_pandas(batch, preserve_index=False).replace_schema_metadata(None)
    if kind.__name__ == "DataFrame" and kind.__module__.partition(".")[0] == "polars":
        return block_of(batch)
    raise ValueError(
        f"{columns_of} must be a dict of arrays, a pandas or Polars frame or an Arrow table, but is a {kind.__name__}"
    )


def from_rows(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as a block, with every column that any of them has; ValueError names the column and row that do not fit."""
    names: dict[str, None] = {}
    for row in rows:
        names.update(dict.fromkeys(row))
    return pa.table({name: column_of([row.get(name) for row in rows], name) for name in names})


class MixedTypesError(ValueError):
    """A column's values have no common type; says which row is the first that does not fit."""

    def __init__(self, column: str, row: int, reason: str) -> None:
        super().__init__(column, row, reason)
        self.column = column
        self.row = row
        self.reason = reason

    def __str__(self) -> str:
        return f"row {self.row}, column {self.column!r}: {self.reason}"


def column_of(values: Any, name: str) -> Any:
    """An Arrow array from an array, a tensor or a list of values; further dimensions become lists of one length."""
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    if type(values).__module__.partition(".")[0] == "torch":
        values = values.detach().cpu().numpy()
    elif hasattr(values, "__array__") and not isinstance(values, np.ndarray):
        values = np.asarray(values)
    if isinstance(values, (list, tuple)) and len(values) and isinstance(values[0], np.ndarray):
        shapes = {value.shape if isinstance(value, np.ndarray) else None for value in values}
        values = np.stack(values) if len(shapes) == 1 else [v.tolist() if hasattr(v, "tolist") else v for v in values]
    if isinstance(values, np.ndarray) and values.ndim > 1:
        column = pa.array(np.ascontiguousarray(values).reshape(-1))
        for size in reversed(values.shape[1:]):
            column = pa.FixedSizeListArray.from_arrays(column, size)
        return column
    if np.isscalar(values) or values is None or (isinstance(values, np.ndarray) and values.ndim == 0):
        raise ValueError(f"column {name!r} must have one value a row, but is the single value {values!r}")
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        row = _first_misfit(values)
        raise MixedTypesError(name, row, f"{values[row]!r} does not fit the values before it ({error})") from None


def _first_misfit(values: Any) -> int:
    """The first row with which the values up to it have no common type."""
    low, high = 0, len(values)
    while low + 1 < high:
        middle = (low + high) // 2
        try:
            pa.array(values[:middle])
            low = middle
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
            high = middle
    return high - 1
