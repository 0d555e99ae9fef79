"""What tests of the dashboard share."""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.parse
from collections.abc import Callable
from typing import Any, TypeVar

import psutil

from waiting import those

T = TypeVar("T")


class Site:
    """The dashboard of the session that runs, as a browser or Prometheus would ask it."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        self.host, self.token = parts.netloc, urllib.parse.parse_qs(parts.query)["token"][0]

    def ask(self, path: str, method: str = "GET", **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPConnection(self.host, timeout=60)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer, answer.read()
        finally:
            connection.close()

    def get(self, path: str) -> bytes:
        answer, body = self.ask(path, Authorization=f"Bearer {self.token}")
        assert answer.status == 200, (path, answer.status, body[:300])
        return body

    def api(self, path: str) -> Any:
        return json.loads(self.get(f"/api/{path}"))


def server_process() -> psutil.Process:
    children = psutil.Process().children(recursive=True)
    (server,) = those(children, lambda child: "weft.dashboard" in " ".join(child.cmdline()))
    return server


def eventually(look: Callable[[], T | None]) -> T:
    """What it returns once that is not None; the server reads events twice a second."""
    deadline = time.monotonic() + 30
    tick = threading.Event()
    while (found := look()) is None:
        assert time.monotonic() < deadline, "it does not come"
        tick.wait(0.05)
    return found
