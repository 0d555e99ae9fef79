"""`@serve.deployment` with the options of Ray 2.60. Over HTTP `__call__` gets Starlette's Request, as in Ray."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import weft.serve
from weft.compat.ray.serve import answers
from weft.compat.ray.serve.config import AutoscalingConfig, autoscaling
from weft.serve.http.answering import INGRESS

_WITHOUT_EFFECT = frozenset(
    "graceful_shutdown_wait_loop_s logging_config version "
    "request_routing_stats_period_s request_routing_stats_timeout_s".split()
)
_REFUSED = {
    "placement_group_bundle_label_selector": "the groups of replicas have no labels: give ray_actor_options one",
    "request_router_config": "requests go to the replica with the fewest, and there is no other router",
    "gang_scheduling_config": "replicas start one by one",
    "deployment_actors": "make the actors in the constructor, with get_if_exists=True",
    "backpressure_config": "max_queued_requests bounds what waits, and clients are told 503",
}


@dataclass(frozen=True)
class Deployment(weft.serve.Deployment):
    """Weft's, with Ray's options."""

    def options(self, *, name: str | None = None, **changes: Any) -> Deployment:
        """The same with other settings."""
        changed = super().options(name=name, **_translated(changes))
        return replace(self, name=changed.name, config=changed.config)

    @property
    def func_or_class(self) -> Any:
        """What was decorated."""
        return getattr(self.target, "_of_ray", self.target)

    @property
    def num_replicas(self) -> int:
        return self.config.num_replicas

    @property
    def user_config(self) -> Any:
        return self.config.user_config


def deployment(_func_or_class: Any = None, *, name: str | None = None, **options: Any) -> Any:
    """Make a deployment of a class or a function."""

    def make(target: Any) -> Deployment:
        if not callable(target):
            raise TypeError(f"@serve.deployment wants a class or a function, but got {target!r}")
        made = weft.serve.deployment(**_translated(options))(_prepared(target))
        return Deployment(made.target, name or target.__name__, made.config)

    return make if _func_or_class is None else make(_func_or_class)


def _translated(options: dict[str, Any]) -> dict[str, Any]:
    """With Weft's words; NotImplementedError for what Weft does not have."""
    for name, why in _REFUSED.items():
        if options.get(name) is not None:
            raise NotImplementedError(f"Weft's deployments have no {name}: {why}")
    kept = {name: value for name, value in options.items() if name not in _WITHOUT_EFFECT and name not in _REFUSED}
    if kept.get("autoscaling_config") is None:
        kept.pop("autoscaling_config", None)
    else:
        kept["autoscaling_config"] = autoscaling(kept["autoscaling_config"])
    if kept.get("num_replicas") == "auto":
        kept.setdefault("autoscaling_config", AutoscalingConfig(max_replicas=100))
        kept.pop("num_replicas")
    return {name: value for name, value in kept.items() if value is not None}


def _prepared(target: Callable[..., Any]) -> Callable[..., Any]:
    """The class, which answers requests as Ray has it; a function becomes one."""
    if not isinstance(target, type):
        words = {
            "__call__": staticmethod(target),
            "__doc__": target.__doc__,
            "__module__": target.__module__,
            "_of_ray": staticmethod(target),
        }
        target = type(target.__name__, (), words)
    if not hasattr(target, INGRESS) and _has_call(target):
        setattr(target, INGRESS, staticmethod(answers.app_of))
    return target


def _has_call(cls: Any) -> bool:
    return any("__call__" in vars(base) for base in cls.__mro__)
