"""What a front and a replica say to each other, how it is served, and which application a path belongs to. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeVar

from weft.library.checks import at_least, one_of
from weft.library.keywords import answers_keywords
from weft.serve.front_options import check_port, check_positive, check_tls

CALL = "__http_call__"
"""The method of a replica that answers a request as a whole."""
APP = "__http_app__"
"""The method that has an ASGI app answer: an answer whose body is None comes in pieces, by `GO_ON`."""
GO_ON = "__http_go_on__"
"""Yields as `STREAM` does, of the answer that `APP` has begun under the name of this inbox. Never refused."""
STREAM = "__http_stream__"
"""The method that yields an `HttpHead`, then pieces of the body."""
SOCKET = "__http_socket__"
"""The method that yields the messages of a WebSocket."""
HTTP_METHODS = frozenset((CALL, APP, GO_ON, STREAM, SOCKET))

Headers = tuple[tuple[bytes, bytes], ...]
Route = TypeVar("Route")


class Kind(Enum):
    """How a deployment answers HTTP."""

    WHOLE = "whole"
    PIECES = "pieces"
    APP = "app"
    """An ASGI app: in pieces, and it may read in pieces and talk over WebSockets."""


def header_of(headers: Headers, name: bytes) -> str:
    """The first of the name, in lower case; empty if there is none."""
    for key, value in headers:
        if key == name:
            return value.decode("latin-1")
    return ""


class HttpRequest(NamedTuple):
    method: str
    path: str
    root_path: str
    query: bytes
    headers: Headers
    body: bytes
    http_version: str
    scheme: str
    client: tuple[str, int] | None
    server: tuple[str, int] | None
    inbox: str = ""
    """Where the replica gets what the client sends later."""
    is_body_in_pieces: bool = False
    """Then they come to the inbox, each with whether there are more."""

    def header(self, name: bytes) -> str:
        """The first of the name, in lower case; empty if there is none."""
        return header_of(self.headers, name)


class HttpHead(NamedTuple):
    status: int
    headers: Headers


class HttpAnswer(NamedTuple):
    status: int
    headers: Headers
    body: bytes


@answers_keywords()
@dataclass(frozen=True)
class HTTPOptions:
    """Where the front listens and what it lets through.

    >>> HTTPOptions(port=8080, request_timeout_s=5).host
    '127.0.0.1'
    """

    host: str = "127.0.0.1"
    port: int = 8000
    """0 for any free one."""
    workers: int = 1
    """How many fronts listen there, on each node; the kernel shares connections out among them."""
    location: str = "here"
    """Which nodes have fronts: "here" the one that `start` was called on, "every_node" all that there are then."""
    request_timeout_s: float = 60.0
    """How long an answer, or a stream's next piece, may take: then 504."""
    head_timeout_s: float = 10.0
    """How long a client may take to send a request's head: then 408."""
    body_timeout_s: float = 30.0
    """How long a client may take to send head and body: then 408."""
    send_timeout_s: float = 30.0
    """How long a client may leave an answer unread: then its connection is cut."""
    max_head_bytes: int = 64 * 1024
    max_body_bytes: int = 64 * 1024 * 1024
    max_connections: int = 10_000
    retry_after_s: int = 1
    """What a client is told with a 503."""
    keep_alive_s: float = 5.0
    drain_delay_s: float = 0.0
    """When fronts are to end: so long they go on and only `/-/readyz` says 503, for who sends them requests."""
    drain_timeout_s: float = 20.0
    """So long after that what is under way may take."""
    access_log: str = ""
    """A file on the front's node for a line of JSON a request; none if empty."""
    websocket_origins: tuple[str, ...] = ()
    """Sites beside the server's own whose pages may open WebSockets, such as "https://shop.example"; "*": all."""
    ssl_certfile: str = ""
    """With `ssl_keyfile`, PEM files on the fronts' nodes: then the port speaks TLS only. Files that are replaced are
    used for the connections that come then."""
    ssl_keyfile: str = ""
    ssl_ca_certs: str = ""
    """PEM file: then clients must show a certificate that one of these authorities has signed."""

    def __post_init__(self) -> None:
        check_port(self.port)
        one_of("location", self.location, ("here", "every_node"))
        check_tls(self.ssl_certfile, self.ssl_keyfile, self.ssl_ca_certs)
        files = ("access_log", "ssl_certfile", "ssl_keyfile", "ssl_ca_certs")
        others = ("host", "port", "location", "retry_after_s", "drain_delay_s", "websocket_origins", *files)
        at_least("drain_delay_s", self.drain_delay_s, 0)
        check_positive({name: value for name, value in vars(self).items() if name not in others})

    @property
    def scheme(self) -> str:
        """Of the addresses."""
        return "https" if self.ssl_certfile else "http"


def find_route(routes: Mapping[str, Route], path: str) -> tuple[str, Route] | None:
    """The longest prefix that the path lies under.

    >>> find_route({"/": 1, "/a": 2}, "/a/b")
    ('/a', 2)
    >>> find_route({"/a": 2}, "/ab") is None
    True
    """
    prefix = path
    while prefix:
        if prefix in routes:
            return prefix, routes[prefix]
        prefix = prefix.rpartition("/")[0]
    return ("/", routes["/"]) if "/" in routes else None
