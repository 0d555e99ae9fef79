"""A user's function called once per group. Runs in workers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from weft.data import block as blocks
from weft.data.errors import DataError, RowError
from weft.data.functions import Function
from weft.data.running import Running


@dataclass
class GroupsStep:
    """All rows of each group are in this block; the groups come in the order of their keys."""

    keys: tuple[str, ...]
    function: Function

    def __str__(self) -> str:
        return f"map_groups({getattr(self.function.callee, '__name__', self.function.callee)})"

    @property
    def moves_rows(self) -> bool:
        return True

    def apply(self, block: pa.Table, running: Running) -> Iterator[pa.Table]:
        if block.num_rows == 0:
            return
        called = running.instance_of(self.function)
        for group in self._groups(blocks.frame_of(block)):
            batch = blocks.to_batch(blocks.block_of(group), self.function.batch_format)
            try:
                result = called(batch, *self.function.args, **self.function.kwargs)
                made = blocks.from_batch(result, f"what {self} returns")
            except DataError:
                raise
            except (Exception, SystemExit) as error:
                if self.function.on_error == "skip":
                    running.skip(str(self), group.height)
                    continue
                named = ", ".join(f"{key}={group[key][0]!r}" for key in self.keys)
                where = f"the group {named}" if named else "all rows"
                raise RowError(str(self), where, None, None, f"{type(error).__name__}: {error}") from error
            yield made

    def _groups(self, frame: pl.DataFrame) -> list[pl.DataFrame]:
        if not self.keys:
            return [frame]
        ordered = frame.sort(*self.keys, maintain_order=True)
        return ordered.partition_by(*self.keys, maintain_order=True)
