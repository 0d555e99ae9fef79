"""Modin's frame over blocks in Weft's object memory."""

from __future__ import annotations

from modin.core.dataframe.pandas.dataframe.dataframe import PandasDataframe

from weft.pandas.partitions import WeftPartitions
from weft.pandas.registration import NAME, register

# A process that is sent a frame loads this module first, and needs the backend to read it.
register()


class WeftFrame(PandasDataframe):
    _partition_mgr_cls = WeftPartitions

    @property
    def engine(self) -> str:
        return NAME

    def support_materialization_in_worker_process(self) -> bool:
        """A worker may get the blocks of a frame that it was sent: it gives its CPU back while it waits."""
        return True
