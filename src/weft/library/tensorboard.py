"""Event files for `tensorboard --logdir FOLDER`, written without TensorFlow, protobuf or tensorboardX.

An event file is a sequence of records: length (u64), checksum of it, bytes, checksum of them; the checksums are
CRC-32C, rotated and shifted. The bytes are a protobuf message `Event` of which three fields are needed: wall_time (1,
double), step (2, varint), and file_version (3, string) or summary (5, message). A summary is a list (1) of values with
a tag (1, string) and a simple_value (2, float). All scalars of a result are one event.
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
    records = [_record(_event(time.time(), file_version=b"brain.Event:2"))] if is_new else []
    for result in results:
        step = int(result.get("timesteps_total") or result["training_iteration"])
        scalars = [
            (key, float(value))
            for key, value in flatten(result).items()
            if isinstance(value, int | float) and key not in _SKIPPED
        ]
        records.append(_record(_event(float(result["timestamp"]), step, scalars)))
    return b"".join(records)


def _event(wall_time: float, step: int = 0, scalars: Any = (), file_version: bytes = b"") -> bytes:
    parts = [b"\x09", _DOUBLE.pack(wall_time)]
    if step:
        parts += [b"\x10", _varint(step)]
    if file_version:
        parts += [b"\x1a", _varint(len(file_version)), file_version]
    if scalars:
        summary = b"".join(_value(tag, value) for tag, value in scalars)
        parts += [b"\x2a", _varint(len(summary)), summary]
    return b"".join(parts)


_TAGS: dict[str, bytes] = {}
"""The encoded head of a value by its tag, since tags repeat with every result."""


def _value(tag: str, value: float) -> bytes:
    head = _TAGS.get(tag)
    if head is None:
        name = tag.encode()
        body = b"\x0a" + _varint(len(name)) + name + b"\x15"
        head = _TAGS[tag] = b"\x0a" + _varint(len(body) + 4) + body
    try:
        return head + _FLOAT.pack(value)
    except OverflowError:
        return head + _FLOAT.pack(float("inf") if value > 0 else float("-inf"))


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return b"".join((length, _masked_checksum(length), data, _masked_checksum(data)))


def _masked_checksum(data: bytes) -> bytes:
    checksum = crc32c(data)
    return struct.pack("<I", ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def crc32c(data: bytes) -> int:
    """CRC-32 with Castagnoli's polynomial, which zlib does not have."""
    checksum = 0xFFFFFFFF
    table = _TABLE
    for byte in data:
        checksum = table[(checksum ^ byte) & 0xFF] ^ (checksum >> 8)
    return checksum ^ 0xFFFFFFFF


def _table() -> tuple[int, ...]:
    entries = []
    for entry in range(256):
        for _ in range(8):
            entry = entry >> 1 ^ (0x82F63B78 if entry & 1 else 0)
        entries.append(entry)
    return tuple(entries)


_TABLE = _table()
