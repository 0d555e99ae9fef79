"""Heads of requests, parsed once: a client that keeps its connection sends the same bytes again and again. Pure."""

from __future__ import annotations

import urllib.parse
from typing import Any

from weft.serve.http.messages import Headers

MOST_REMEMBERED = 256
LONGEST_REMEMBERED_BYTES = 2048
_END = b"\r\n\r\n"
_NOTED = frozenset(
    b"content-length expect serve-model-id serve-session-id transfer-encoding upgrade x-request-id".split()
)
_OF_ONE_REQUEST = frozenset((b"expect", b"transfer-encoding", b"upgrade", b"x-request-id"))
"""A head that has one of these is not remembered."""


class Head:
    """A request's first line and headers; the same object for requests whose heads are the same bytes."""

    __slots__ = ("fields", "headers", "http_version", "keeps_alive", "method", "noted", "path", "query")

    def __init__(
        self,
        method: str,
        path: str,
        query: bytes,
        headers: Headers,
        http_version: str,
        keeps_alive: bool,
        scheme: str = "http",
    ) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        self.http_version = http_version
        self.keeps_alive = keeps_alive
        self.noted = {name: value for name, value in headers if name in _NOTED}
        """The headers that the front itself looks at."""
        self.fields: tuple[Any, ...] = (method, path, query, headers, scheme)
        """What a replica is told of it; one object, so that a bundle has it once."""

    @property
    def body_bytes(self) -> int:
        """As announced; 0 if it is not, or cannot be read."""
        announced = self.noted.get(b"content-length", b"0")
        return int(announced) if announced.isdigit() and len(announced) < 20 else 0


def unquoted(path: bytes) -> str:
    """
    >>> unquoted(b"/a%20b")
    '/a b'
    """
    text = path.decode("latin-1")
    return urllib.parse.unquote(text) if "%" in text else text


class Heads:
    """Those that came last, by their bytes."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[Head, int]] = {}

    def find(self, data: bytes) -> tuple[Head, bytes] | None:
        """(head, body) if the data is exactly one request whose head is known."""
        known = self._known.get(data)
        if known is not None:
            return (known[0], b"") if not known[1] else None
        end = data.find(_END, 0, LONGEST_REMEMBERED_BYTES) + 4
        if end < 4 or end == len(data):
            return None
        known = self._known.get(data[:end])
        return (known[0], data[end:]) if known is not None and known[1] == len(data) - end else None

    def remember(self, data: bytes, head: Head, body: bytes) -> None:
        """The data was parsed as this one request."""
        end = data.find(_END, 0, LONGEST_REMEMBERED_BYTES) + 4
        if end < 4 or data[end:] != body or len(body) != head.body_bytes:
            return
        if not head.keeps_alive or not _OF_ONE_REQUEST.isdisjoint(head.noted):
            return
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        self._known[data[:end]] = (head, len(body))
