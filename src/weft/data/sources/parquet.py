"""Parquet. Splits are row groups, by the footers; Polars reads only the columns and row groups that are needed."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import weft
from weft.data.block import frame_of
from weft.data.errors import ReadError, SchemaError
from weft.data.expressions import roots
from weft.data.partitions import kinds_of, table_of, with_values
from weft.data.running import Running
from weft.data.schemas import fitted, schema_of
from weft.data.sources.base import Source, keep_wanted, union_of
from weft.data.sources.paths import is_remote, opened, scannable
from weft.data.sources.split import Split

FOOTERS_IN_DRIVER = 16
LEAST_SPLIT_BYTES = 4 * 2**20


@dataclass(frozen=True)
class Footer:
    """What a file says of itself."""

    path: str
    schema: pa.Schema | None
    groups: tuple[tuple[int, int], ...]
    """(rows, bytes in memory) of each row group."""
    problem: str | None = None


def read_footer(path: str) -> Footer:
    try:
        with opened(path) as file:
            found = pq.read_metadata(file)
            groups = [found.row_group(number) for number in range(found.num_row_groups)]
            sizes = tuple((group.num_rows, group.total_byte_size) for group in groups)
            schema = found.schema.to_arrow_schema().remove_metadata()
            twice = next((name for name in schema.names if schema.names.count(name) > 1), None)
            return (
                Footer(path, schema, sizes)
                if twice is None
                else Footer(path, None, (), f"two of its columns are called {twice!r}")
            )
    except (pa.ArrowException, OSError, ReadError) as error:
        reason = error.reason if isinstance(error, ReadError) else f"{type(error).__name__}: {error}"
        return Footer(path, None, (), reason)


def read_footers(paths: Sequence[str]) -> list[Footer]:
    return [read_footer(path) for path in paths]


@dataclass
class ParquetSource(Source):
    files: list[tuple[str, int]]
    on_error: str = "raise"
    schema_drift: str = "raise"
    _footers: list[Footer] | None = field(default=None, repr=False)
    _union: pa.Schema | None = field(default=None, repr=False)
    """What the files have in common, where that is asked for."""

    _hive: dict[str, pl.DataType] = field(default_factory=dict, repr=False)
    """Columns that are in the names of folders, and in no file."""

    def __post_init__(self) -> None:
        self._hive = kinds_of([path for path, _ in self.files])

    def __str__(self) -> str:
        return f"parquet, {len(self.files)} files"

    def __getstate__(self) -> dict[str, Any]:
        """Workers need of all the footers only the schema that files have to fit."""
        footers = self._footers and [_first(self._footers)]
        return {**self.__dict__, "_footers": footers, "files": self.files[:1]}

    def footers(self) -> list[Footer]:
        if self._footers is None:
            found = self._read_footers()
            for footer in found:
                if footer.problem is not None and self.on_error == "raise":
                    raise ReadError(footer.path, footer.problem)
            if self.schema_drift == "raise":
                expected = _first(found).schema
                for footer in found:
                    if footer.schema is not None and expected is not None:
                        check_fits(footer.path, expected, footer.schema)
            if self.schema_drift == "union":
                schemas = ((footer.path, schema_of(footer.schema)) for footer in found if footer.schema)
                self._union = pl.DataFrame(schema=union_of(schemas)).to_arrow().schema
            self._footers = found
        return self._footers

    def _read_footers(self) -> list[Footer]:
        paths = [path for path, _ in self.files]
        if len(paths) <= FOOTERS_IN_DRIVER:
            return read_footers(paths)
        task = weft.remote(read_footers)
        chunks = [paths[at : at + FOOTERS_IN_DRIVER] for at in range(0, len(paths), FOOTERS_IN_DRIVER)]
        return [footer for part in weft.get([task.remote(chunk) for chunk in chunks]) for footer in part]

    def _in_files(self) -> pa.Schema:
        footers = self.footers()
        found = self._union or _first(footers).schema
        assert found is not None
        return found

    def _in_folders(self, names: Sequence[str]) -> dict[str, pl.DataType]:
        """A column that files have, too, is theirs."""
        return {name: kind for name, kind in self._hive.items() if name not in names}

    def schema(self) -> pa.Schema:
        found = self._in_files()
        more = self._in_folders(found.names)
        return pa.schema([*found, *pl.DataFrame(schema=more).to_arrow().schema]) if more else found

    def pruned(self, predicate: pl.Expr) -> ParquetSource:
        """Without files of which the values in their folders say that no row is wanted; one stays for its columns."""
        more = self._in_folders(self._in_files().names) if self._hive else {}
        used = roots(predicate)
        if not more or not used or not used <= more.keys():
            return self
        paths = [path for path, _ in self.files]
        wanted = table_of(paths, more).select(predicate.fill_null(False)).to_series().to_list()
        kept = [number for number, yes in enumerate(wanted) if yes] or [0]
        made = copy.copy(self)
        made.files = [self.files[number] for number in kept]
        made._footers = [self.footers()[number] for number in kept]
        return made

    def columns(self) -> list[str]:
        return list(self.schema().names)

    def types(self) -> pl.Schema | None:
        """By the first file that can be read, so that no other footer is asked for before something runs."""
        if self._footers is None and self.schema_drift != "union" and len(self.files) > FOOTERS_IN_DRIVER:
            first = read_footer(self.files[0][0]).schema
            return None if first is None else pl.Schema({**schema_of(first), **self._in_folders(first.names)})
        return schema_of(self.schema())

    def row_count(self) -> int | None:
        return sum(rows for footer in self.footers() for rows, _ in footer.groups)

    def size_bytes(self) -> int | None:
        if self.on_error != "raise" or any(is_remote(path) for path, _ in self.files):
            return None
        return sum(size for footer in self.footers() for _, size in footer.groups)

    def whole(self, wanted: frozenset[str] | None) -> pl.LazyFrame:
        paths, names = [path for path, _ in self.files], self._in_files().names
        if self._hive:
            parts = [self._scan(path, None, 0) for path in paths]
            return keep_wanted(pl.concat(parts), self.columns(), wanted)
        if all(footer.schema is not None and footer.schema.names == names for footer in self.footers()):
            frame = pl.scan_parquet(paths, glob=False, hive_partitioning=False)
        else:
            kinds = schema_of(self.schema())
            frame = pl.concat(
                [fitted(pl.scan_parquet(path, glob=False, hive_partitioning=False), kinds) for path in paths]
            )
        return keep_wanted(frame, names, wanted)

    def splits(self, parallelism: int, block_bytes: int) -> list[Split]:
        """A file a split where that gives enough of them; else runs of row groups, cut at the size of a block."""
        footers = self.footers()
        total = sum(size for footer in footers for _, size in footer.groups)
        target = min(block_bytes, max(total // max(2 * parallelism, 1), LEAST_SPLIT_BYTES))
        return [split for footer in footers for split in _runs(footer, target)]

    def skipped(self) -> dict[str, int]:
        """Files that cannot be read, where that is allowed."""
        bad = sum(footer.problem is not None for footer in self.footers())
        return {"files that cannot be read": bad} if bad else {}

    def open(self, split: Split, wanted: frozenset[str] | None, running: Running) -> pl.LazyFrame:
        frame = self._scan(split.path, split.rows, split.first_row)
        if self.on_error == "skip":
            return self._readable(frame, split, wanted, running)
        return keep_wanted(frame, self.columns(), wanted)

    def _scan(self, path: str, rows: int | None, first_row: int) -> pl.LazyFrame:
        frame = pl.scan_parquet(scannable(path), glob=False, hive_partitioning=False)
        if rows is not None:
            frame = frame.slice(first_row, rows)
        kinds = schema_of(self._in_files())
        if self.schema_drift != "raise" or self._hive:
            frame = fitted(frame, kinds)
        return with_values(frame, path, self._in_folders(list(kinds)))

    def _readable(
        self, frame: pl.LazyFrame, split: Split, wanted: frozenset[str] | None, running: Running
    ) -> pl.LazyFrame:
        """The rows, or none of them where they cannot be read."""
        try:
            return keep_wanted(frame, self.columns(), wanted).collect().lazy()
        except (pl.exceptions.PolarsError, OSError):
            running.skip("files that cannot be read", 1)
            return keep_wanted(frame_of(self.schema().empty_table()).lazy(), self.columns(), wanted)

    def explain_failure(self, path: str, error: Exception) -> Exception:
        """Which column of the file is corrupt."""
        try:
            with opened(path) as file:
                parquet = pq.ParquetFile(file)
                for number in range(parquet.num_row_groups):
                    for name in parquet.schema_arrow.names:
                        problem = _column_problem(parquet, number, name)
                        if problem is not None:
                            before = sum(parquet.metadata.row_group(group).num_rows for group in range(number))
                            return ReadError(path, f"{problem}, in the row group that begins there", before, name)
        except (pa.ArrowException, OSError, ReadError) as problem:
            return ReadError(path, f"{type(problem).__name__}: {problem}")
        return ReadError(path, f"{type(error).__name__}: {error}")


def _column_problem(parquet: Any, group: int, name: str) -> str | None:
    try:
        parquet.read_row_group(group, columns=[name])
    except (pa.ArrowException, OSError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def _runs(footer: Footer, target_bytes: int) -> Iterator[Split]:
    total = sum(size for _, size in footer.groups)
    if total <= 1.5 * target_bytes or len(footer.groups) == 1:
        rows = sum(count for count, _ in footer.groups)
        if rows:
            yield Split(footer.path, 0, None, total)
        return
    first, rows, size = 0, 0, 0
    for count, group_bytes in footer.groups:
        if rows and size + group_bytes > target_bytes:
            yield Split(footer.path, first, rows, size)
            first, rows, size = first + rows, 0, 0
        rows, size = rows + count, size + group_bytes
    if rows:
        yield Split(footer.path, first, rows, size)


def _first(footers: Sequence[Footer]) -> Footer:
    """Of the first file that can be read."""
    readable = [footer for footer in footers if footer.schema is not None]
    if not readable:
        raise ReadError(footers[0].path, f"none of the files can be read: {footers[0].problem}")
    return readable[0]


def check_fits(path: str, expected: pa.Schema, found: pa.Schema) -> None:
    """SchemaError names the first column that is missing, new, or of another type: texts are texts, large or not."""
    if found.equals(expected):
        return
    kinds, wanted = schema_of(found), schema_of(expected)
    for column in expected:
        if column.name not in found.names:
            raise SchemaError(path, column.name, "the column is missing")
        if kinds[column.name] != wanted[column.name]:
            raise SchemaError(path, column.name, f"it is {found.field(column.name).type}, but must be {column.type}")
    for name in found.names:
        if name not in expected.names:
            raise SchemaError(path, name, "the first file has no such column")
