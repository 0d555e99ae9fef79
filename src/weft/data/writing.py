"""Writing a Dataset: one method a format. How files appear at their destination is in `writers`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from weft.data.writers import Writer


class Writable:
    """What gives blocks, written down."""

    def _blocks(self) -> Iterator[pa.Table]:
        raise NotImplementedError

    def _write(self, writer: Writer) -> list[str]:
        """The blocks through a writer; the paths of what it wrote."""
        raise NotImplementedError

    def write_parquet(
        self, path: str, *, mode: str = "append", compression: str = "zstd", partition_by: Sequence[str] = ()
    ) -> list[str]:
        """A file per block. They appear when all are written; none does if anything fails. Gives their paths.
        `mode`: "append", "overwrite", or "error" if the folder is not empty. With `partition_by`, a file per block and
        value of these columns, which then are in the names of folders (`city=Ulm/`), as `read_parquet` finds them."""
        from weft.data.writers import SaveParquet, Writer

        keys = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
        return self._write(Writer(path, "parquet", SaveParquet(compression), mode, partition_by=keys))

    def write_csv(self, path: str, *, mode: str = "append") -> list[str]:
        """CSV files in a folder, one per block; the paths."""
        from weft.data.writers import Writer, save_csv

        return self._write(Writer(path, "csv", save_csv, mode))

    def write_json(self, path: str, *, mode: str = "append") -> list[str]:
        """An object a line."""
        from weft.data.writers import Writer, save_json

        return self._write(Writer(path, "json", save_json, mode))

    def write_arrow(self, path: str, *, mode: str = "append") -> list[str]:
        """Arrow IPC files in a folder, one per block; the paths."""
        from weft.data.writers import Writer, save_arrow

        return self._write(Writer(path, "arrow", save_arrow, mode))

    def write_text(self, path: str, column: str = "text", *, mode: str = "append") -> list[str]:
        """Text files in a folder, a line per row; the paths."""
        from weft.data.writers import SaveText, Writer

        return self._write(Writer(path, "txt", SaveText(column), mode))

    def write_numpy(self, path: str, column: str, *, mode: str = "append") -> list[str]:
        """`.npy` files of one column in a folder; the paths."""
        from weft.data.writers import SaveNumpy, Writer

        return self._write(Writer(path, "npy", SaveNumpy(column), mode))

    def write_images(self, path: str, column: str = "image", *, format: str = "png", mode: str = "append") -> list[str]:
        """A file per row."""
        from weft.data.writers import SaveImage, Writer

        return self._write(Writer(path, format, SaveImage(column, format), mode, file_a_row=True))

    def write_orc(self, path: str, *, mode: str = "append") -> list[str]:
        """ORC files in a folder, one per block; the paths."""
        from weft.data.sources.other_formats import save_orc
        from weft.data.writers import Writer

        return self._write(Writer(path, "orc", save_orc, mode))

    def write_avro(self, path: str, *, mode: str = "append") -> list[str]:
        """Avro files in a folder, one per block; the paths."""
        from weft.data.sources.other_formats import save_avro
        from weft.data.writers import Writer

        return self._write(Writer(path, "avro", save_avro, mode))

    def write_excel(self, path: str, *, mode: str = "append") -> list[str]:
        """Workbooks of one sheet in a folder, one per block; the paths. Needs openpyxl."""
        from weft.data.sources.other_formats import save_excel
        from weft.data.writers import Writer

        return self._write(Writer(path, "xlsx", save_excel, mode))

    def write_webdataset(self, path: str, *, mode: str = "append") -> list[str]:
        """Archives of samples, one per block: each has its name in `__key__`, and a file per other column."""
        from weft.data.sources.other_formats import save_webdataset
        from weft.data.writers import Writer

        return self._write(Writer(path, "tar", save_webdataset, mode))

    def write_tfrecords(self, path: str, *, mode: str = "append") -> list[str]:
        """TensorFlow's records, a file per block, an `Example` per row; floats of 32 bits, nulls are left out."""
        from weft.data.sources.tfrecords import save_tfrecords
        from weft.data.writers import Writer

        return self._write(Writer(path, "tfrecord", save_tfrecords, mode))

    def write_delta(
        self,
        path: str,
        *,
        mode: str = "append",
        partition_by: Sequence[str] = (),
        storage_options: Mapping[str, str] | None = None,
    ) -> int:
        """One version more of a table of Delta Lake; how many rows. `mode`: "append", "overwrite" or "error"."""
        from weft.data.sources.tables import write_delta

        return write_delta(self._blocks(), path, mode, list(partition_by), storage_options)

    def write_iceberg(self, table: Any, *, catalog: Mapping[str, str] | None = None, mode: str = "append") -> int:
        """One snapshot more of a table of Iceberg; how many rows. `mode`: "append" or "overwrite"."""
        from weft.data.sources.tables import write_iceberg

        return write_iceberg(self._blocks(), table, catalog, mode)

    def write_lance(self, path: str, *, mode: str = "append") -> int:
        """One version more of a dataset of Lance; how many rows. `mode`: "append", "overwrite" or "error"."""
        from weft.data.sources.tables import write_lance

        return write_lance(self._blocks(), path, mode)

    def write_sql(self, statement: str, connect: Callable[[], Any]) -> int:
        """Each row through an INSERT statement of a DB-API driver, all in one transaction of this process."""
        connection = connect()
        try:
            cursor = connection.cursor()
            rows = 0
            for block in self._blocks():
                cursor.executemany(statement, [tuple(row.values()) for row in block.to_pylist()])
                rows += block.num_rows
            connection.commit()
            return rows
        except BaseException:
            connection.rollback()
            raise
        finally:
            connection.close()
