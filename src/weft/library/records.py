"""Sequences of records as TensorFlow writes them: event files, TFRecord.

A record is its length (u64), a checksum of that, its bytes, and a checksum of them. The checksums are CRC-32C, rotated
and shifted. google-crc32c computes them where it is installed; Python takes some hundred times as long.
"""

from __future__ import annotations

import gzip
import importlib.util
import struct
from collections.abc import Callable, Iterator
from typing import IO, Any

_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")


class BrokenRecordError(ValueError):
    """Says which record of a file is broken, and how."""


def framed(data: bytes) -> bytes:
    length = _LENGTH.pack(len(data))
    return b"".join((length, _masked_checksum(length), data, _masked_checksum(data)))


def unframed(file: IO[bytes] | gzip.GzipFile) -> Iterator[bytes]:
    """The records of a file. BrokenRecordError where it is cut, or a checksum is another."""
    number = 0
    while head := file.read(12):
        if len(head) < 12 or _masked_checksum(head[:8]) != head[8:]:
            raise BrokenRecordError(f"record {number} does not begin as one: the file is cut, or is of another format")
        size = _LENGTH.unpack(head[:8])[0]
        data, checksum = file.read(size), file.read(4)
        if len(checksum) < 4:
            raise BrokenRecordError(f"record {number} is cut: of {size} bytes the file has {len(data)}")
        if _masked_checksum(data) != checksum:
            raise BrokenRecordError(f"record {number} has other bytes than its checksum says")
        yield data
        number += 1


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _masked_checksum(data: bytes) -> bytes:
    checksum = crc32c(data)
    return _CHECKSUM.pack(((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def crc32c_of_python(data: bytes) -> int:
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


def _quickest() -> Callable[[bytes], int]:
    if importlib.util.find_spec("google_crc32c") is None:
        return crc32c_of_python
    quick: Any = importlib.import_module("google_crc32c")
    made: Callable[[bytes], int] = quick.value
    return made


crc32c = _quickest()
