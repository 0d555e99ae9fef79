"""All the blocks along one axis of a frame, for functions that need a whole row or a whole column at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from modin.core.dataframe.pandas.partitioning.axis_partition import PandasDataframeAxisPartition

import weft
from weft.pandas.modin.calls import SentFunction, axis_task, lift, lift_step, send_function
from weft.pandas.modin.partition import WeftPartition
from weft.pandas.modin.wrapper import WeftWrapper

_shares_columns: ContextVar[bool] = ContextVar("_shares_columns", default=False)


@contextmanager
def sharing_columns() -> Iterator[None]:
    """Tasks submitted meanwhile may have pandas share columns between what they read and what they make. For functions
    of pandas and Modin alone: a function of the user's would see other rules of copying."""
    token = _shares_columns.set(True)
    try:
        yield
    finally:
        _shares_columns.reset(token)


class WeftAxisPartition(PandasDataframeAxisPartition):
    """Joins its blocks in one task, runs the function on the whole, and splits the result into blocks again."""

    _PARTITIONS_METADATA_LEN = 2
    partition_type = WeftPartition
    axis: int

    @property
    def list_of_blocks(self) -> list[Any]:
        return [block.for_task() for block in self.list_of_block_partitions]

    @classmethod
    def deploy_axis_func(
        cls,
        axis: int,
        func: Any,
        f_args: Any,
        f_kwargs: Any,
        num_splits: int,
        maintain_partitioning: bool,
        *partitions: Any,
        lengths: Any = None,
        max_retries: int | None = None,
        **keywords: Any,
    ) -> Any:
        return _deploy(
            PandasDataframeAxisPartition.deploy_axis_func,
            (func, f_args, f_kwargs),
            (axis, (num_splits, maintain_partitioning), partitions, {"lengths": lengths, **keywords}),
            returns=num_splits if lengths is None else len(lengths),
            max_retries=max_retries,
        )

    @classmethod
    def deploy_splitting_func(
        cls,
        axis: int,
        split_func: Any,
        f_args: Any,
        f_kwargs: Any,
        num_splits: int,
        *partitions: Any,
        extract_metadata: bool = False,
    ) -> Any:
        return _deploy(
            PandasDataframeAxisPartition.deploy_splitting_func,
            (split_func, f_args, f_kwargs),
            (axis, (num_splits,), partitions, {}),
            returns=num_splits,
            with_shapes=extract_metadata,
        )

    @classmethod
    def deploy_func_between_two_axis_partitions(
        cls,
        axis: int,
        func: Any,
        f_args: Any,
        f_kwargs: Any,
        num_splits: int,
        len_of_left: int,
        other_shape: Any,
        *partitions: Any,
        **keywords: Any,
    ) -> Any:
        return _deploy(
            PandasDataframeAxisPartition.deploy_func_between_two_axis_partitions,
            (func, f_args, f_kwargs),
            (axis, (num_splits, len_of_left, other_shape), partitions, keywords),
            returns=num_splits,
        )

    def wait(self) -> None:
        self.drain_call_queue()
        WeftWrapper.wait([block._data for block in self.list_of_block_partitions])


class WeftColumnPartition(WeftAxisPartition):
    axis = 0


class WeftRowPartition(WeftAxisPartition):
    axis = 1


def _deploy(
    deployer: Any,
    step: tuple[Any, Any, Any],
    arguments: tuple[int, tuple[Any, ...], tuple[Any, ...], dict[str, Any]],
    *,
    returns: int,
    with_shapes: bool = True,
    max_retries: int | None = None,
) -> list[Any]:
    """The refs of the parts, each followed by those of its length and width `with_shapes`."""
    function, args, function_keywords = step
    refs: list[Any] = []
    if not isinstance(function, SentFunction | weft.ObjectRef):
        function = send_function(function)
    lifted = lift_step((function, args, function_keywords), refs)
    axis, before, blocks, keywords = arguments
    task = axis_task(returns * 3 if with_shapes else returns, max_retries)
    manner = (with_shapes, _shares_columns.get())
    made = task.remote(send_function(deployer), lifted, manner, (axis, before, lift(blocks, refs), keywords), *refs)
    return made if isinstance(made, list) else [made]
