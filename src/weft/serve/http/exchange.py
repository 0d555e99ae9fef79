"""One request of a client and the way back to it. Lives on the front's loop, until the answer is written."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from weft.serve.http import written
from weft.serve.http.bodies import refusal
from weft.serve.http.messages import Headers, HttpHead

if TYPE_CHECKING:
    from weft.serve.http.heads import Head
    from weft.serve.http.protocol import HttpProtocol
    from weft.serve.http.upload import Upload


class ClientLeft(Exception):
    """There is nobody to answer."""


class Exchange:
    """Answered once: by `respond`, or by `start`, `write` and `finish`. All of them do nothing once the client left."""

    __slots__ = (
        "_chunks",
        "_left",
        "began_s",
        "body",
        "connection",
        "deadline_s",
        "has_started",
        "head",
        "is_over",
        "keeps_alive",
        "request_id",
        "route",
        "status",
        "upload",
        "work",
        "wrote_bytes",
    )

    def __init__(self, connection: HttpProtocol, head: Head) -> None:
        self.connection = connection
        self.head = head
        self.keeps_alive = head.keeps_alive
        self.body: bytes = b""
        self.upload: Upload | None = None
        """Instead of the body, if that comes in pieces."""
        self.request_id = ""
        self.route = ""
        self.began_s = time.perf_counter()
        self.deadline_s = 0.0
        self.work: Any = None
        """What to end when the client leaves: a task or a bundled request."""
        self.status = 0
        self.wrote_bytes = 0
        self.has_started = False
        self.is_over = False
        self._chunks = False
        self._left: int | None = None

    @property
    def path(self) -> str:
        return self.head.path

    def respond(self, answer: tuple[int, Headers, bytes]) -> None:
        """The whole answer in one write."""
        if self.is_over:
            return
        first, status, headers, body = self._checked(answer)
        self.status = status
        announced = written.announced_length(headers) if self.head.method == "HEAD" and not body else None
        count = len(body) if announced is None else announced
        length = b"content-length: %d\r\n" % count if written.has_body("", status) else b""
        if not written.has_body(self.head.method, status):
            body = b""
        self.wrote_bytes = len(body)
        self.connection.write(b"".join((first, self._last_headers(), length, b"\r\n", body)))
        self._end()

    def _checked(self, answer: tuple[int, Headers, bytes]) -> tuple[bytes, int, Headers, bytes]:
        """With its first bytes; another answer if that cannot be written."""
        status, headers, body = answer
        try:
            return written.head(status, headers), status, headers, body
        except written.BadHead as error:
            print(f"weft.serve: request {self.request_id} cannot be answered: {error}")
            status, headers, body = refusal(500, "the deployment's answer is malformed")
            return written.head(status, headers), status, headers, body

    def start(self, head: HttpHead) -> None:
        """The head of an answer whose body comes in pieces."""
        if self.is_over:
            return
        first = written.head(head.status, head.headers)
        self.status = head.status
        self.has_started = True
        parts = [first, self._last_headers()]
        if written.has_body(self.head.method, head.status):
            self._left = written.announced_length(head.headers)
            if self._left is not None:
                parts.append(b"content-length: %d\r\n" % self._left)
            elif self.head.http_version == "1.1":
                self._chunks = True
                parts.append(b"transfer-encoding: chunked\r\n")
            else:
                self.keeps_alive = False
        else:
            self._left = 0
        self.connection.write(b"".join((*parts, b"\r\n")))

    def write(self, piece: bytes) -> None:
        if self.is_over or not piece:
            return
        if self._left is not None:
            piece = piece[: self._left]  # more than was announced would be read as the next answer
            self._left -= len(piece)
        self.wrote_bytes += len(piece)
        self.connection.write(written.chunk(piece) if self._chunks else piece)

    def finish(self) -> None:
        if self.is_over:
            return
        if self._chunks:
            self.connection.write(written.LAST_CHUNK)
        elif self._left and self.head.method != "HEAD":
            self.keeps_alive = False  # fewer bytes than announced: only the end of the connection says so
        self._end()

    def abort(self) -> None:
        """The answer broke off: the client sees that by the connection's end."""
        if not self.is_over:
            self.connection.abort()

    def leave(self) -> None:
        """The client is gone: what works for it is ended."""
        if self.is_over:
            return
        self.is_over = True
        if self.work is not None:
            work, self.work = self.work, None
            work()
        self.connection.app.exchange_ended(self)

    def _last_headers(self) -> bytes:
        keep = b"" if self.keeps_alive and self.head.http_version == "1.1" else _CONNECTION[self.keeps_alive]
        return b"x-request-id: %b\r\n%b%b" % (self.request_id.encode("latin-1"), self.connection.app.date_line, keep)

    def _end(self) -> None:
        self.is_over = True
        self.work = None
        self.connection.app.exchange_ended(self)
        self.connection.answered(self)


_CONNECTION = {True: b"connection: keep-alive\r\n", False: b"connection: close\r\n"}
