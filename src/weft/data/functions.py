"""Users' functions over rows and batches: how they are called, and how their errors are told. Runs in workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from weft.data import block as blocks
from weft.data.errors import DataError, RowError
from weft.data.resuming import Checkpoint
from weft.data.running import Running
from weft.library.checks import at_least, one_of

KINDS = ("map", "flat_map", "filter", "map_batches")


@dataclass(frozen=True)
class Placement:
    """What a stage's tasks or actors need. `actors` is how many there are: (least, most); None for tasks."""

    num_cpus: float = 1
    num_gpus: float = 0
    resources: tuple[tuple[str, float], ...] = ()
    actors: int | None = None

    def options(self) -> dict[str, Any]:
        chosen: dict[str, Any] = {"num_cpus": self.num_cpus}
        if self.num_gpus:
            chosen["num_gpus"] = self.num_gpus
        if self.resources:
            chosen["resources"] = dict(self.resources)
        return chosen


@dataclass(frozen=True)
class Function:
    """A user's function or class, and how it is to be called."""

    kind: str
    callee: Any
    batch_size: int | None = None
    batch_format: str = "numpy"
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    constructor_args: tuple[Any, ...] = ()
    constructor_kwargs: dict[str, Any] = field(default_factory=dict)
    on_error: str = "raise"
    placement: Placement = Placement()
    checkpoint: Checkpoint | None = None

    def __post_init__(self) -> None:
        one_of("on_error", self.on_error, ("raise", "skip"))
        if self.batch_size is not None:
            at_least("batch_size", self.batch_size, 1)
        if not callable(self.callee):
            raise TypeError(f"{self.kind}() expects a function or a class with __call__, but got {self.callee!r}")
        blocks.check_batch_format(self.batch_format)

    def __str__(self) -> str:
        name = getattr(self.callee, "__name__", type(self.callee).__name__)
        return f"{self.kind}({name})"

    @property
    def is_class(self) -> bool:
        return isinstance(self.callee, type)

    def make(self) -> Callable[..., Any]:
        """What is called: the function, or an instance of the class."""
        if not self.is_class:
            called: Callable[..., Any] = self.callee
            return called
        instance: Callable[..., Any] = self.callee(*self.constructor_args, **self.constructor_kwargs)
        return instance


@dataclass
class FunctionOp:
    """A function as a step of a stage; makes its instance once per process."""

    function: Function

    def __str__(self) -> str:
        return str(self.function)

    @property
    def moves_rows(self) -> bool:
        return self.function.kind != "map"

    def apply(self, block: pa.Table, running: Running) -> Iterator[pa.Table]:
        if block.num_rows == 0:  # its columns would not be those that the function makes, unless it only chooses
            yield from [block] if self.function.kind == "filter" else []
            return
        called = running.instance_of(self.function)
        if self.function.kind == "map_batches":
            yield from self._batches(block, called, running)
        else:
            yield self._rows(block, called, running)

    def _batches(self, block: pa.Table, called: Callable[..., Any], running: Running) -> Iterator[pa.Table]:
        size, kept = self.function.batch_size or block.num_rows, self.function.checkpoint
        for start in range(0, block.num_rows, size):
            rows = block.slice(start, size)
            make = partial(self._results, blocks.to_batch(rows, self.function.batch_format), called)
            try:
                yield from make() if kept is None else [kept.results(rows, make)]
            except blocks.MixedTypesError as error:
                self._failed(error, running, start, min(size, block.num_rows - start), error.column)
            except (Exception, SystemExit) as error:
                self._failed(error, running, start, min(size, block.num_rows - start), None)

    def _results(self, batch: Any, called: Callable[..., Any]) -> Iterator[pa.Table]:
        yield from _blocks_of(called(batch, *self.function.args, **self.function.kwargs), str(self))

    def _rows(self, block: pa.Table, called: Callable[..., Any], running: Running) -> pa.Table:
        results: list[Any] = []
        sources: list[int] = []
        kind, args, kwargs = self.function.kind, self.function.args, self.function.kwargs
        keep = np.zeros(block.num_rows, bool) if kind == "filter" else None
        for number, row in enumerate(_dictionaries(block)):
            try:
                result = called(row, *args, **kwargs)
                if keep is not None:
                    keep[number] = bool(result)
                    continue
                made = [result] if kind == "map" else list(result)
                for item in made:
                    if not isinstance(item, dict):
                        raise TypeError(f"must give a dict a row, but gave a {type(item).__name__}: {item!r}")
            except (Exception, SystemExit) as error:
                self._failed(error, running, number, 1, error.column if isinstance(error, _NoSuchColumn) else None)
                continue
            results.extend(made)
            sources.extend([number] * len(made))
        if keep is not None:
            return blocks.compact(block.filter(pa.array(keep)))
        try:
            return blocks.from_rows(results)
        except blocks.MixedTypesError as error:
            raise running.row_error(str(self), sources[error.row], error.column, error.reason) from None

    def _failed(self, error: BaseException, running: Running, row: int, rows: int, column: str | None) -> None:
        if isinstance(error, DataError):
            raise error
        if self.function.on_error == "skip":
            running.skip(str(self), rows)
            return
        reason = error.reason if isinstance(error, _NoSuchColumn) else f"{type(error).__name__}: {error}"
        wrapped: RowError = running.row_error(str(self), row, column, reason, rows)
        raise wrapped from error


class _NoSuchColumn(KeyError):
    """A KeyError of the row itself, which one of a dict of the function's own is not."""

    def __init__(self, column: Any, there_are: Iterable[str]) -> None:
        super().__init__(column)
        self.column = column
        self.reason = f"there is no such column. There are: {', '.join(there_are)}"


class _Row(dict[str, Any]):
    def __missing__(self, column: Any) -> Any:
        raise _NoSuchColumn(column, self)

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


def _dictionaries(block: pa.Table) -> Iterator[dict[str, Any]]:
    """The rows; columns of arrays as arrays, others as Python's own values."""
    columns = []
    for name in block.column_names:
        column = block.column(name)
        tensor = pa.types.is_fixed_size_list(column.type) and column.null_count == 0
        columns.append(list(blocks.to_array(column)) if tensor else column.to_pylist())
    names = block.column_names
    if not names:
        return
    for values in zip(*columns, strict=True):
        yield _Row(zip(names, values, strict=True))


def _blocks_of(result: Any, name: str) -> Iterator[pa.Table]:
    """A batch, or each of a generator's."""
    if hasattr(result, "__next__"):
        for item in result:
            yield blocks.from_batch(item, f"what {name} yields")
    else:
        yield blocks.from_batch(result, f"what {name} returns")
