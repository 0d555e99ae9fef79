"""Methods of datasets in Ray's words, put onto Weft's own classes when `ray.data` is first imported.

Where Weft has a method of the same name, Ray's keywords are translated; those that tune Ray alone have no effect.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

import weft
from weft.compat.ray.data.strategies import ActorPoolStrategy
from weft.data import plan
from weft.data.dataset import Dataset
from weft.data.grouped import GroupedData
from weft.data.sources.memory import BlockSource

_FORMATS = {"pyarrow": "arrow", "default": "numpy", None: "arrow"}
_WITHOUT_EFFECT = (
    "zero_copy_batch",
    "ray_remote_args_fn",
    "udf_modifying_row_count",
    "udf_preserves_row_count",
    "memory",
    "max_concurrency",
    "prefetch_batches",
    "num_outputs_per_input",
    "scheduling_strategy",
    "max_retries",
    "retry_exceptions",
    "runtime_env",
    "can_modify_num_rows",
)
_JOINS = {
    "inner": "inner",
    "left_outer": "left",
    "right_outer": "right",
    "full_outer": "full",
    "left_semi": "semi",
    "left_anti": "anti",
}


class Schema:
    """Names and types of columns; the rest of Arrow's schema is there, too."""

    def __init__(self, base_schema: pa.Schema) -> None:
        self.base_schema = base_schema

    @property
    def names(self) -> list[str]:
        """Of the columns."""
        return list(self.base_schema.names)

    @property
    def types(self) -> list[Any]:
        """Arrow's types of the columns."""
        return list(self.base_schema.types)

    def __eq__(self, other: object) -> bool:
        return bool(self.base_schema == (other.base_schema if isinstance(other, Schema) else other))

    __hash__ = None  # type: ignore[assignment]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.base_schema)

    def __len__(self) -> int:
        return len(self.base_schema)

    def __repr__(self) -> str:
        return repr(self.base_schema)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.base_schema, name)


def is_materialized(dataset: Dataset) -> bool:
    """Whether its blocks are in memory."""
    node = dataset._plan
    return isinstance(node, plan.Read) and isinstance(node.source, BlockSource)


class _Materialized(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, Dataset) and is_materialized(value)


class MaterializedDataset(metaclass=_Materialized):
    """For `isinstance`: a dataset whose blocks are in memory."""


def teach() -> None:
    """Once a process."""
    if hasattr(Dataset, "select_columns"):
        return
    for name in ("map", "flat_map", "filter", "map_batches"):
        setattr(Dataset, name, _mapping(getattr(Dataset, name)))
    for name, method in _WRAPPED.items():
        setattr(Dataset, name, functools.partialmethod(method, getattr(Dataset, name)))
    for method in _OWN:
        setattr(Dataset, method.__name__, method)
    GroupedData.map_groups = _mapping(GroupedData.map_groups)  # type: ignore[method-assign]
    for kind in ("sum", "mean", "min", "max", "std"):
        setattr(GroupedData, kind, _aggregating(kind, getattr(GroupedData, kind)))
    GroupedData.count = _counting(GroupedData.count)  # type: ignore[method-assign]
    GroupedData.aggregate = GroupedData.agg  # type: ignore[attr-defined]


def _aggregating(kind: str, original: Callable[..., Dataset]) -> Callable[..., Dataset]:
    """Of the columns `on`, which are then called "sum(x)" and so on."""

    @functools.wraps(original)
    def method(self: GroupedData, on: Any = None, **options: Any) -> Dataset:
        columns = [on] if isinstance(on, str) else list(on or ())
        if not columns:
            columns = [name for name in self._dataset.columns() if name not in self._keys]
        return original(self, *columns).rename({f"{name}_{kind}": f"{kind}({name})" for name in columns})

    return method


def _counting(original: Callable[..., Dataset]) -> Callable[..., Dataset]:
    @functools.wraps(original)
    def method(self: GroupedData) -> Dataset:
        return original(self).rename({"count": "count()"})

    return method


def _mapping(original: Callable[..., Any]) -> Callable[..., Any]:
    """A method that runs users' functions, with Ray's options."""

    @functools.wraps(original)
    def method(self: Any, fn: Any = None, *args: Any, **options: Any) -> Any:
        if fn is None and "expr" in options:
            fn = options.pop("expr")
        return original(self, fn, *args, **translated(options))

    return method


def translated(options: dict[str, Any]) -> dict[str, Any]:
    """Options of a mapping, in Weft's words."""
    given = {name: value for name, value in options.items() if name not in _WITHOUT_EFFECT}
    if "batch_format" in given:
        given["batch_format"] = _FORMATS.get(given["batch_format"], given["batch_format"])
    if given.get("batch_size") == "default":
        del given["batch_size"]
    compute = given.pop("compute", None)
    if isinstance(compute, ActorPoolStrategy):
        given["concurrency"] = compute.actors
    if isinstance(given.get("concurrency"), tuple):
        given["concurrency"] = given["concurrency"][1]
    for name in ("concurrency", "num_cpus", "num_gpus", "fn_args", "fn_kwargs", "fn_constructor_args"):
        if name in given and given[name] is None:
            del given[name]
    return given


# ---- methods that both have, with Ray's keywords ---------------------------------------------------


def _schema(self: Dataset, original: Any, fetch_if_missing: bool = True) -> Schema:
    return Schema(original(self))


def _columns(self: Dataset, original: Any, fetch_if_missing: bool = True) -> list[str]:
    return list(original(self))


def _groupby(self: Dataset, original: Any, key: Any = None, num_partitions: int | None = None) -> Any:
    return original(self, *([key] if isinstance(key, str) else key or ()))


def _sort(self: Dataset, original: Any, key: Any, *keys: str, descending: Any = False, **options: Any) -> Dataset:
    chosen = [key] if isinstance(key, str) else list(key)
    options.pop("boundaries", None)
    made: Dataset = original(self, *chosen, *keys, descending=descending, **options)
    return made


def _repartition(self: Dataset, original: Any, num_blocks: int | None = None, **options: Any) -> Dataset:
    rows = options.get("target_num_rows_per_block")
    blocks = num_blocks or options.get("blocks") or (max(1, -(-self.count() // rows)) if rows else 1)
    made: Dataset = original(self, blocks)
    return made


def _split(self: Dataset, original: Any, n: int | None = None, **options: Any) -> list[Dataset]:
    made: list[Dataset] = original(self, n if n is not None else options["parts"])
    return made


def _streaming_split(self: Dataset, original: Any, n: int, *, equal: bool = False, **options: Any) -> Any:
    return original(self, n, equal=equal)


def _random_shuffle(self: Dataset, original: Any, *, seed: int | None = None, **options: Any) -> Dataset:
    made: Dataset = original(self, seed=seed)
    return made


def _iter_batches(self: Dataset, original: Any, **options: Any) -> Iterator[Any]:
    options.pop("prefetch_batches", None)
    if "batch_format" in options:
        options["batch_format"] = _FORMATS.get(options["batch_format"], options["batch_format"])
    made: Iterator[Any] = original(self, **options)
    return made


def _take_batch(self: Dataset, original: Any, batch_size: int = 20, *, batch_format: Any = "default") -> Any:
    return original(self, batch_size, batch_format=_FORMATS.get(batch_format, batch_format))


def _to_pandas(self: Dataset, original: Any, limit: int | None = None) -> Any:
    frame = original(self if limit is None else self.limit(limit + 1))
    if limit is not None and len(frame) > limit:
        raise ValueError(f"the dataset has more than {limit} rows: take a part of it with .limit(), or raise `limit`")
    return frame


def _join(
    self: Dataset,
    original: Any,
    ds: Dataset,
    join_type: str = "inner",
    num_partitions: int | None = None,
    **options: Any,
) -> Dataset:
    given = {"how": _JOINS.get(join_type, join_type), **options}
    for name in ("left_suffix", "partition_size_hint", "aggregator_ray_remote_args", "validate_schemas"):
        given.pop(name, None)
    if (suffix := given.pop("right_suffix", None)) is not None:
        given["suffix"] = suffix
    made: Dataset = original(self, ds, given.pop("on", ()), **given)
    return made


_WRAPPED: dict[str, Callable[..., Any]] = {
    "schema": _schema,
    "columns": _columns,
    "groupby": _groupby,
    "sort": _sort,
    "repartition": _repartition,
    "split": _split,
    "streaming_split": _streaming_split,
    "random_shuffle": _random_shuffle,
    "iter_batches": _iter_batches,
    "take_batch": _take_batch,
    "to_pandas": _to_pandas,
    "join": _join,
}


# ---- methods that only Ray has ---------------------------------------------------------------------


def select_columns(self: Dataset, cols: str | Sequence[str], **options: Any) -> Dataset:
    """These columns."""
    return self.select(*([cols] if isinstance(cols, str) else cols))


def drop_columns(self: Dataset, cols: Sequence[str], **options: Any) -> Dataset:
    """Without these columns."""
    return self.drop(*cols)


def rename_columns(self: Dataset, names: Any, **options: Any) -> Dataset:
    """By a dict from old names to new ones, or a list of all names."""
    if not isinstance(names, dict):
        names = dict(zip(self.columns(), names, strict=True))
    return self.rename(names)


class _WithColumn:
    """A batch with one column more, that the function makes of it."""

    def __init__(self, column: str, function: Callable[[Any], Any], batch_format: str) -> None:
        self.column = column
        self.function = function
        self.batch_format = batch_format

    def __call__(self, batch: Any) -> Any:
        value = self.function(batch)
        if self.batch_format == "arrow":
            return batch.append_column(self.column, value)
        if self.batch_format == "pandas":
            return batch.assign(**{self.column: value})
        return {**batch, self.column: value}


def add_column(
    self: Dataset, col: str, fn: Callable[[Any], Any], *, batch_format: str = "pandas", **options: Any
) -> Dataset:
    """With a column that the function makes of each batch."""
    chosen = _FORMATS.get(batch_format, batch_format)
    return self.map_batches(_WithColumn(col, fn, chosen).__call__, batch_format=chosen, **translated(options))


def train_test_split(
    self: Dataset, test_size: float, *, shuffle: bool = False, seed: int | None = None, stratify: str | None = None
) -> tuple[Dataset, Dataset]:
    """The first rows and the last ones; `test_size` is a share or a number of rows."""
    if stratify is not None:
        raise NotImplementedError("train_test_split(stratify=...) is not there: split by filter() on a column")
    rows = (self.random_shuffle(seed=seed) if shuffle else self).materialize()
    count = rows.count()
    tests = round(count * test_size) if isinstance(test_size, float) else test_size
    first, last = split_at_indices(rows, [count - tests])
    return first, last


def split_at_indices(self: Dataset, indices: list[int]) -> list[Dataset]:
    """Parts that begin and end at these rows."""
    table = self.to_arrow()
    bounds = [0, *indices, table.num_rows]
    return [weft.data.from_arrow(table.slice(a, b - a)) for a, b in itertools.pairwise(bounds)]


def random_sample(self: Dataset, fraction: float, *, seed: int | None = None) -> Dataset:
    """About so many of the rows."""
    return self.map_batches(_Sample(fraction, seed).__call__, batch_format="arrow")


class _Sample:
    def __init__(self, fraction: float, seed: int | None) -> None:
        self.fraction = fraction
        self.seed = seed

    def __call__(self, batch: pa.Table) -> pa.Table:
        import numpy as np

        chosen = np.random.default_rng(self.seed).random(batch.num_rows) < self.fraction
        return batch.filter(pa.array(chosen))


def to_arrow_refs(self: Dataset) -> list[Any]:
    """A ref of a table for each block."""
    return [weft.put(table) for table in self._blocks()]


def to_pandas_refs(self: Dataset) -> list[Any]:
    """A ref of a frame for each block."""
    return [weft.put(table.to_pandas()) for table in self._blocks()]


def get_internal_block_refs(self: Dataset) -> list[Any]:
    """As `to_arrow_refs`."""
    return to_arrow_refs(self)


def is_fully_executed(self: Dataset) -> bool:
    """Whether its blocks are in memory."""
    return is_materialized(self)


def fully_executed(self: Dataset) -> Dataset:
    """With its blocks in memory."""
    return self.materialize()


def size_bytes(self: Dataset) -> int:
    """Of all its blocks in memory."""
    source = self.materialize()._plan.source  # type: ignore[attr-defined]
    return sum(source.sizes)


def iterator(self: Dataset) -> Any:
    """What `iter_batches` is called on, again and again."""
    return self.streaming_split(1)[0]


_OWN = (
    select_columns,
    drop_columns,
    rename_columns,
    add_column,
    train_test_split,
    split_at_indices,
    random_sample,
    to_arrow_refs,
    to_pandas_refs,
    get_internal_block_refs,
    is_fully_executed,
    fully_executed,
    size_bytes,
    iterator,
)
