"""One line of JSON for each request that a front has answered."""

from __future__ import annotations

import time
from typing import IO

import msgspec

from weft.serve.http.exchange import Exchange

LEFT = 499
"""The status in the log when the client left before it had an answer."""


class AccessLog:
    """Appends to a file, whole lines at a time, so that several fronts may share it; they wait until `flush`."""

    def __init__(self, path: str) -> None:
        self._file: IO[bytes] = open(path, "ab", buffering=0)  # noqa: SIM115
        self._encoder = msgspec.json.Encoder()
        self._lines: list[bytes] = []

    def write(self, exchange: Exchange, duration_s: float) -> None:
        line = {
            "time": time.time(),
            "id": exchange.request_id,
            "client": exchange.connection.client[0] if exchange.connection.client else "",
            "method": exchange.head.method,
            "path": exchange.head.path,
            "route": exchange.route,
            "status": exchange.status or LEFT,
            "bytes": exchange.wrote_bytes,
            "seconds": round(duration_s, 6),
        }
        self._lines.append(self._encoder.encode(line) + b"\n")

    def flush(self) -> None:
        if self._lines:
            lines, self._lines = self._lines, []
            self._file.write(b"".join(lines))

    def close(self) -> None:
        self.flush()
        self._file.close()
