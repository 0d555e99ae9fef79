"""Dataset: a plan that runs when its rows are asked for. Every method but the consuming ones gives a new Dataset.

Runs where data is consumed: in the driver, or in any task or actor that iterates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from weft.data import plan
from weft.data.aggregates import Aggregate
from weft.data.block import concatenate, copied
from weft.data.execute import Bundle, Execution, cluster_sizing, get, put_bundle
from weft.data.expressions import Expr, expression, named
from weft.data.functions import Function, Placement
from weft.data.iteration import Consumable
from weft.data.optimize import optimize
from weft.data.others_words import no_such_method
from weft.data.physical import Planner
from weft.data.projecting import extended, filtered, selected
from weft.data.resuming import checkpoint_of
from weft.data.schemas import common_schema, no_such_column, schema_of
from weft.data.small import NAME as SMALL
from weft.data.small import Small
from weft.data.sources.memory import BlockSource
from weft.data.sources.parquet import ParquetSource
from weft.data.statistics import Statistics
from weft.data.writing import Writable
from weft.library.checks import at_least, did_you_mean, one_of
from weft.util.html_table import html_table

if TYPE_CHECKING:
    from weft.data.grouped import GroupedData
    from weft.data.splitting import DataIterator
    from weft.data.writers import Writer

_FEW_ROWS = 5
JOINS = ("inner", "left", "right", "full", "semi", "anti")

_MAP_OPTIONS = (
    "batch_format batch_size checkpoint concurrency fn_args fn_constructor_args fn_constructor_kwargs fn_kwargs "
    "num_cpus num_gpus on_error resources"
).split()


class Dataset(Writable, Consumable):
    """Rows in columns, read and transformed by tasks, block by block.

    >>> from weft import data
    >>> trips = [{"city": "Oslo", "fare": 3.0}, {"city": "Bern", "fare": 5.0}, {"city": "Oslo", "fare": 0.0}]
    >>> ds = data.from_items(trips).filter(data.col("fare") > 0)
    >>> ds.groupby("city").agg(fare="mean").sort("city").take()
    [{'city': 'Bern', 'fare_mean': 5.0}, {'city': 'Oslo', 'fare_mean': 3.0}]
    """

    def __init__(self, node: plan.Node) -> None:
        self._plan = node
        self._statistics: Statistics | None = None

    def __repr__(self) -> str:
        return f"Dataset({self._plan.label})"

    def _repr_html_(self) -> str:
        """For notebooks: the columns, and the first rows where nothing need run for them."""
        if isinstance(self._plan, plan.Read) and isinstance(self._plan.source, BlockSource):
            kinds = self.schema()
            rows = [[row.get(name) for name in kinds.names] for row in self.take(_FEW_ROWS)]
            heads = [f"{entry.name}: {entry.type}" for entry in kinds]
            return html_table(heads, rows, repr(self), f"{self.count():,} rows")
        known = self._plan.columns
        note = "It has not run: .show() runs what the first rows need, .materialize() all of it."
        return html_table(known or [], [], repr(self), note)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self.iter_rows()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            made = self.__dict__.get("_plan")  # None while it is unpickled
            raise no_such_method(name, dir(self), made.columns or () if made else ())

        def __getitem__(self, key: object) -> Any:
            raise TypeError(
                f"a Dataset is not indexed, but got {key!r}: .select({key!r}) is a column, .take(n) are the first "
                "rows, .to_pandas() is a frame in this process"
            )

    # ---- rows and batches through users' functions --------------------------------------------------

    def map(self, function: Callable[..., dict[str, Any]], **options: Any) -> Dataset:
        """`function` of each row, a dict, gives a row. Options: those of `map_batches` but the batches'."""
        return self._mapped("map", function, options)

    def flat_map(self, function: Callable[..., Any], **options: Any) -> Dataset:
        """`function` of each row gives any number of rows."""
        return self._mapped("flat_map", function, options)

    def filter(self, condition: Expr | str | Callable[[dict[str, Any]], bool], **options: Any) -> Dataset:
        """The rows for which the condition holds: an expression, SQL, or (slower, and opaque) a function of a row.

        >>> from weft import data
        >>> ds = data.from_items([{"x": 2, "name": "ann"}, {"x": 4, "name": "bob"}, {"x": 5, "name": "abe"}])
        >>> ds.filter(data.col("x") > 3).filter("name LIKE 'a%'").take()
        [{'x': 5, 'name': 'abe'}]
        """
        if callable(condition) and not isinstance(condition, Expr):
            return self._mapped("filter", condition, options)
        return self._then(filtered(self._plan, expression(condition)))

    def map_batches(self, function: Callable[..., Any], **options: Any) -> Dataset:
        """`function` of each batch gives a batch, or yields several.

        - `batch_size`: rows, or None (the default) for whole blocks; `batch_format`: what the function gets, "numpy"
          (a dict of arrays), "pandas", "arrow", "polars", "torch" or "jax". It may return any of these.
        - `fn_args`, `fn_kwargs`: further arguments. A class is constructed once per actor, with `fn_constructor_args`
          and `fn_constructor_kwargs`; `concurrency` is how many actors there are (2 unless said).
        - `num_cpus`, `num_gpus`, `resources`: what each task or actor needs.
        - `on_error`: "raise" a RowError that names file and row, or "skip" and count.
        - `checkpoint`: a folder or URL that keeps the result of each batch, so that who begins again after a stop gets
          from there what has been made. A result is that of its rows and of the function's code and plain values; the
          function may not depend on anything else.
        """
        return self._mapped("map_batches", function, options)

    def _mapped(self, kind: str, function: Any, options: dict[str, Any]) -> Dataset:
        given = dict(options)
        is_class = isinstance(function, type)
        concurrency = given.pop("concurrency", None)
        if concurrency is not None and (not isinstance(concurrency, int) or concurrency < 1):
            raise ValueError(f"concurrency must be a positive int, but got {concurrency!r}")
        placement = Placement(
            num_cpus=given.pop("num_cpus", 1),
            num_gpus=given.pop("num_gpus", 0),
            resources=tuple(sorted((given.pop("resources", None) or {}).items())),
            actors=(concurrency or 2) if is_class else None,
        )
        folder = given.pop("checkpoint", None) if kind == "map_batches" else None
        kept = None if folder is None else checkpoint_of(str(folder), function, given)
        made = Function(
            kind,
            function,
            batch_size=given.pop("batch_size", None),
            batch_format=given.pop("batch_format", "numpy"),
            args=tuple(given.pop("fn_args", ())),
            kwargs=dict(given.pop("fn_kwargs", {})),
            constructor_args=tuple(given.pop("fn_constructor_args", ())),
            constructor_kwargs=dict(given.pop("fn_constructor_kwargs", {})),
            on_error=given.pop("on_error", "raise"),
            placement=placement,
            checkpoint=kept,
        )
        if given:
            unknown = sorted(given)
            raise TypeError(
                f"{kind}() does not know the option {', '.join(unknown)}{did_you_mean(unknown[0], _MAP_OPTIONS)}"
            )
        return self._then(plan.Map((self._plan,), made))

    # ---- columns ------------------------------------------------------------------------------------

    def select(self, *columns: str | Expr) -> Dataset:
        """These columns, by name or as expressions."""
        if not columns:
            raise ValueError("select() expects at least one column")
        return self._then(selected(self._plan, named(columns)))

    def with_column(self, name: str, value: Expr | str) -> Dataset:
        """With a column more, or in place of one, from an expression or SQL."""
        return self._then(extended(self._plan, expression(value).alias(name)))

    def drop(self, *names: str) -> Dataset:
        """Without these columns."""
        known = self._plan.schema
        missing = [name for name in names if known is not None and name not in known]
        if missing:
            raise no_such_column("drop", "the dataset", missing[0], known or ())
        return self._then(plan.Drop((self._plan,), names))

    def rename(self, mapping: dict[str, str]) -> Dataset:
        """From old names to new ones."""
        return self._then(plan.Rename((self._plan,), tuple(mapping.items())))

    # ---- the order and number of rows ---------------------------------------------------------------

    def sort(
        self, *keys: str, descending: bool | Sequence[bool] = False, nulls_last: bool | Sequence[bool] = False
    ) -> Dataset:
        """By one or several columns; nulls come first unless `nulls_last`."""
        if not keys:
            raise ValueError("sort() expects at least one column")
        downs = _one_a_key("descending", descending, keys)
        return self._then(plan.Sort((self._plan,), keys, downs, _one_a_key("nulls_last", nulls_last, keys)))

    def random_shuffle(self, *, seed: int | None = None) -> Dataset:
        """In random order, over all blocks."""
        return self._then(plan.Shuffle((self._plan,), seed))

    def repartition(self, blocks: int) -> Dataset:
        """In so many blocks of equal numbers of rows, in order."""
        at_least("blocks", blocks, 1)
        return self._then(plan.Repartition((self._plan,), blocks))

    def limit(self, rows: int) -> Dataset:
        """The first so many rows; what is behind them is not read."""
        if rows < 0:
            raise ValueError(f"rows must not be negative, but got {rows}")
        return self._then(plan.Limit((self._plan,), rows))

    # ---- several rows, several datasets -------------------------------------------------------------

    def groupby(self, *keys: str) -> GroupedData:
        """Groups of rows with equal keys: `.agg`, `.sum`, …, `.map_groups`."""
        from weft.data.grouped import GroupedData

        return GroupedData(self, keys)

    def unique(self, column: str) -> list[Any]:
        """The distinct values of a column, in no order."""
        made = self._then(plan.GroupBy((self._plan,), (column,), ()))
        return [value for block in made._blocks() if block.num_columns for value in block.column(0).to_pylist()]

    def join(
        self,
        other: Dataset,
        on: str | Sequence[str],
        *,
        right_on: str | Sequence[str] | None = None,
        how: str = "inner",
        suffix: str = "_right",
    ) -> Dataset:
        """Rows of both with equal keys. `how`: inner, left, right, full, semi or anti."""
        one_of("how", how, JOINS)
        left_keys = (on,) if isinstance(on, str) else tuple(on)
        right_keys = left_keys if right_on is None else (right_on,) if isinstance(right_on, str) else tuple(right_on)
        if len(left_keys) != len(right_keys):
            raise ValueError(f"on and right_on must have as many columns, but got {left_keys} and {right_keys}")
        return self._then(plan.Join((self._plan, other._plan), left_keys, right_keys, how, suffix))

    def union(self, *others: Dataset) -> Dataset:
        """The rows of all, one dataset after the other."""
        node = plan.Union((self._plan, *(other._plan for other in others)))
        node.check()
        return self._then(node)

    def zip(self, other: Dataset) -> Dataset:
        """Side by side with another of as many rows; columns that both have get a number behind their name."""
        return self._then(plan.Zip((self._plan, other._plan)))

    # ---- consuming ----------------------------------------------------------------------------------

    def count(self) -> int:
        """How many rows; without reading any where the source knows."""
        node = self._plan
        while isinstance(node, plan.Project | plan.Drop | plan.Rename | plan.Sort | plan.Shuffle | plan.Repartition):
            node = node.inputs[0]
        known = node.source.row_count() if isinstance(node, plan.Read) else None
        if known is not None:
            return known
        counted = self._then(plan.Count((node,)))
        counts = (block.column("rows") for block in counted._blocks() if block.num_columns)
        total = sum(rows for column in counts for rows in column.to_pylist())
        self._statistics = counted._statistics
        return int(total)

    def schema(self) -> pa.Schema:
        """Names and types of the columns; runs what the first rows need, unless the files say it."""
        if isinstance(self._plan, plan.Read) and isinstance(self._plan.source, ParquetSource):
            return self._plan.source.schema()
        for bundle in self.limit(1)._bundles():
            if len(bundle.report.schema):
                return bundle.report.schema
        return pa.schema([])

    def columns(self) -> list[str]:
        """The names of the columns; executes a part if they are not known before."""
        known = self._plan.columns
        return known if known is not None else list(self.schema().names)

    def take(self, rows: int = 20) -> list[dict[str, Any]]:
        """The first rows as dicts."""
        made = self.limit(rows)
        taken = [row for block in made._blocks() for row in block.to_pylist()]
        self._statistics = made._statistics
        return taken

    def take_all(self) -> list[dict[str, Any]]:
        """All rows, as dicts, in this process."""
        return [row for block in self._blocks() for row in block.to_pylist()]

    def take_batch(self, rows: int = 20, *, batch_format: str = "numpy") -> Any:
        """The first rows as one batch."""
        for batch in self.limit(rows).iter_batches(batch_size=rows, batch_format=batch_format):
            return batch
        raise ValueError("the dataset is empty")

    def show(self, rows: int = 20) -> None:
        """Prints the first rows."""
        for row in self.take(rows):
            print(row)

    def to_arrow(self) -> pa.Table:
        """All rows in this process; by reference while they are few, so that they can be more than the arena."""
        held, size_bytes, budget_bytes = [], 0, cluster_sizing().budget_bytes
        for block in self._blocks():
            size_bytes += block.nbytes
            held.append(block if size_bytes <= budget_bytes else copied(block))
        return concatenate(held)

    def to_pandas(self) -> Any:
        """All rows as one pandas frame in this process."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """All rows as one Polars frame in this process."""
        from weft.data.block import frame_of

        return frame_of(self.to_arrow())

    def materialize(self) -> Dataset:
        """Run now; the blocks stay in the arena for as long as the result is there."""
        bundles = list(self._bundles())
        schemas = [schema_of(bundle.report.schema) for bundle in bundles if len(bundle.report.schema)]
        kinds = common_schema(schemas, "materialize")
        source = BlockSource(
            [bundle.ref for bundle in bundles],
            [bundle.report.rows for bundle in bundles],
            [bundle.report.size_bytes for bundle in bundles],
            list(kinds),
            "materialized",
            kinds or None,
            differ=any(schema != kinds for schema in schemas),
        )
        made = Dataset(plan.Read((), source))
        made._statistics = self._statistics
        return made

    def split(self, parts: int) -> list[Dataset]:
        """So many datasets, materialised, with equal numbers of rows (but for one)."""
        from weft.data.splitting import split

        return split(self, parts)

    def streaming_split(self, parts: int, *, equal: bool = False) -> list[DataIterator]:
        """Iterators for so many workers that share one execution, an epoch at a time; they can be passed to tasks and
        actors. Who is faster gets more rows. With `equal` all get as many: of an epoch the last rows, fewer than
        `parts`, are left out where the number of rows cannot be divided; `stats()` of an iterator says how many."""
        from weft.data.splitting import streaming_split

        return streaming_split(self, parts, equal)

    # ---- figures ------------------------------------------------------------------------------------

    def stats(self) -> str:
        """Of the last execution: each stage's tasks, rows, bytes and seconds, and what was skipped."""
        return "it has not run yet" if self._statistics is None else str(self._statistics)

    @property
    def statistics(self) -> Statistics | None:
        """The figures of `stats`; they grow while it runs."""
        return self._statistics

    def explain(self) -> str:
        """The plan as it was asked for, as it was optimised, and the stages that would run."""
        best = optimize(self._plan)
        if Small(cluster_sizing()).query(best) is not None:
            stages = [f"  {SMALL}"]
        else:
            stages = [
                f"  {' | '.join(stage.name for stage in branch.stages)}"
                for branch in Planner(Execution(runs=False)).branches(best)
            ]
        return "\n".join(
            [
                "asked for:",
                _indented(plan.describe(self._plan)),
                "optimised:",
                _indented(plan.describe(best)),
                "last stages:",
                *stages,
            ]
        )

    def num_blocks(self) -> int:
        """How many blocks it executes to."""
        return sum(1 for _ in self._bundles())

    # ---- running ------------------------------------------------------------------------------------

    def _then(self, node: plan.Node) -> Dataset:
        node.schema  # noqa: B018  tells at once of a column that is not there
        return Dataset(node)

    def _executed(self, for_tasks: bool) -> Iterator[Bundle | pa.Table]:
        """What tasks made, or, of little data, this process. What is for tasks is in as many blocks as they need."""
        execution, best = Execution(), optimize(self._plan)
        self._statistics = execution.statistics
        small = Small(execution.sizing).run(best, for_tasks)
        if small is None:
            yield from execution.run(Planner(execution).branches(best))
        else:
            execution.statistics.add(SMALL, small[1])
            yield from small[0]
        execution.statistics.finish()

    def _write(self, writer: Writer) -> list[str]:
        writer.begin()
        try:
            written = self._then(plan.Write((self._plan,), writer))
            names = [name for block in written._blocks() for name in block.column("path").to_pylist()]
            self._statistics = written._statistics
            return writer.commit(names or writer.of_nothing(self._plan.schema))
        finally:
            writer.clean_up()

    def _bundles(self) -> Iterator[Bundle]:
        for made in self._executed(for_tasks=True):
            yield put_bundle(made) if isinstance(made, pa.Table) else made

    def _blocks(self) -> Iterator[pa.Table]:
        for made in self._executed(for_tasks=False):
            yield made if isinstance(made, pa.Table) else get(made.ref)

    def aggregate(self, *aggregates: Aggregate) -> dict[str, Any]:
        """Aggregates over all rows."""
        made = self._then(plan.GroupBy((self._plan,), (), aggregates))
        for row in made.take_all():
            return row
        return {aggregate.name: aggregate.of_nothing for aggregate in aggregates}

    def _one(self, kind: str, column: str) -> Any:
        return self.aggregate(Aggregate(kind, column, column))[column]

    def sum(self, column: str) -> Any:
        """Of a column, nulls left out."""
        return self._one("sum", column)

    def min(self, column: str) -> Any:
        """Of a column, nulls left out."""
        return self._one("min", column)

    def max(self, column: str) -> Any:
        """Of a column, nulls left out."""
        return self._one("max", column)

    def mean(self, column: str) -> Any:
        """Of a column, nulls left out."""
        return self._one("mean", column)

    def std(self, column: str) -> Any:
        """Of a column, nulls left out; divided by n - 1."""
        return self._one("std", column)


def _one_a_key(what: str, given: bool | Sequence[bool], keys: Sequence[str]) -> tuple[bool, ...]:
    found = (given,) * len(keys) if isinstance(given, bool) else tuple(given)
    if len(found) != len(keys):
        raise ValueError(f"{what} must have one value a key, {len(keys)}, but has {len(found)}")
    return found


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
