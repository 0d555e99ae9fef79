"""How large a table is that an Arrow stream holds, before any of it is decompressed: a small body may hold much.

Each compressed buffer begins with its length when decompressed, and a message's metadata (a flatbuffer, in the format's
public schema) says where its buffers are. What does not fit is a ValueError or a struct.error. Runs in the replica.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

_DICTIONARY, _RECORDS = 2, 3
_HEADER_TYPE, _HEADER = 1, 2
_DICTIONARY_DATA = 1
_BUFFERS, _COMPRESSION = 2, 3
_BUFFER = struct.Struct("<qq")
_LENGTH = struct.Struct("<q")


def expanded_bytes(messages: Iterator[Any]) -> int:
    """Of all compressed buffers of pyarrow's messages."""
    return sum(_expanded(memoryview(one.metadata), one.body) for one in messages)


def _expanded(metadata: memoryview, body: Any) -> int:
    message = _Table(metadata, _unsigned(metadata, 0))
    kind = metadata[message.at(_HEADER_TYPE)] if message.at(_HEADER_TYPE) else 0
    if kind not in (_DICTIONARY, _RECORDS) or body is None:
        return 0
    batch = message.child(_HEADER)
    if kind == _DICTIONARY:
        batch = batch.child(_DICTIONARY_DATA)
    if not batch.at(_COMPRESSION):
        return 0
    total, content = 0, memoryview(body)
    for offset, length in batch.pairs(_BUFFERS):
        if length:
            if offset < 0 or length < _LENGTH.size:
                raise ValueError("a buffer does not lie in its message")
            total += max(0, _LENGTH.unpack_from(content, offset)[0])  # -1: it is not compressed after all
    return total


class _Table:
    """One of a flatbuffer's."""

    def __init__(self, data: memoryview, position: int) -> None:
        self._data = data
        self._position = position
        (back,) = struct.unpack_from("<i", data, position)
        self._fields = position - back
        if self._fields < 0:
            raise ValueError("a table does not lie in its message")

    def at(self, field: int) -> int:
        """Where a field is; 0 where it is left out."""
        (size,) = struct.unpack_from("<H", self._data, self._fields)
        place = 4 + 2 * field
        if place >= size:
            return 0
        (offset,) = struct.unpack_from("<H", self._data, self._fields + place)
        return self._position + offset if offset else 0

    def child(self, field: int) -> _Table:
        place = self.at(field)
        if not place:
            raise ValueError("a part of the message is missing")
        return _Table(self._data, place + _unsigned(self._data, place))

    def pairs(self, field: int) -> Iterator[tuple[int, int]]:
        place = self.at(field)
        if not place:
            return
        place += _unsigned(self._data, place)
        count = _unsigned(self._data, place)
        if count * _BUFFER.size > len(self._data):
            raise ValueError("a list does not lie in its message")
        for index in range(count):
            offset, length = _BUFFER.unpack_from(self._data, place + 4 + index * _BUFFER.size)
            yield offset, length


def _unsigned(data: memoryview, position: int) -> int:
    value: int = struct.unpack_from("<I", data, position)[0]
    return value
