"""`ray.serve.config` of Ray 2.60: settings, with Ray's names and defaults, as Weft's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import SimpleNamespace
from typing import Any

import weft.serve
from weft.serve.config import AutoscalingConfig as WeftAutoscaling
from weft.serve.grpc.options import GRPCOptions

_WITHOUT_EFFECT = frozenset(
    "metrics_interval_s look_back_period_s smoothing_factor upscale_smoothing_factor downscale_smoothing_factor "
    "upscaling_factor downscaling_factor downscale_to_zero_delay_s aggregation_function "
    "prometheus_metrics prometheus_host".split()
)
"""Of autoscaling: they tune how Ray measures."""
_POLICY_REFUSED = (
    "Weft takes no autoscaling policy of Ray's: give a function of a weft.serve.ScalingView to "
    "weft.serve.AutoscalingConfig(policy=...)"
)


class AutoscalingContext(SimpleNamespace):
    """What a policy of one's own is given: for annotations and tests of policies, since Weft calls none."""


@dataclass(frozen=True)
class AutoscalingPolicy:
    """Refused where a deployment is given one."""

    policy_function: Any = None
    policy_kwargs: Mapping[str, Any] = field(default_factory=dict)


class ProxyLocation(str, Enum):
    Disabled = "Disabled"
    HeadOnly = "HeadOnly"
    EveryNode = "EveryNode"


@dataclass(frozen=True)
class HTTPOptions:
    """Where HTTP is served. What only tunes Ray's proxies is not here and is taken without effect."""

    host: str = "127.0.0.1"
    port: int = 8000
    request_timeout_s: float | None = None
    keep_alive_timeout_s: float = 5.0
    ssl_keyfile: str | None = None
    ssl_certfile: str | None = None
    ssl_ca_certs: str | None = None
    root_path: str = ""
    location: Any = None
    num_cpus: float = 0
    middlewares: Any = ()
    root_url: str = ""
    ssl_keyfile_password: str | None = None

    def as_wefts(self, location: str) -> weft.serve.HTTPOptions:
        """The same for `weft.serve.start`; without a limit an answer may take a day."""
        if self.root_path or self.middlewares:
            raise NotImplementedError(
                "Weft serves no root_path and no middlewares: give the app those, by serve.ingress"
            )
        return weft.serve.HTTPOptions(
            host=self.host,
            port=self.port,
            location=location,
            request_timeout_s=self.request_timeout_s or 86400.0,
            keep_alive_s=self.keep_alive_timeout_s,
            ssl_keyfile=self.ssl_keyfile or "",
            ssl_certfile=self.ssl_certfile or "",
            ssl_ca_certs=self.ssl_ca_certs or "",
        )


@dataclass(frozen=True)
class gRPCOptions:
    port: int = 9000
    grpc_servicer_functions: list[Any] = field(default_factory=list)
    request_timeout_s: float | None = None

    def as_wefts(self) -> GRPCOptions:
        """The same for `weft.serve.start_grpc`. Ray writes places with a dot where Weft has a colon."""
        placed = [":".join(one.rsplit(".", 1)) if isinstance(one, str) else one for one in self.grpc_servicer_functions]
        return GRPCOptions(tuple(placed), port=self.port, request_timeout_s=self.request_timeout_s or 86400.0)


@dataclass(frozen=True)
class AutoscalingConfig(WeftAutoscaling):
    """Weft's, with Ray's delays: half a minute before more replicas, ten before fewer."""

    upscale_delay_s: float = 30.0
    downscale_delay_s: float = 600.0

    def __init__(self, **given: Any) -> None:
        if given.pop("policy", None) is not None:
            raise NotImplementedError(_POLICY_REFUSED)
        known = {name: value for name, value in given.items() if name not in _WITHOUT_EFFECT}
        made = {"upscale_delay_s": 30.0, "downscale_delay_s": 600.0, **known}
        made["target_ongoing_requests"] = made.get("target_ongoing_requests") or 2.0
        plain = WeftAutoscaling(**made)
        for name, value in vars(plain).items():
            object.__setattr__(self, name, value)


def autoscaling(given: Any) -> Any:
    """A dict or a config as Weft's; None stays."""
    return AutoscalingConfig(**given) if isinstance(given, Mapping) else given
