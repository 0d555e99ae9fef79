"""This process's metrics of user code, and sending them to the node daemon.

They are sent at most once in `PUSH_S` while they change, when the daemon asks (an endpoint is being read), and at
the process's end. Runs on any thread.
"""

from __future__ import annotations

import bisect
import contextlib
import threading
import time

import msgspec

from weft import _native
from weft.observe.user_metrics import HISTOGRAM, Series

PUSH_S = 1.0
_lock = threading.Lock()
_series: dict[tuple[str, tuple[tuple[str, str], ...]], Series] = {}
_pushed_s = 0.0
_session = 0


def add(definition: Series, tags: dict[str, str], amount: float) -> None:
    with _lock:
        _find(definition, tags).value += amount
    _push_soon()


def put(definition: Series, tags: dict[str, str], value: float) -> None:
    with _lock:
        _find(definition, tags).value = value
    _push_soon()


def observe(definition: Series, tags: dict[str, str], value: float) -> None:
    with _lock:
        one = _find(definition, tags)
        one.value += value
        one.counts[bisect.bisect_left(one.bounds, value)] += 1
    _push_soon()


def snapshot() -> list[dict[str, object]]:
    with _lock:
        return [msgspec.to_builtins(one) for one in _series.values()]


def push() -> None:
    """What is known now, to the daemon; nothing without one."""
    global _pushed_s
    from weft.engine.process.session import rpc
    from weft.engine.wire.messages import Request

    _pushed_s = time.monotonic()
    if _series and _native.is_attached():
        with contextlib.suppress(RuntimeError):  # the session is being ended
            rpc.send(Request(0, "metrics", {"series": snapshot()}))


def _find(definition: Series, tags: dict[str, str]) -> Series:
    """Its series with these tags. A new session begins at zero: its node has not seen the old ones."""
    global _session
    if _session != _native.session():
        _session = _native.session()
        _series.clear()
    key = (definition.name, tuple(sorted(tags.items())))
    if key not in _series:
        counts = [0] * (len(definition.bounds) + 1) if definition.kind == HISTOGRAM else []
        _series[key] = msgspec.structs.replace(definition, tags=dict(tags), counts=counts)
    return _series[key]


def _push_soon() -> None:
    if time.monotonic() - _pushed_s >= PUSH_S:
        push()
