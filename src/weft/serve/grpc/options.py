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

    def __post_init__(self) -> None:
        given: Any = self.servicers
        if not isinstance(given, tuple | list) or not given:
            raise ValueError(f"servicers must be a list of add_…Servicer_to_server, but got {given!r}")
        object.__setattr__(self, "servicers", tuple(given))
        for name in ("request_timeout_s", "max_message_bytes", "max_concurrent_rpcs"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, but got {getattr(self, name)}")
