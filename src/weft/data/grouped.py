"""What `Dataset.groupby` gives: aggregates, or a function, of each group."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft.data import plan
from weft.data.aggregates import Aggregate, check_kind, parse
from weft.data.functions import Function, Placement
from weft.library.keywords import answers_attributes

if TYPE_CHECKING:
    from weft.data.dataset import Dataset


@answers_attributes(
    apply="write map_groups(function)",
    first="write map_groups(function)",
    size="write count()",
    transform="write map_groups(function)",
)
class GroupedData:
    """Groups of rows with equal keys; results come in no order.

    >>> from weft import data
    >>> trips = data.from_items([{"city": "a", "fare": 3}, {"city": "b", "fare": 5}, {"city": "a", "fare": 4}])
    >>> trips.groupby("city").sum("fare").sort("city").take_all()
    [{'city': 'a', 'fare_sum': 7}, {'city': 'b', 'fare_sum': 5}]
    """

    def __init__(self, dataset: Dataset, keys: tuple[str, ...]) -> None:
        self._dataset = dataset
        self._keys = keys

    if not TYPE_CHECKING:

        def __getitem__(self, key: object) -> Any:
            raise TypeError(f"groups have no [{key!r}]: name the columns in the call, as in mean('fare')")

    def agg(self, *aggregates: Aggregate | Mapping[str, str | Sequence[str]], **kinds: str | Sequence[str]) -> Dataset:
        """One column an aggregate, called column_kind: sum, min, max, count, mean, std, var, any, all, median,
        n_unique, list, and len (of the rows); also from a dict. Or Aggregate objects, for names and parameters of
        one's own.

        >>> from weft import data
        >>> ds = data.from_items([{"city": "Oslo", "fare": 3.0, "tip": 1}, {"city": "Oslo", "fare": 5.0, "tip": 2}])
        >>> ds.groupby("city").agg(fare=["mean", "max"], tip="sum").take()
        [{'city': 'Oslo', 'fare_mean': 4.0, 'fare_max': 5.0, 'tip_sum': 3}]
        """
        listed = [parse(given) if isinstance(given, Mapping) else [given] for given in (*aggregates, kinds)]
        chosen = tuple(aggregate for part in listed for aggregate in part)
        names = [*self._keys, *(aggregate.name for aggregate in chosen)]
        if len(set(names)) < len(names):
            raise ValueError(f"the columns of the result must have different names, but are {', '.join(names)}")
        return self._dataset._then(plan.GroupBy((self._dataset._plan,), self._keys, chosen))

    def count(self) -> Dataset:
        """How many rows each group has, in the column `count`."""
        return self.agg(Aggregate("len", None, "count"))

    def _each(self, kind: str, columns: tuple[str, ...]) -> Dataset:
        if not columns:
            raise TypeError(f"{kind}() of which columns? Name them, as in {kind}('fare')")
        return self.agg(*(Aggregate(check_kind(kind), column, f"{column}_{kind}") for column in columns))

    def sum(self, *columns: str) -> Dataset:
        """Of these columns, in each group."""
        return self._each("sum", columns)

    def mean(self, *columns: str) -> Dataset:
        """Of these columns, in each group."""
        return self._each("mean", columns)

    def min(self, *columns: str) -> Dataset:
        """Of these columns, in each group."""
        return self._each("min", columns)

    def max(self, *columns: str) -> Dataset:
        """Of these columns, in each group."""
        return self._each("max", columns)

    def std(self, *columns: str) -> Dataset:
        """Of these columns, in each group."""
        return self._each("std", columns)

    def map_groups(
        self,
        function: Callable[..., Any],
        *,
        batch_format: str = "numpy",
        fn_args: Sequence[Any] = (),
        fn_kwargs: dict[str, Any] | None = None,
        on_error: str = "raise",
        num_cpus: float = 1,
    ) -> Dataset:
        """`function` of all rows of a group, as one batch, gives a batch."""
        made = Function(
            "map_batches",
            function,
            batch_format=batch_format,
            args=tuple(fn_args),
            kwargs=dict(fn_kwargs or {}),
            on_error=on_error,
            placement=Placement(num_cpus=num_cpus),
        )
        return self._dataset._then(plan.MapGroups((self._dataset._plan,), self._keys, made))
