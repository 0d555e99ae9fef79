"""Writing: every task writes its block beside the destination, and all of it appears there when all tasks are done.

WRI-1 A file that is visible at the destination is whole.
WRI-2 A write that fails, or whose function raises, leaves nothing behind.
WRI-3 What a killed program had prepared lies in a hidden folder, and goes with the next write to the same place.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import secrets
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import polars as pl
import pyarrow as pa

from weft.data.block import block_of, frame_of, to_array
from weft.data.errors import WriteError
from weft.data.partitions import partitions
from weft.data.running import Running
from weft.data.sources.paths import is_remote, local_path
from weft.library.checks import one_of

MODES = ("append", "overwrite", "error")
LOCK = ".lock"
WITH_COLUMNS = ("parquet", "csv", "arrow", "orc", "avro")
"""Formats in which a file of no rows has its columns."""


def file_system(path: str) -> tuple[Any, str]:
    """fsspec's file system of a path, and the path in it."""
    import fsspec

    if is_remote(path):
        found: tuple[Any, str] = fsspec.core.url_to_fs(path)
        return found
    return fsspec.filesystem("file"), os.path.abspath(local_path(path))


@dataclass
class Writer:
    """The ending of a stage that writes. Its blocks say what was written: (path, rows)."""

    path: str
    extension: str
    save: Callable[[pa.Table, Any], None]
    """Writes a block into an open file."""
    mode: str = "append"
    token: str = field(default_factory=lambda: secrets.token_hex(4))
    file_a_row: bool = False
    partition_by: tuple[str, ...] = ()
    """Columns whose values are in the names of folders."""
    _lock: BinaryIO | None = field(default=None, repr=False)
    """Held as long as the program lives, in a local staging folder."""

    def __post_init__(self) -> None:
        one_of("mode", self.mode, MODES)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lock": None}

    def __str__(self) -> str:
        return f"{self.extension} to {self.path}"

    @property
    def staging(self) -> str:
        return f"{file_system(self.path)[1]}/.weft-{self.token}"

    def begin(self) -> None:
        """Before any task runs: the folder exists and is allowed to be written."""
        system, folder = file_system(self.path)
        if self.mode == "error" and system.exists(folder) and system.ls(folder):
            raise FileExistsError(f"{self.path} is not empty: choose mode='append' or mode='overwrite'")
        try:
            system.makedirs(self.staging, exist_ok=True)
            if not is_remote(self.path):
                self._lock = open(f"{self.staging}/{LOCK}", "wb")  # noqa: SIM115
                fcntl.flock(self._lock, fcntl.LOCK_EX)
                remove_abandoned(folder)
        except OSError as error:
            self.clean_up()
            raise WriteError(self.path, f"{type(error).__name__}: {error}") from error

    def end(self, block: pa.Table, running: Running) -> pa.Table:
        """In a worker: one block, into the staging folder; a second attempt writes over the first."""
        names, rows = [], []
        block_number = f"{running.index:06d}" + (f"-{running.ended}" if running.ended else "")
        running.ended += 1
        for number, (folder, piece) in enumerate(self._pieces(block)):
            if piece.num_rows == 0:
                continue
            suffix = f"-{number:06d}" if self.file_a_row or self.partition_by else ""
            name = f"part-{self.token}-{block_number}{suffix}.{self.extension}"
            self._saved(piece, folder, name)
            names.append(f"{folder}{name}")
            rows.append(piece.num_rows)
        return pa.table({"path": pa.array(names, pa.string()), "rows": pa.array(rows, pa.int64())})

    def of_nothing(self, schema: pl.Schema | None) -> list[str]:
        """A file for the columns of no rows, where the format can hold these and they are known."""
        if not schema or self.extension not in WITH_COLUMNS or self.partition_by:
            return []
        name = f"part-{self.token}-000000.{self.extension}"
        self._saved(block_of(pl.DataFrame(schema=schema)), "", name)
        return [name]

    def _saved(self, piece: pa.Table, folder: str, name: str) -> None:
        system, _ = file_system(self.path)
        try:
            with system.open(f"{self.staging}/{name}", "wb") as file:
                self.save(piece, file)
        except (OSError, pa.ArrowException, pl.exceptions.PolarsError, ValueError, TypeError) as error:
            raise WriteError(f"{self.path}/{folder}{name}", f"{type(error).__name__}: {error}") from error

    def _pieces(self, block: pa.Table) -> list[tuple[str, pa.Table]]:
        """What goes into a file each, with the folder that it is in."""
        if self.file_a_row:
            return [("", block.slice(at, 1)) for at in range(block.num_rows)]
        return (
            partitions(block, self.partition_by, self.path) if self.partition_by and block.num_rows else [("", block)]
        )

    def commit(self, names: Sequence[str]) -> list[str]:
        """All tasks are done: their files move to the destination, all or none of them."""
        system, folder = file_system(self.path)
        old = []
        if self.mode == "overwrite":
            below = system.find(folder) if self.partition_by else system.ls(folder, detail=False)
            hidden = os.path.basename(self.staging)
            old = [name for name in below if name.endswith(f".{self.extension}") and hidden not in name]
        moved: list[str] = []
        try:
            for name in names:
                if "/" in name:
                    system.makedirs(f"{folder}/{os.path.dirname(name)}", exist_ok=True)
                system.mv(f"{self.staging}/{os.path.basename(name)}", f"{folder}/{name}")
                moved.append(f"{folder}/{name}")
        except OSError as error:
            for name in moved:
                with contextlib.suppress(OSError):
                    system.rm(name)
            raise WriteError(self.path, f"{type(error).__name__}: {error}") from error
        for name in old:
            system.rm(name)
        return moved

    def clean_up(self) -> None:
        """Whatever happened, the staging folder goes. Tasks may still write there, after another has failed: the folder
        has another name before it is emptied, so that they find none."""
        try:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                if is_remote(self.path):
                    file_system(self.path)[0].rm(self.staging, recursive=True)
                else:
                    os.rename(self.staging, gone := f"{self.staging}.gone")
                    shutil.rmtree(gone)
        finally:
            if self._lock is not None:
                self._lock.close()
                self._lock = None


def remove_abandoned(folder: str) -> None:
    """Staging folders that nobody holds: those of programs that were killed."""
    for path in glob.glob(f"{glob.escape(folder)}/.weft-*/{LOCK}"):
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            shutil.rmtree(os.path.dirname(path))


# ---- formats ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SaveParquet:
    compression: str = "zstd"
    row_group_rows: int = 250_000

    def __call__(self, block: pa.Table, file: Any) -> None:
        import pyarrow.parquet as pq

        pq.write_table(block, file, compression=self.compression, row_group_size=self.row_group_rows)


def save_csv(block: pa.Table, file: Any) -> None:
    _refuse_binary(block, "CSV")
    for name, kind in zip(block.schema.names, block.schema.types, strict=True):
        if pa.types.is_nested(kind):
            raise ValueError(
                f"column {name!r} is {kind}, which CSV cannot hold: select its parts, or write JSON or Parquet"
            )
    frame_of(block).write_csv(file)


def save_json(block: pa.Table, file: Any) -> None:
    _refuse_binary(block, "JSON")
    frame_of(block).write_ndjson(file)


def _refuse_binary(block: pa.Table, what: str) -> None:
    for name, kind in zip(block.schema.names, block.schema.types, strict=True):
        if _has_binary(kind):
            raise ValueError(
                f"column {name!r} is {kind}, which {what} cannot hold: encode it before, such as with "
                f"with_column({name!r}, col({name!r}).bin.encode('base64')), or write Parquet"
            )


def _has_binary(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_binary(kind.field(number).type) for number in range(kind.num_fields))
    return any(check(kind) for check in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary))


def save_arrow(block: pa.Table, file: Any) -> None:
    whole = block.unify_dictionaries()  # a file has one of each column
    with pa.ipc.new_file(file, whole.schema) as writer:
        writer.write_table(whole)


@dataclass(frozen=True)
class SaveText:
    column: str

    def __call__(self, block: pa.Table, file: Any) -> None:
        for value in block.column(self.column).to_pylist():
            file.write(("" if value is None else str(value)).encode() + b"\n")


@dataclass(frozen=True)
class SaveNumpy:
    column: str

    def __call__(self, block: pa.Table, file: Any) -> None:
        import numpy as np

        np.save(file, to_array(block.column(self.column)), allow_pickle=False)


@dataclass(frozen=True)
class SaveImage:
    column: str
    format: str

    def __call__(self, block: pa.Table, file: Any) -> None:
        from PIL import Image

        Image.fromarray(to_array(block.column(self.column))[0]).save(file, format=self.format)
