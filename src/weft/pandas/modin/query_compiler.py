"""Modin's query compiler for frames on Weft: notes fall-backs, and says what a move to or from Weft costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas
from modin.core.dataframe.pandas.metadata import ModinIndex
from modin.core.storage_formats.base.query_compiler import BaseQueryCompiler, QCCoercionCost
from modin.core.storage_formats.pandas.query_compiler import PandasQueryCompiler
from modin.utils import try_cast_to_pandas
from pandas._libs.lib import no_default
from pandas.api.types import is_hashable

from weft.pandas.modin import column_means, group_sums, joining
from weft.pandas.modin.axis_partition import sharing_columns
from weft.pandas.modin.grouping import REDUCTIONS, Labels, by_own_labels, own_labels
from weft.pandas.modin.journal import journal
from weft.pandas.modin.late_blocks import Filled, MissingValues, is_fillable
from weft.pandas.modin.registration import NAME

_PLAIN_RESULTS = frozenset((float, int, bool, str, type(None), np.float64, np.int64, np.bool_, pandas.Series))


class WeftQueryCompiler(PandasQueryCompiler):
    _MAX_SIZE_THIS_ENGINE_CAN_HANDLE = 1 << 62
    near: pandas.DataFrame | None = None
    """A copy of the data in this process, where one was made (`near.py`)."""
    taken_from: tuple[WeftQueryCompiler, int] | None = None
    """The frame that this is a column of, and its place there."""

    def get_backend(self) -> str:
        return NAME

    @classmethod
    def _maybe_warn_on_default(cls, *, message: str = "", reason: str = "") -> None:
        if journal.note_fallback(message, reason):
            super()._maybe_warn_on_default(message=message, reason=reason)

    @classmethod
    def move_from(cls, source_qc: BaseQueryCompiler) -> WeftQueryCompiler:
        """A frame that was asked to move here does, however small it is."""
        from weft.pandas.modin.frame import WeftFrame

        moved: WeftQueryCompiler = cls.from_pandas(source_qc.to_pandas(), WeftFrame)
        return moved

    def move_to_cost(
        self, other_qc_type: type, api_cls_name: str | None, operation: str, arguments: Mapping[str, Any]
    ) -> int:
        """Where a frame of Weft meets one of pandas, that of pandas moves."""
        return int(QCCoercionCost.COST_ZERO if isinstance(self, other_qc_type) else QCCoercionCost.COST_HIGH)

    def reset_index(self, **kwargs: Any) -> WeftQueryCompiler:
        """Numbers in the place of labels that nobody has looked at: no block is touched. Modin's own way, also at the
        end of every merge, makes each block anew."""
        if not kwargs.get("drop") or kwargs.get("level") is not None or not self.lazy_row_labels:
            reset: WeftQueryCompiler = super().reset_index(**kwargs)
            return reset
        frame = self._modin_frame.copy()
        blocks = frame.blocks
        frame.set_index_cache(ModinIndex(lambda: _numbered(blocks.row_lengths()), axis=0))
        frame.synchronize_labels(axis=0)
        return type(self)(frame)

    def isna(self) -> WeftQueryCompiler:
        return type(self)(self._modin_frame.map(MissingValues(), dtypes=np.bool_))

    def notna(self) -> WeftQueryCompiler:
        return type(self)(self._modin_frame.map(MissingValues(are_missing=False), dtypes=np.bool_))

    def fillna(self, **kwargs: Any) -> WeftQueryCompiler:
        """By a number, of columns of numbers, each block by itself; else as Modin does it."""
        if not self._can_fill(kwargs):
            by_modin: WeftQueryCompiler = super().fillna(**kwargs)
            return by_modin
        return type(self)(self._modin_frame.map(Filled(float(kwargs["value"])), dtypes="copy"))

    def _can_fill(self, keywords: dict[str, Any]) -> bool:
        others = keywords.keys() - {"value", "squeeze_self", "squeeze_value"}  # axis=1 changes types
        is_plain = _is_number(keywords["value"]) and all(keywords[name] in (None, 0, no_default) for name in others)
        return is_plain and self.frame_has_materialized_dtypes and all(map(is_fillable, self.dtypes))

    def mean(self, axis: Any, **kwargs: Any) -> WeftQueryCompiler:
        if axis != 0 or not self.frame_has_materialized_dtypes or not column_means.is_possible(self.dtypes, kwargs):
            by_modin: WeftQueryCompiler = super().mean(axis, **kwargs)
            return by_modin
        means = self._modin_frame.tree_reduce(0, column_means.of_block, column_means.together, dtypes="float64")
        return type(self)(means)

    def corr(self, method: Any, min_periods: int = 1, numeric_only: bool = True) -> WeftQueryCompiler:
        """Pearson's in parallel, others by pandas. Modin would find the second way by `super(type(self), self)`, which
        is this class's parent again, for ever."""
        parallel = method == "pearson" and self.get_pandas_backend() != "pyarrow"
        way = PandasQueryCompiler if parallel else BaseQueryCompiler
        made: WeftQueryCompiler = way.corr(self, method=method, min_periods=min_periods, numeric_only=numeric_only)
        return made

    def merge(self, right: Any, **kwargs: Any) -> WeftQueryCompiler:
        """By columns of its own as `joining.py` does it, else as Modin does it, by rows of blocks; either way pandas
        shares the columns of a block with the result."""
        on = joining.keys(self, right, kwargs)
        if on is not None:
            frame = joining.merged(self._modin_frame, right._modin_frame, kwargs["how"], on)
            return type(self)(frame).reset_index(drop=True)
        with sharing_columns():
            merged: WeftQueryCompiler = super().merge(right, **kwargs)
        return merged

    def _groupby_dict_reduce(
        self,
        by: Any,
        agg_func: Any,
        axis: int,
        groupby_kwargs: Any,
        agg_args: Any,
        agg_kwargs: Any,
        drop: bool = False,
        **kwargs: Any,
    ) -> Any:
        by = own_labels(self, by, groupby_kwargs) if drop and axis == 0 else by
        is_plain = axis == 0 and not agg_args and not agg_kwargs and not kwargs
        if is_plain and self._can_sum_groups(by, agg_func, groupby_kwargs):
            return self._summed_groups(_as_list(by), agg_func, groupby_kwargs.get("dropna", True))
        return super()._groupby_dict_reduce(
            by, agg_func, axis, groupby_kwargs, agg_args, agg_kwargs, drop=drop, **kwargs
        )

    def _can_sum_groups(self, by: Any, functions: Any, grouping: dict[str, Any]) -> bool:
        if by is None or isinstance(by, PandasQueryCompiler) or not self.frame_has_materialized_dtypes:
            return False
        labels = _as_list(by)
        is_own = self._modin_frame._partitions.shape[1] == 1 and all(
            is_hashable(label) and label in self.columns for label in labels
        )
        return is_own and group_sums.is_possible(functions, self.dtypes, labels, grouping)

    def _summed_groups(self, labels: list[Any], functions: dict[Any, str], dropna: bool) -> WeftQueryCompiler:
        grid, frame = self._modin_frame._partition_mgr_cls, self._modin_frame
        partials = grid.map_partitions(
            frame._partitions, lambda block: group_sums.of_block(block, labels, functions, dropna)
        )
        made = grid.map_axis_partitions(0, partials, lambda stacked: group_sums.together(stacked, functions, dropna))
        return type(self)(type(frame)(made, columns=pandas.Index(list(functions))))

    def _callable_func(self, func: Any, axis: int, *args: Any, **kwargs: Any) -> WeftQueryCompiler:
        """A function for each row or column."""
        function = _returning_pandas(func) if callable(func) else func
        made = self._modin_frame.apply_full_axis(
            axis,
            lambda block: block.apply(function, axis=axis, *args, **kwargs),  # noqa: B026
        )
        return type(self)(made)


def _is_number(value: Any) -> bool:
    """One that a float is equal to."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return abs(int(value)) < 1 << 53
    return isinstance(value, float)


def _as_list(by: Any) -> list[Any]:
    return list(by) if isinstance(by, Labels) else [by]


def _returning_pandas(function: Any) -> Any:
    """The user's function; a frame of Modin that it returns becomes one of pandas. To ask whether it is one costs more
    than most functions, so it is not asked of what is plainly none."""

    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        return result if type(result) in _PLAIN_RESULTS else try_cast_to_pandas(result)

    call.__name__ = getattr(function, "__name__", type(function).__name__)
    return call


def _numbered(lengths: list[int]) -> tuple[pandas.Index, list[int]]:
    return pandas.RangeIndex(sum(lengths)), lengths


for _name in REDUCTIONS:
    setattr(WeftQueryCompiler, _name, by_own_labels(getattr(PandasQueryCompiler, _name)))
