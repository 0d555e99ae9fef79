"""Where gRPC is served and which services. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weft.serve.front_options import check_port, check_positive, check_tls

_NUMBERS = ("request_timeout_s", "max_message_bytes", "max_concurrent_rpcs")
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
    reflection: bool = True
    """Whether clients such as grpcurl may ask which services, methods and messages there are."""
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
        check_port(self.port)
        check_tls(self.ssl_certfile, self.ssl_keyfile, self.ssl_ca_certs)
        check_positive({name: getattr(self, name) for name in _NUMBERS})
