"""Writing a Dataset: one method a format. How files appear at their destination is in `writers`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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

    def write_parquet(self, path: str, *, mode: str = "append", compression: str = "zstd") -> list[str]:
        """A file per block. They appear when all are written; none does if anything fails. Gives their paths.
        `mode`: "append", "overwrite", or "error" if the folder is not empty."""
        from weft.data.writers import SaveParquet, Writer

        return self._write(Writer(path, "parquet", SaveParquet(compression), mode))

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
