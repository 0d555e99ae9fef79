"""A piece of a source that one task reads. Nothing here imports Polars: a task is given splits before it has seen to it
that Polars takes one thread."""

from __future__ import annotations

from dataclasses import dataclass

from weft.data.sizing import TARGET_BLOCK_BYTES


@dataclass(frozen=True)
class Split:
    """A piece of a source: the rows of a file from one on, or a stretch of what there is no file of."""

    path: str
    first_row: int = 0
    rows: int | None = None
    size_bytes: int = 0
    """In memory, as far as it is known; 0 if it is not."""
    sequential: bool = False
    """Whether it is read as a sequence of blocks, by `Source.blocks`."""
    block_bytes: int = TARGET_BLOCK_BYTES
    """How large these blocks should be."""
    piece: bytes = b""
    """What a library reads as this piece, pickled, where it is no path."""
