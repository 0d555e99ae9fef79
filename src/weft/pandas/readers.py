"""Large files as deferred frames: stretches of a CSV file, groups of rows of a Parquet file.

READ-1 A stretch begins where a row begins: rows are cut at line ends of which no quote is open.
READ-2 All stretches are parsed with the types that pandas finds for the whole. Where a column is of ints in one and of
       floats in another, those of ints are parsed again as floats. Any other difference, and all that a stretch cannot
       know (rows to be skipped, dates whose format is guessed, …), makes pandas read the file.
"""

from __future__ import annotations

import functools
import io
import itertools
import os
from typing import Any

import numpy as np
import pandas

from weft.pandas.frames import wrap
from weft.pandas.limits import limits
from weft.pandas.moves import moves
from weft.pandas.parts import home
from weft.pandas.plans import Rows, Table, Told, UnsupportedError, gather, same_type, stored
from weft.pandas.stretches import Stretch

PIECE_BYTES = 1 << 20
FOR_STRETCHES = frozenset(
    "sep delimiter dtype na_values keep_default_na usecols names header decimal thousands".split()
)
SAFE_INTS = 2**53


# ---- CSV -------------------------------------------------------------------------------------------


def parse(path: str, header: bytes, start: int, end: int, kwargs: dict[str, Any]) -> tuple[Any, Told, dict[Any, float]]:
    """In a worker: a stretch, what is told of it, and of each column of ints how far from zero it goes."""
    with open(path, "rb", buffering=0) as file:
        frame = pandas.read_csv(io.BufferedReader(Stretch(file, header, start, end), PIECE_BYTES), **kwargs)
    ints = {name: frame[name] for name, dtype in frame.dtypes.items() if dtype == np.int64}
    largest = {name: float(np.abs(each.to_numpy().astype(float)).max(initial=0.0)) for name, each in ints.items()}
    if not isinstance(frame.index, pandas.RangeIndex):
        raise UnsupportedError("rows have more values than the header has names")
    return stored(frame), Told(frame.iloc[:0].copy(), len(frame)), largest


def read_csv(path: Any, kwargs: dict[str, Any]) -> Any:
    name = _plain_file(path, limits.text_bytes)
    if set(kwargs) - FOR_STRETCHES or kwargs.get("header", "infer") not in ("infer", 0):
        raise UnsupportedError("it has arguments that are not for stretches of a file")
    if kwargs.get("names") is not None or not _is_plain_dtype(kwargs.get("dtype")):
        raise UnsupportedError("names or types are given that are not for stretches of a file")
    separator = kwargs.get("sep", kwargs.get("delimiter", ","))
    if not isinstance(separator, str) or len(separator) != 1:
        raise UnsupportedError("values are not parted by one character")
    with open(name, "rb") as file:
        header = file.readline()
        if not header.strip() or header.count(b'"') % 2 or b"\r" in header.rstrip(b"\r\n"):
            raise UnsupportedError("the header is not one line")
        bounds = _bounds(file, file.tell(), os.path.getsize(name), home().count())
    return _frame_of(_table(name, header, bounds, kwargs))


def _frame_of(table: Table) -> Any:
    """Deferred if it is large; else put together."""
    if limits.are_passed_by(sum(table.rows.lengths), len(table.meta.columns)):
        moves.cut += 1
        return wrap(table)
    return gather(table)


def _is_plain_dtype(dtype: Any) -> bool:
    wanted = dtype.values() if isinstance(dtype, dict) else [dtype]
    return all(each in (None, int, float, str, "int64", "float64", "int32", "float32", "str") for each in wanted)


def _plain_file(path: Any, least_bytes: int) -> str:
    try:
        name = os.fspath(path)
    except TypeError:
        raise UnsupportedError("it is not a path") from None
    if not isinstance(name, str) or not os.path.isfile(name) or os.path.getsize(name) < least_bytes:
        raise UnsupportedError("it is not a large file of this machine")
    if name.endswith((".gz", ".bz2", ".zip", ".xz", ".zst", ".tar")):
        raise UnsupportedError("it is compressed")
    return name


def _bounds(file: Any, start: int, end: int, parts: int) -> list[int]:
    """Where stretches begin and end: behind the end of a line, with no quote open."""
    wanted = [start + (end - start) * number // parts for number in range(1, parts)]
    bounds, quotes, at = [start], 0, start
    file.seek(start)
    for goal in wanted:
        while at < goal and (piece := file.read(min(PIECE_BYTES, goal - at))):
            quotes += piece.count(b'"')
            at += len(piece)
        while line := file.readline():
            quotes += line.count(b'"')
            at += len(line)
            if quotes % 2 == 0:
                break
        if bounds[-1] < at < end:
            bounds.append(at)
    return [*bounds, end]


def _table(name: str, header: bytes, bounds: list[int], kwargs: dict[str, Any]) -> Table:
    place = home()
    stretches = [(name, header, first, last) for first, last in itertools.pairwise(bounds)]

    def parsed(numbers: list[int], types: dict[Any, Any] | None) -> tuple[list[Any], list[Told], list[Any]]:
        keywords = {**kwargs, "low_memory": False} if types is None else {**kwargs, "dtype": types, "low_memory": False}
        made = place.run(parse, [(*stretches[number], keywords) for number in numbers], 3)
        return [each[0] for each in made], place.get([each[1] for each in made]), place.get([each[2] for each in made])

    try:
        handles, told, largest = parsed(list(range(len(stretches))), None)
        again = _floats(told, largest)
        if again:
            given = kwargs.get("dtype") or {}
            if not isinstance(given, dict):
                raise UnsupportedError("a column is of ints here and of floats there")
            numbers = [at for at, each in enumerate(told) if any(each.meta.dtypes[name] == np.int64 for name in again)]
            anew, told_anew, _ = parsed(numbers, {**given, **dict.fromkeys(again, np.float64)})
            for number, handle, each in zip(numbers, anew, told_anew, strict=True):
                handles[number], told[number] = handle, each
    except UnsupportedError:
        raise
    except Exception as error:  # pandas raises its own, of the whole
        raise UnsupportedError(f"a stretch of it raises {type(error).__name__}") from None
    filled = [each for each in told if each.length]
    if not filled or not all(same_type(filled[0].meta, each.meta) for each in filled) or len(filled) < len(told):
        raise UnsupportedError("a column is of other types in some stretches of the file")
    return Table(handles, Rows([each.length for each in told]), filled[0].meta)


def _floats(told: list[Told], largest: list[dict[Any, float]]) -> list[Any]:
    """Columns that are of ints in some stretches and of floats in others."""
    found = []
    if not all(each.meta.columns.equals(told[0].meta.columns) for each in told):
        raise UnsupportedError("stretches of it have other columns")
    for name in told[0].meta.columns:
        types = {each.meta.dtypes[name] for each in told}
        if types == {np.dtype(np.int64), np.dtype(np.float64)}:
            if max(each.get(name, 0.0) for each in largest) >= SAFE_INTS:
                raise UnsupportedError("large ints stand beside floats")
            found.append(name)
    return found


# ---- Parquet ---------------------------------------------------------------------------------------


def parse_groups(path: str, groups: list[int], columns: list[str] | None) -> tuple[Any, Told]:
    """In a worker: some groups of rows of a file."""
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        frame = file.read_row_groups(groups, columns=columns, use_threads=False).to_pandas()
    frame.index = pandas.RangeIndex(len(frame))
    return stored(frame), Told(frame.iloc[:0].copy(), len(frame))


def read_parquet(path: Any, kwargs: dict[str, Any]) -> Any:
    name = _plain_file(path, limits.columnar_bytes)
    columns = kwargs.get("columns")
    if set(kwargs) - {"columns"} or not (columns is None or (type(columns) is list and columns)):
        raise UnsupportedError("it has arguments that are not for groups of rows")
    from pyarrow import parquet

    with parquet.ParquetFile(name) as file:
        groups, schema, rows = file.metadata.num_row_groups, file.schema_arrow, file.metadata.num_rows
    if groups < 2 or not _has_plain_index(schema, rows):
        raise UnsupportedError("it has one group of rows, or an index")
    place = home()
    shares = [share.tolist() for share in np.array_split(range(groups), min(groups, place.count()))]
    try:
        pairs = place.run(parse_groups, [(name, share, columns) for share in shares], 2)
        told = place.get([pair[1] for pair in pairs])
    except Exception as error:  # pandas raises its own, of the whole
        raise UnsupportedError(f"a group of rows raises {type(error).__name__}") from None
    expected = pandas.read_parquet(_no_rows(schema, columns))
    if not all(each.length and same_type(expected, each.meta) for each in told):
        raise UnsupportedError("a column is of other types in some groups of rows")
    return _frame_of(Table([pair[0] for pair in pairs], Rows([each.length for each in told]), told[0].meta))


def _has_plain_index(schema: Any, rows: int) -> bool:
    kept = (schema.pandas_metadata or {}).get("index_columns", [])
    usual = {"kind": "range", "name": None, "start": 0, "stop": rows, "step": 1}
    return bool(kept == [] or kept == [usual])


def _no_rows(schema: Any, columns: list[str] | None) -> io.BytesIO:
    """A file with the same columns and no rows: by its types pandas tells those of the whole."""
    from pyarrow import parquet

    file = io.BytesIO()
    table = schema.empty_table()
    parquet.write_table(table if columns is None else table.select(columns), file)
    file.seek(0)
    return file


def _reader(name: str, on_parts: Any) -> Any:
    of_pandas = getattr(pandas, name)

    @functools.wraps(of_pandas)
    def read(path: Any, *args: Any, **kwargs: Any) -> Any:
        if args:
            return of_pandas(path, *args, **kwargs)
        try:
            _plain_file(path, limits.columnar_bytes if name == "read_parquet" else limits.text_bytes)
        except UnsupportedError:
            return of_pandas(path, **kwargs)
        try:
            with moves.timed(moves.on_parts, name):
                return on_parts(path, kwargs)
        except UnsupportedError as why:
            moves.on_parts[name].count -= 1
            reason = str(why)
        moves.note_fallback(name, reason)
        with moves.timed(moves.in_pandas, name):
            return of_pandas(path, **kwargs)

    return read


READERS = {"read_csv": _reader("read_csv", read_csv), "read_parquet": _reader("read_parquet", read_parquet)}
