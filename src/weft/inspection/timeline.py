"""`weft.timeline`: what the cluster has done lately, for Perfetto or Chrome."""

from __future__ import annotations

import json
import os
from typing import Any

from weft.engine.process.session import attached, context_state


def timeline(filename: str | os.PathLike[str] | None = None) -> list[dict[str, Any]] | None:
    """Write a trace of the session to a file, or return its events when there is no file.

    Open it at https://ui.perfetto.dev or chrome://tracing. Each process keeps its last 8,192 events (the variable
    WEFT_EVENTS, read when a node starts, sets another number, 0 for none); how many gave way before is written into
    the file, as `otherData.dropped`.

    >>> events = weft.timeline()
    >>> isinstance(events, list)
    True
    """
    made = record()
    if filename is None:
        events: list[dict[str, Any]] = made["traceEvents"]
        return events
    with open(filename, "w") as file:
        json.dump(made, file)
    return None


def record() -> dict[str, Any]:
    """The whole trace, with its `otherData`."""
    from weft.engine.cluster.client import Client
    from weft.observe.collect import Reader
    from weft.observe.trace_file import trace

    attached.ensure()
    if context_state.state.local is not None:
        raise RuntimeError("local_mode records nothing: start without it for a timeline")
    return trace(Reader(Client(context_state.state.address)).read())
