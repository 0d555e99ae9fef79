"""JSON with a record a line, in parallel. Where `nrows` asks for some rows, Modin's reader gives so many of each part:
those are read by pandas, in this process."""

from __future__ import annotations

from typing import Any

from modin.core import io as readers


class LinesDispatcher(readers.JSONDispatcher):
    @classmethod
    def _read(cls, path_or_buf: Any, **kwargs: Any) -> Any:
        if kwargs.get("nrows") is not None:
            return cls.single_worker_read(path_or_buf, reason="only some rows are asked for (nrows)", **kwargs)
        return super()._read(path_or_buf, **kwargs)
