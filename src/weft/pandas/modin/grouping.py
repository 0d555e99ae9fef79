"""Grouping a frame by its own columns, where a block has whole rows: each block is told the names of the columns.

Modin sends the columns to group by beside each block and joins them to it, which copies the block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

REDUCTIONS = (
    "groupby_all groupby_any groupby_count groupby_max groupby_min groupby_prod groupby_sum groupby_skew".split()
)
REDUCTIONS += ["groupby_mean", "groupby_size"]


class Labels(list[Any]):
    """Names of columns. Modin takes what can be hashed for a label, pandas what is a list for several."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))


def by_own_labels(method: Callable[..., Any]) -> Callable[..., Any]:
    """A reduction of groups, given labels instead of columns where that is the same."""

    def run(self: Any, by: Any, axis: int, groupby_kwargs: Any, drop: bool = False, **kwargs: Any) -> Any:
        by = own_labels(self, by, groupby_kwargs) if drop and axis == 0 else by
        return method(self, by=by, axis=axis, groupby_kwargs=groupby_kwargs, drop=drop, **kwargs)

    run.__name__, run.__doc__ = method.__name__, method.__doc__
    return run


def own_labels(compiler: Any, by: Any, grouping: dict[str, Any]) -> Any:
    """The names of the columns in `by`, which came from this frame; `by` itself where names would not mean the same."""
    if not isinstance(by, type(compiler)) or compiler._modin_frame._partitions.shape[1] != 1:
        return by
    if grouping.get("level") is not None or not grouping.get("sort", True) or not compiler.columns.is_unique:
        return by
    names, taken = list(by.columns), set(compiler.get_index_names(0))
    if any(name not in compiler.columns or name in taken or type(name) not in (str, int) for name in names):
        return by
    return names[0] if len(names) == 1 else Labels(names)
