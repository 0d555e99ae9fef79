"""Where gRPC is served and which services. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

AddServicer = Callable[[Any, Any], None]
"""What protoc's plug-in makes for a service: `add_ShopServicer_to_server`."""


@dataclass(frozen=True)
class GRPCOptions:
    """A service's method is answered by the method of the same name of an application's ingress deployment."""

    servicers: tuple[AddServicer | str, ...]
    """The generated functions, or where they are: `"shop_pb2_grpc:add_ShopServicer_to_server"`."""
    host: str = "127.0.0.1"
    port: int = 9000
    """0 for any free one."""
    request_timeout_s: float = 60.0
    """How long an answer, or a stream's next message, may take; a client's own deadline may be sooner."""
    max_message_bytes: int = 64 * 1024 * 1024
    max_concurrent_rpcs: int = 10_000
    """The others are told RESOURCE_EXHAUSTED at once."""
    ssl_certfile: str = ""
    """With `ssl_keyfile`, PEM files on the front's node: then the port speaks TLS only."""
    ssl_keyfile: str = ""
    ssl_ca_certs: str = ""
    """PEM file: then clients must show a certificate that one of these authorities has signed."""

    def __post_init__(self) -> None:
        given: Any = self.servicers
        if not isinstance(given, tuple | list) or not given:
            raise ValueError(f"servicers must be a list of add_…Servicer_to_server, but got {given!r}")
        object.__setattr__(self, "servicers", tuple(given))
        check_tls(self.ssl_certfile, self.ssl_keyfile, self.ssl_ca_certs)
        for name in ("request_timeout_s", "max_message_bytes", "max_concurrent_rpcs"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, but got {getattr(self, name)}")


def check_tls(certfile: str, keyfile: str, ca_certs: str) -> None:
    """ValueError unless both of the pair are given or neither."""
    if bool(certfile) != bool(keyfile):
        raise ValueError("ssl_certfile and ssl_keyfile belong together, but only one of them is given")
    if ca_certs and not certfile:
        raise ValueError("ssl_ca_certs is for checking clients' certificates: give ssl_certfile and ssl_keyfile too")
