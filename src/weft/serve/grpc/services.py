"""The methods of generated services, found without the servicer that would answer them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from weft.serve.grpc.options import AddServicer

HEALTH = "/grpc.health.v1.Health/Check"
SERVING = b"\x08\x01"
"""The health protocol's answer, as its bytes."""


class Method(NamedTuple):
    """One method of a service: how its messages are read and written, and whether there are many."""

    name: str
    decode: Any
    encode: Any
    takes_stream: bool
    gives_stream: bool


class Services:
    """What the generated functions register."""

    def __init__(self, servicers: Iterable[AddServicer]) -> None:
        self._found: list[Any] = []
        for add in servicers:
            add(_Nobody(), self)

    def add_generic_rpc_handlers(self, handlers: Iterable[Any]) -> None:
        """Called by generated code, as on a server."""
        self._found.extend(handlers)

    def add_registered_method_handlers(self, service: str, handlers: Any) -> None:
        """The same methods once more, by generated code of newer versions."""

    @property
    def names(self) -> set[str]:
        return {one.service_name() for one in self._found}

    def method(self, details: Any) -> Method | None:
        """What the details of a call name, if any service has it."""
        for one in self._found:
            found = one.service(details)
            if found is not None:
                return Method(
                    details.method.rpartition("/")[2],
                    found.request_deserializer or bytes,
                    found.response_serializer or bytes,
                    found.request_streaming,
                    found.response_streaming,
                )
        return None


class _Nobody:
    """Has every method that generated code may ask a servicer for."""

    def __getattr__(self, name: str) -> Any:
        return None


def asked_service(request: bytes) -> str | None:
    """The service that a health check asks for, empty for the whole server; None if it cannot be read.

    >>> asked_service(b""), asked_service(b"\\n\\x04Shop"), asked_service(b"\\xff")
    ('', 'Shop', None)
    """
    if not request:
        return ""
    if len(request) < 2 or request[0] != 0x0A or request[1] != len(request) - 2 or request[1] > 0x7F:
        return None
    return request[2:].decode(errors="replace")
