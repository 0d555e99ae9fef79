"""Event files for `tensorboard --logdir FOLDER`, written without TensorFlow, protobuf or tensorboardX.

An event file is a sequence of records (`records.py`). Each is a protobuf message `Event` of which three fields are
needed: wall_time (1, double), step (2, varint), and file_version (3, string) or summary (5, message). A summary is a
list (1) of values with a tag (1, string) and a simple_value (2, float). All scalars of a result are one event.
"""

from __future__ import annotations

import os
import platform
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weft.library.lookup import flatten
from weft.library.records import framed, varint

__all__ = ["EventLog", "encode_events"]

_SKIPPED = frozenset(("timestamp", "pid", "done", "training_iteration", "trial_id"))
_FLOAT = struct.Struct("<f")
_DOUBLE = struct.Struct("<d")


class EventLog:
    """One event file of one run; every result is a line of scalars at its `timesteps_total`."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        self._path = Path(folder) / f"events.out.tfevents.{int(time.time()):010d}.{platform.node()}.{os.getpid()}"

    def add(self, result: Mapping[str, Any]) -> None:
        is_new = not self._path.exists()
        with self._path.open("ab") as file:
            file.write(encode_events([{**result, "timestamp": time.time()}], is_new))


def encode_events(results: list[Mapping[str, Any]], is_new: bool) -> bytes:
    """What to append to an event file, or what a new one begins with; results have a `timestamp`."""
    records = [framed(_event(time.time(), file_version=b"brain.Event:2"))] if is_new else []
    for result in results:
        step = int(result.get("timesteps_total") or result["training_iteration"])
        scalars = [
            (key, float(value))
            for key, value in flatten(result).items()
            if isinstance(value, int | float) and key not in _SKIPPED
        ]
        records.append(framed(_event(float(result["timestamp"]), step, scalars)))
    return b"".join(records)


def _event(wall_time: float, step: int = 0, scalars: Any = (), file_version: bytes = b"") -> bytes:
    parts = [b"\x09", _DOUBLE.pack(wall_time)]
    if step:
        parts += [b"\x10", varint(step)]
    if file_version:
        parts += [b"\x1a", varint(len(file_version)), file_version]
    if scalars:
        summary = b"".join(_value(tag, value) for tag, value in scalars)
        parts += [b"\x2a", varint(len(summary)), summary]
    return b"".join(parts)


_TAGS: dict[str, bytes] = {}
"""The encoded head of a value by its tag, since tags repeat with every result."""


def _value(tag: str, value: float) -> bytes:
    head = _TAGS.get(tag)
    if head is None:
        name = tag.encode()
        body = b"\x0a" + varint(len(name)) + name + b"\x15"
        head = _TAGS[tag] = b"\x0a" + varint(len(body) + 4) + body
    try:
        return head + _FLOAT.pack(value)
    except OverflowError:
        return head + _FLOAT.pack(float("inf") if value > 0 else float("-inf"))
