"""Answers as the bytes of HTTP/1.1. Pure."""

from __future__ import annotations

import http
from functools import lru_cache

from weft.serve.http.messages import Headers

OURS = frozenset((b"connection", b"content-length", b"date", b"keep-alive", b"transfer-encoding"))
"""Headers that the connection decides."""
_BODILESS = frozenset((204, 304))
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


class BadHead(ValueError):
    """The deployment's answer cannot be written as a head of HTTP/1.1."""


@lru_cache(1024)
def head(status: int, headers: Headers) -> bytes:
    """The status line and the headers, without the ones that the connection decides and without the empty line.

    >>> head(200, ((b"content-type", b"text/plain"), (b"content-length", b"7")))
    b'HTTP/1.1 200 OK\\r\\ncontent-type: text/plain\\r\\n'
    """
    if not 200 <= status <= 999:
        raise BadHead(f"a status must be from 200 to 999, but got {status}")
    lines = [b"HTTP/1.1 %d %s" % (status, _phrase(status))]
    for name, value in headers:
        if not name or any(mark in name + value for mark in (b"\r", b"\n", b"\0")) or b":" in name or b" " in name:
            raise BadHead(f"a header is malformed: {name!r}")
        if name.lower() not in OURS:
            lines.append(name + b": " + value)
    return b"\r\n".join(lines) + b"\r\n"


def _phrase(status: int) -> bytes:
    try:
        return http.HTTPStatus(status).phrase.encode()
    except ValueError:
        return b""


def has_body(method: str, status: int) -> bool:
    return method != "HEAD" and status not in _BODILESS


def announced_length(headers: Headers) -> int | None:
    """What the deployment says its body has, for an answer in pieces."""
    found = next((value for name, value in headers if name.lower() == b"content-length"), None)
    return int(found) if found is not None and found.isdigit() else None


def chunk(piece: bytes) -> bytes:
    """
    >>> chunk(b"hello")
    b'5\\r\\nhello\\r\\n'
    """
    return b"%x\r\n%b\r\n" % (len(piece), piece)
