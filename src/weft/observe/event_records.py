"""Events as the native core records them (`native/events.hpp`): their kinds, their layout, and reading them.

Pure. Numbers and layout are those of the C++ side; `tests/engine/test_events.py` compares the two.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

SUBMITTED, USES, RAN, WAITED, PUT, SPILLED, RESTORED, RECEIVED, SENT = range(1, 10)

TALLIES = (
    "submitted",
    "finished",
    "failed",
    "run_ns",
    "put_objects",
    "put_bytes",
    "spilled_bytes",
    "restored_bytes",
    "received_bytes",
    "sent_bytes",
)
"""Sums over all processes that a node has ever had, in the order in which the native core has them."""

STATUSES = ("ok", "failed", "retry", "cancelled", "exiting", "lost")
"""What a run ended in, by its number."""

NAME_BYTES = 56
KEPT = 8192
"""Events that are kept of a process, unless WEFT_EVENTS says otherwise; 128 bytes each."""
KEPT_VARIABLE = "WEFT_EVENTS"
FILE_BYTES = 256 << 20
"""Of what a node keeps on disk, unless WEFT_EVENTS_FILE says otherwise."""
FILE_VARIABLE = "WEFT_EVENTS_FILE"
_LAYOUT = struct.Struct(f"<qq16s16sQIBBHII{NAME_BYTES}s")
_NO_ID = bytes(16)


class Event(NamedTuple):
    """One thing that a process did. `at_ns` is on its node's monotonic clock."""

    at_ns: int
    duration_ns: int
    task: bytes
    other: bytes
    bytes: int
    pid: int
    kind: int
    status: int
    attempt: int
    amount: int
    name: str


def decode(data: bytes) -> Iterator[Event]:
    """The events in a run of bytes of the ring."""
    for *fields, name_bytes, raw in _LAYOUT.iter_unpack(data):
        name = raw[: min(name_bytes, NAME_BYTES)].decode("utf-8", "replace")
        yield Event._make((*fields, name if name_bytes <= NAME_BYTES else name.rstrip("\ufffd") + "…"))


def task_of(object_id: bytes) -> bytes:
    """The id of the task that makes an object: the same without the object's number."""
    return object_id[:12] + b"\0\0\0\0"


def is_nil(identity: bytes) -> bool:
    return identity == _NO_ID


def kept(variable: str | None) -> int:
    """Events to keep of a process, as WEFT_EVENTS says. ValueError when that is not a number from 0 to 2^20."""
    if not variable:
        return KEPT
    if not variable.isdigit() or int(variable) > 1 << 20:
        raise ValueError(f"{KEPT_VARIABLE} must be a number of events from 0 (none) to 1048576, but is {variable!r}")
    return int(variable)


def file_bytes(variable: str | None) -> int:
    """Of the file of events, as WEFT_EVENTS_FILE says. ValueError when that is not a number of bytes."""
    if not variable:
        return FILE_BYTES
    if not variable.isdigit() or int(variable) > 1 << 50:
        raise ValueError(f"{FILE_VARIABLE} must be a number of bytes (0: no file), but is {variable!r}")
    return int(variable)
