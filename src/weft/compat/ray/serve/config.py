"""`ray.serve.config` of Ray 2.60: settings, with Ray's names and defaults, as Weft's."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
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


class AutoscalingContext(SimpleNamespace):
    """What a policy of one's own is given. Weft gathers no metrics from replicas: `aggregated_metrics` and
    `raw_metrics` are empty."""


@dataclass(frozen=True)
class AutoscalingPolicy:
    """A function of an `AutoscalingContext` that returns (replicas, state), or a class of such; or its place,
    "module:name"."""

    policy_function: Any
    policy_kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.policy_function, str):
            object.__setattr__(self, "policy_function", pkgutil.resolve_name(self.policy_function))
        if not callable(self.policy_function):
            raise TypeError(f"policy_function must be a function, a class or its place, got {self.policy_function!r}")

    def get_policy(self) -> Any:
        """What is called with the context."""
        if isinstance(self.policy_function, type):
            return self.policy_function(**self.policy_kwargs)
        return partial(self.policy_function, **self.policy_kwargs) if self.policy_kwargs else self.policy_function


class _PolicyOfRay:
    """Such a policy as a function of a `weft.serve.ScalingView`; made, and its state kept, where it is called."""

    def __init__(self, policy: AutoscalingPolicy, config: Mapping[str, Any]) -> None:
        self._policy = policy
        self._config = dict(config)
        self._made: Any = None
        self._state: Any = {}

    def __call__(self, view: weft.serve.ScalingView) -> float:
        if self._made is None:
            self._made = self._policy.get_policy()
        count, self._state = self._made(self._context(view))
        return float(count)

    def _context(self, view: weft.serve.ScalingView) -> AutoscalingContext:
        return AutoscalingContext(
            deployment_id=None,
            deployment_name=None,
            app_name=None,
            current_num_replicas=view.replicas,
            target_num_replicas=view.replicas,
            running_replicas=[],
            total_num_requests=view.ongoing + view.waiting,
            total_queued_requests=view.waiting,
            aggregated_metrics={},
            raw_metrics={},
            capacity_adjusted_min_replicas=self._config.get("min_replicas", 1),
            capacity_adjusted_max_replicas=self._config.get("max_replicas", 1),
            policy_state=self._state,
            last_scale_up_time=None,
            last_scale_down_time=None,
            current_time=view.time_s,
            config=SimpleNamespace(**self._config),
            total_pending_async_requests=0,
        )


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
        policy = given.pop("policy", None)
        known = {name: value for name, value in given.items() if name not in _WITHOUT_EFFECT}
        made = {"upscale_delay_s": 30.0, "downscale_delay_s": 600.0, **known}
        if policy is None:
            made["target_ongoing_requests"] = made.get("target_ongoing_requests") or 2.0
        else:
            made.pop("target_ongoing_requests", None)
            chosen = AutoscalingPolicy(**policy) if isinstance(policy, Mapping) else policy
            made["policy"] = _PolicyOfRay(chosen, known)
        plain = WeftAutoscaling(**made)
        for name, value in vars(plain).items():
            object.__setattr__(self, name, value)


def autoscaling(given: Any) -> Any:
    """A dict or a config as Weft's; None stays."""
    return AutoscalingConfig(**given) if isinstance(given, Mapping) else given
