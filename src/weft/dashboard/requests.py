"""One HTTP request: who may ask, what for, and what the browser is told to allow.

Every path wants the token: as a cookie, which `/?token=...` sets, or as `Authorization: Bearer ...`. Reads only. Runs
on a thread a connection.
"""

from __future__ import annotations

import hmac
import json
import mimetypes
import urllib.parse
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler
from importlib import resources
from typing import Any

from weft.dashboard.pages import Pages

COOKIE = "weft_dashboard"
KEEP_ALIVE_S = 30.0
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Nothing but our own files is loaded or run, whatever a page is made to contain."""
_STATIC = resources.files("weft.dashboard") / "static"


def make_handler(pages: Pages, token: str) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        _pages = pages
        _token = token

    return Handler


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "weft"
    sys_version = ""
    timeout = KEEP_ALIVE_S
    _pages: Pages
    _token: str

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
            self._send_401({"Connection": "close"})

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: paths may carry the token."""

    def _answer(self, with_body: bool) -> None:
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        self._with_body = with_body
        if url.path == "/" and self._is_token(query.get("token", "")):
            cookie = f"{COOKIE}={self._token}; HttpOnly; SameSite=Strict; Path=/"
            self._send(303, "text/plain", b"", {"Location": "/", "Set-Cookie": cookie})
        elif not self._may_ask():
            self._send_401({})
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
        return cookie is not None and self._is_token(cookie.value)

    def _send_401(self, extra: dict[str, str]) -> None:
        hint = "401: open the address with its token, as weft.init() and `weft dashboard` print it\n"
        self._send(401, "text/plain; charset=utf-8", hint.encode(), {"WWW-Authenticate": "Bearer", **extra})

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
