"""One HTTP request: who may ask, what for, and what the browser is told to allow.

Every path wants the token: as a cookie, which `/?token=...` sets, or as `Authorization: Bearer ...`. Reads only. Runs
on a thread per request; its head is in the socket by then (`arrivals`).

A browser is sent to a page of an attacker whose name then resolves to this machine: so who comes with a cookie or a
token in the address must have asked for this machine by an address, as `localhost`, by its name, or by one of
WEFT_DASHBOARD_NAMES. Who sends the token in a header is no browser that was led astray.
"""

from __future__ import annotations

import contextlib
import hmac
import io
import ipaddress
import json
import mimetypes
import os
import re
import socket
import urllib.parse
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler
from importlib import resources
from typing import Any

from weft.dashboard.pages import Pages

COOKIE = "weft_dashboard"
ANSWER_S = 30.0
"""So long a browser may take none of an answer."""
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Nothing but our own files is loaded or run, whatever a page is made to contain."""
_STATIC = resources.files("weft.dashboard") / "static"


TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nConnection: close\r\n"
    b"X-Content-Type-Options: nosniff\r\n\r\n"
)
"""The answer to a head that is longer than any browser's."""
MALFORMED = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\nX-Content-Type-Options: nosniff\r\n\r\n"
)
"""The answer to a head of which a proxy in front of this one might see the end elsewhere."""
_HEAD = re.compile(rb"[A-Z]+ [!-\xff]+ HTTP/1\.[01]\r\n(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\0\r\n]*\r\n)*\r\n")
"""Every line ends as it should, and every header has a name."""
NAMES_VARIABLE = "WEFT_DASHBOARD_NAMES"
_BEFORE_A_TOKEN = (b"bearer ", b"token=", COOKIE.encode() + b"=")
_MOST_TOKENS = 8
"""Of each kind in one head: a browser sends one."""
_SEARCHED_BYTES = 8192
"""Of a head: browsers' are shorter."""


def has_token(head: bytes, token: str) -> bool:
    """Whether it is in a head, before that is parsed: it says who is served first, and not what he may do."""
    head = head[:_SEARCHED_BYTES]
    expected, lower = token.encode(), head.lower()
    for mark in _BEFORE_A_TOKEN:
        at = -1
        for _ in range(_MOST_TOKENS):
            if (at := lower.find(mark, at + 1)) < 0:
                break
            given = head[at + len(mark) :][: len(expected)]
            if hmac.compare_digest(given, expected):
                return True
    return False


def make_handler(pages: Pages, token: str) -> type[Handler]:
    class Ours(Handler):
        _pages = pages
        _token = token

    return Ours


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "weft"
    sys_version = ""
    timeout = ANSWER_S
    disable_nagle_algorithm = True
    _pages: Pages
    _token: str

    def __init__(self, connection: socket.socket, address: tuple[str, int], head: bytes) -> None:
        self._head = head
        super().__init__(connection, address, None)  # type: ignore[arg-type]  # nothing of a server is used

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(io.BytesIO(self._head))

    def handle(self) -> None:
        """One request; the connection may come back for another."""
        self.close_connection = True
        if _HEAD.fullmatch(self._head):
            self.handle_one_request()
        else:
            self.wfile.write(MALFORMED)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def __getattr__(self, name: str) -> Any:
        """Every other method: to who may not ask, 401 as ever; to others, that nothing can be changed."""
        if not name.startswith("do_"):
            raise AttributeError(name)
        return self._refuse

    def _refuse(self) -> None:
        self.close_connection = True  # what it may have sent is not read
        self._with_body = True
        if self._may_ask():
            said = b"405: the dashboard only reads\n"
            self._send(405, "text/plain; charset=utf-8", said, {"Allow": "GET, HEAD", "Connection": "close"})
        else:
            self._send_401()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: paths may carry the token."""

    def _answer(self, with_body: bool) -> None:
        self._with_body = with_body
        if self.headers.get_all("Content-Length", ["0"]) != ["0"] or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # what it may have sent is not read
        try:
            url = urllib.parse.urlsplit(self.path)
            query = dict(urllib.parse.parse_qsl(url.query))
        except ValueError:
            return self._send_closing(400, "400: the address makes no sense\n")
        if self.request_version == "HTTP/1.1" and len(self.headers.get_all("Host", [])) != 1:
            self._send_closing(400, "400: a request of HTTP/1.1 names its host, once\n")
        elif url.path == "/" and self._is_token(query.get("token", "")) and not self._is_named_rightly():
            why = f"421: this is no name of this machine; set {NAMES_VARIABLE} to the names that lead here\n"
            self._send_closing(421, why)
        elif url.path == "/" and self._is_token(query.get("token", "")):
            cookie = f"{COOKIE}={self._token}; HttpOnly; SameSite=Strict; Path=/"
            self._send(303, "text/plain", b"", {"Location": "/", "Set-Cookie": cookie})
        elif not self._may_ask():
            self._send_401()
        elif url.path.startswith("/api/"):
            self._api(url.path.removeprefix("/api/"), query)
        elif url.path == "/metrics":
            self._metrics()
        else:
            self._file(url.path)

    def _may_ask(self) -> bool:
        scheme, _, given = self.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._is_token(given.strip()):
            return True
        try:
            cookie = SimpleCookie(self.headers.get("Cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return cookie is not None and self._is_token(cookie.value) and self._is_named_rightly()

    def _is_named_rightly(self) -> bool:
        """Whether the browser asked for this machine by a name that no stranger can give to it."""
        given = self.headers.get("Host", "").lower()
        try:
            host = urllib.parse.urlsplit(f"//{given}").hostname or ""
        except ValueError:
            return False
        with contextlib.suppress(ValueError):
            ipaddress.ip_address(host)
            return True
        named = os.environ.get(NAMES_VARIABLE, "").lower().split(",")
        return host in ("", "localhost", socket.gethostname().lower(), *filter(None, map(str.strip, named)))

    def _send_401(self) -> None:
        """Whoever has no token keeps no connection either."""
        hint = "401: open the address with its token, as weft.init() and `weft dashboard` print it\n"
        self._send_closing(401, hint, {"WWW-Authenticate": "Bearer"})

    def _send_closing(self, status: int, text: str, extra: dict[str, str] | None = None) -> None:
        self.close_connection = True
        self._send(status, "text/plain; charset=utf-8", text.encode(), {"Connection": "close", **(extra or {})})

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._token.encode())

    def _api(self, path: str, query: dict[str, str]) -> None:
        try:
            value = self._pages.answer(path, query)
        except LookupError as error:
            self._json(404, {"error": str(error)})
        except (ValueError, TypeError) as error:
            self._json(400, {"error": str(error)})
        except (OSError, RuntimeError, TimeoutError) as error:
            self._json(503, {"error": str(error)})
        else:
            self._json(200, value)

    def _json(self, status: int, value: Any) -> None:
        self._send(status, "application/json", json.dumps(value, default=str).encode("utf-8", "replace"))

    def _metrics(self) -> None:
        try:
            text = self._pages.metrics()
        except (OSError, RuntimeError, TimeoutError) as error:
            self._send(503, "text/plain; charset=utf-8", str(error).encode())
        else:
            self._send(200, "text/plain; version=0.0.4; charset=utf-8", text.encode())

    def _file(self, path: str) -> None:
        """Of our own; a path names a file below `static`, or nothing."""
        parts = [part for part in path.split("/") if part] or ["index.html"]
        if any(part.startswith(".") for part in parts):
            return self._send(404, "text/plain", b"404\n")
        file = _STATIC.joinpath(*parts)
        if not file.is_file():
            return self._send(404, "text/plain", b"404\n")
        kind = mimetypes.guess_type(parts[-1])[0] or "application/octet-stream"
        if kind.startswith("text/") or kind.endswith("javascript"):
            kind += "; charset=utf-8"
        keep = {"Cache-Control": "max-age=86400"} if "vendor" in parts else {}
        self._send(200, kind, file.read_bytes(), keep)

    def _send(self, status: int, kind: str, body: bytes, extra: dict[str, str] | None = None) -> None:
        self.send_response(status)
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Content-Security-Policy": _POLICY,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
            **(extra or {}),
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self._with_body:
            self.wfile.write(body)
