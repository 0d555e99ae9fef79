"""Batches out of blocks: of a given size across their borders, shuffled in a buffer, in a given form."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from weft.data.block import block_of, check_batch_format, concatenate, frame_of, to_array, to_batch
from weft.library.checks import at_least


def check_batches(batch_size: int | None, batch_format: str, shuffle_rows: int | None) -> None:
    check_batch_format(batch_format)
    if batch_size is not None:
        at_least("batch_size", batch_size, 1)
    if shuffle_rows is not None:
        at_least("local_shuffle_buffer_size", shuffle_rows, 1)


def rebatched(blocks: Iterable[pa.Table], batch_size: int | None, drop_last: bool) -> Iterator[pa.Table]:
    """Tables of `batch_size` rows, the last one maybe smaller; slices of blocks where they do not cross a border."""
    if batch_size is None:
        yield from (block for block in blocks if block.num_rows)
        return
    waiting: deque[pa.Table] = deque()
    rows = 0
    for block in blocks:
        if block.num_rows == 0:
            continue
        waiting.append(block)
        rows += block.num_rows
        while rows >= batch_size:
            yield _taken(waiting, batch_size)
            rows -= batch_size
    if rows and not drop_last:
        yield _taken(waiting, rows)


def _taken(waiting: deque[pa.Table], rows: int) -> pa.Table:
    pieces = []
    while rows:
        block = waiting.popleft()
        if block.num_rows > rows:
            waiting.appendleft(block.slice(rows))
            block = block.slice(0, rows)
        pieces.append(block)
        rows -= block.num_rows
    return concatenate(pieces)


def shuffled(blocks: Iterable[pa.Table], buffer_rows: int, seed: int | None) -> Iterator[pa.Table]:
    """The rows in another order: each is drawn from at least `buffer_rows`, while there are so many."""
    random = np.random.default_rng(seed)
    held: list[pa.Table] = []
    rows = 0
    for block in blocks:
        held.append(block)
        rows += block.num_rows
        if rows >= 2 * buffer_rows:
            mixed = _mixed(held, random)
            yield mixed.slice(buffer_rows)
            held, rows = [mixed.slice(0, buffer_rows)], buffer_rows
    if rows:
        yield _mixed(held, random)


def _mixed(held: list[pa.Table], random: np.random.Generator) -> pa.Table:
    seed = int(random.integers(2**31))
    return block_of(frame_of(concatenate(held)).rechunk().sample(fraction=1.0, shuffle=True, seed=seed))


def batches(
    blocks: Iterable[pa.Table],
    *,
    batch_size: int | None,
    batch_format: str,
    drop_last: bool,
    shuffle_rows: int | None,
    seed: int | None,
) -> Iterator[Any]:
    if shuffle_rows is not None:
        blocks = shuffled(blocks, shuffle_rows, seed)
    for table in rebatched(blocks, batch_size, drop_last):
        yield to_batch(table, batch_format)


def tensors(table: pa.Table, dtypes: Any, device: Any) -> dict[str, Any]:
    """A batch as torch tensors of their own memory; `dtypes` is one for all or one per column."""
    import torch

    made = {}
    for name in table.column_names:
        array = to_array(table.column(name))
        if array.dtype.kind not in "biuf":
            raise TypeError(
                f"column {name!r} of {table.column(name).type} has no tensor type: leave it out with drop(), or use "
                "iter_batches(batch_format='torch'), which leaves such columns as arrays"
            )
        wanted = dtypes.get(name) if isinstance(dtypes, dict) else dtypes
        tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
        made[name] = tensor.to(device=device, dtype=wanted) if wanted is not None or device is not None else tensor
    return made


class Consumable:
    """What gives blocks, taken as rows and batches."""

    def _blocks(self) -> Iterator[pa.Table]:
        raise NotImplementedError

    def iter_rows(self) -> Iterator[dict[str, Any]]:
        for block in self._blocks():
            for piece in rebatched([block], 4096, drop_last=False):
                yield from piece.to_pylist()

    def iter_batches(
        self,
        *,
        batch_size: int | None = 256,
        batch_format: str = "numpy",
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
    ) -> Iterator[Any]:
        """Batches in order, while the next blocks are being made. None as `batch_size`: a batch a block.

        >>> from weft import data
        >>> [len(batch) for batch in data.range(2500).iter_batches(batch_size=1024, batch_format="pandas")]
        [1024, 1024, 452]
        """
        check_batches(batch_size, batch_format, local_shuffle_buffer_size)
        return batches(
            self._blocks(),
            batch_size=batch_size,
            batch_format=batch_format,
            drop_last=drop_last,
            shuffle_rows=local_shuffle_buffer_size,
            seed=local_shuffle_seed,
        )

    def iter_torch_batches(
        self,
        *,
        batch_size: int | None = 256,
        dtypes: Any = None,
        device: Any = None,
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Batches as dicts of torch tensors, of `dtypes` (one, or one per column) on `device`."""
        for table in self.iter_batches(
            batch_size=batch_size,
            batch_format="arrow",
            drop_last=drop_last,
            local_shuffle_buffer_size=local_shuffle_buffer_size,
            local_shuffle_seed=local_shuffle_seed,
        ):
            yield tensors(table, dtypes, device)
