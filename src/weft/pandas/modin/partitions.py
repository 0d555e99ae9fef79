"""The grid of blocks that a frame is, and Modin's operations on it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from modin.config import ProgressBar
from modin.core.dataframe.pandas.partitioning.partition_manager import PandasDataframePartitionManager

from weft.pandas.modin.axis_partition import WeftColumnPartition, WeftRowPartition
from weft.pandas.modin.journal import journal
from weft.pandas.modin.partition import WeftPartition
from weft.pandas.modin.wrapper import WeftWrapper

_WITH_PROGRESS = (
    "map_partitions lazy_map_partitions map_axis_partitions _apply_func_to_list_of_partitions "
    "apply_func_to_select_indices apply_func_to_select_indices_along_full_axis apply_func_to_indices_both_axis "
    "n_ary_operation"
).split()


class WeftPartitions(PandasDataframePartitionManager):
    _partition_class = WeftPartition
    _column_partitions_class = WeftColumnPartition
    _row_partition_class = WeftRowPartition
    _execution_wrapper = WeftWrapper

    @classmethod
    def wait_partitions(cls, partitions: Any) -> None:
        WeftWrapper.wait([block for partition in partitions for block in partition.list_of_blocks])

    @classmethod
    def to_numpy(cls, partitions: Any, **kwargs: Any) -> Any:
        """One array; the blocks are converted in workers where there are several side by side."""
        if partitions.shape[1] == 1:
            blocks = [block.to_numpy(**kwargs) for block in cls.get_objects_from_partitions(partitions.flatten())]
        else:
            converted = [block.apply(_to_numpy, **kwargs).list_of_blocks[0] for block in partitions.flatten()]
            blocks = WeftWrapper.materialize(converted)
        width = partitions.shape[1]
        return np.block([blocks[start : start + width] for start in range(0, len(blocks), width)])


def _to_numpy(block: Any, **kwargs: Any) -> Any:
    return block.to_numpy(**kwargs)


def _with_progress(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(method)
    def run(*args: Any, **kwargs: Any) -> Any:
        journal.note_tasks(name.strip("_"))
        result = method(*args, **kwargs)
        if ProgressBar.get():
            _show_progress(name.strip("_"), result)
        return result

    return run


def _show_progress(name: str, partitions: Any) -> None:
    from tqdm.auto import tqdm

    refs = [ref for partition in np.asarray(partitions).flatten() for ref in partition.list_of_blocks]
    with tqdm(total=len(refs), desc=name) as bar:
        for ref in refs:
            WeftWrapper.wait(ref)
            bar.update(1)


for _name in _WITH_PROGRESS:
    _method = getattr(PandasDataframePartitionManager, _name).__func__
    setattr(WeftPartitions, _name, classmethod(_with_progress(_method, _name)))
