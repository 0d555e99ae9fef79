"""`ray.data` in the words of Ray 2.60: Weft's datasets with the methods, keywords and names that Ray has for them."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import weft
import weft.data
from weft.compat.ray.data import dataset
from weft.compat.ray.data.context import DataContext, ExecutionOptions, ExecutionResources
from weft.compat.ray.data.dataset import MaterializedDataset, Schema
from weft.compat.ray.data.strategies import ActorPoolStrategy, FileExtensionFilter, TaskPoolStrategy

dataset.teach()

__all__ = [
    "ActorPoolStrategy",
    "DataContext",
    "ExecutionOptions",
    "ExecutionResources",
    "FileExtensionFilter",
    "MaterializedDataset",
    "Schema",
    "TaskPoolStrategy",
    "dataset",
    "from_arrow_refs",
    "from_blocks",
    "from_pandas",
    "from_pandas_refs",
    "range",
]


def from_pandas_refs(dfs: Any) -> weft.data.Dataset:
    """Frames of pandas by their refs, a block each; they are read where they are used."""
    return _of_refs(dfs)


def from_arrow_refs(tables: Any) -> weft.data.Dataset:
    """Arrow tables by their refs, a block each."""
    return _of_refs(tables)


def from_blocks(blocks: Iterable[Any]) -> weft.data.Dataset:
    """Tables or frames, a block each."""
    return _of_refs([weft.put(block) for block in blocks])


def from_pandas(dfs: Any, override_num_blocks: int | None = None) -> weft.data.Dataset:
    """A frame, or a list of frames."""
    if isinstance(dfs, list):
        return from_blocks(dfs)
    made = weft.data.from_pandas(dfs)
    return made if override_num_blocks is None else made.repartition(override_num_blocks)


def range(
    n: int, *, override_num_blocks: int | None = None, parallelism: int = -1, **options: Any
) -> weft.data.Dataset:
    """The numbers below n, in the column `id`."""
    blocks = override_num_blocks or (parallelism if parallelism > 0 else None)
    return weft.data.range(n, blocks=blocks)


def _of_refs(refs: Any) -> weft.data.Dataset:
    given = [refs] if isinstance(refs, weft.ObjectRef) else list(refs)
    return weft.data.from_generator(*(functools.partial(_block, [ref]) for ref in given))


def _block(holder: list[Any]) -> list[Any]:
    """In the task that reads it."""
    return [weft.get(holder[0])]


def __getattr__(name: str) -> Any:
    if name == "context":
        import importlib

        return importlib.import_module("weft.compat.ray.data.context")
    try:
        return getattr(weft.data, name)
    except AttributeError as error:
        raise AttributeError(str(error).replace("weft", "ray")) from None


def __dir__() -> list[str]:
    return sorted({*__all__, *dir(weft.data)})
