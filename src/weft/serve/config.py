"""What a deployment can be told, checked where it is written. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from weft.library.checks import above, at_least, did_you_mean, is_number


@dataclass(frozen=True)
class AutoscalingConfig:
    """How many replicas there are, from how many requests are under way or waiting.

    >>> AutoscalingConfig(max_replicas=4, target_ongoing_requests=2).replicas_for(5)
    3
    """

    min_replicas: int = 1
    max_replicas: int = 1
    initial_replicas: int | None = None
    target_ongoing_requests: float = 2.0
    upscale_delay_s: float = 1.0
    downscale_delay_s: float = 30.0

    def __post_init__(self) -> None:
        _at_least("min_replicas", self.min_replicas, 0)
        _at_least("max_replicas", self.max_replicas, max(1, self.min_replicas))
        if self.initial_replicas is not None:
            _at_least("initial_replicas", self.initial_replicas, self.min_replicas)
        above("target_ongoing_requests", self.target_ongoing_requests)
        _at_least("upscale_delay_s", self.upscale_delay_s, 0)
        _at_least("downscale_delay_s", self.downscale_delay_s, 0)

    def replicas_for(self, requests: int) -> int:
        """How many there should be while so many requests are under way."""
        wanted = math.ceil(requests / self.target_ongoing_requests)
        return min(max(wanted, self.min_replicas), self.max_replicas)

    @property
    def first(self) -> int:
        """How many there are to begin with."""
        return self.min_replicas if self.initial_replicas is None else self.initial_replicas


@dataclass(frozen=True)
class DeploymentConfig:
    """The settings of one deployment."""

    num_replicas: int = 1
    max_ongoing_requests: int = 100
    """A replica takes no more at once; the others wait at their callers."""
    max_queued_requests: int = -1
    """How many may wait at one caller's process before it gets a BackPressureError; -1 for any number."""
    autoscaling: AutoscalingConfig | None = None
    user_config: Any = None
    """Given to the replica's `reconfigure`; a change does not restart it."""
    health_check_period_s: float = 2.0
    health_check_timeout_s: float = 30.0
    graceful_shutdown_timeout_s: float = 20.0
    """How long a replica that is taken away may finish what it has."""
    retry_on_death: bool = False
    """Whether a request may run again when its replica died with it."""
    actor_options: Mapping[str, Any] = field(default_factory=dict)
    """Of the replicas' actors: num_cpus, num_gpus, resources, runtime_env..."""

    def __post_init__(self) -> None:
        _at_least("num_replicas", self.num_replicas, 0)
        _at_least("max_ongoing_requests", self.max_ongoing_requests, 1)
        _at_least("max_queued_requests", self.max_queued_requests, -1)
        above("health_check_period_s", self.health_check_period_s)
        above("health_check_timeout_s", self.health_check_timeout_s)
        _at_least("graceful_shutdown_timeout_s", self.graceful_shutdown_timeout_s, 0)

    @property
    def first_count(self) -> int:
        """How many replicas there are to begin with."""
        return self.num_replicas if self.autoscaling is None else self.autoscaling.first

    def changed(self, **changes: Any) -> DeploymentConfig:
        """With the keywords of `@serve.deployment`, also Ray's names for them."""
        if "autoscaling_config" in changes:
            changes["autoscaling"] = changes.pop("autoscaling_config")
        if "ray_actor_options" in changes:
            changes["actor_options"] = changes.pop("ray_actor_options") or {}
        if isinstance(changes.get("autoscaling"), Mapping):
            changes["autoscaling"] = AutoscalingConfig(**changes["autoscaling"])
        if changes.get("num_replicas") == "auto":
            changes["num_replicas"] = 1
            changes.setdefault("autoscaling", AutoscalingConfig(max_replicas=100))
        unknown = sorted(set(changes) - set(self.__dataclass_fields__))
        if unknown:
            hint = did_you_mean(unknown[0], self.__dataclass_fields__) or ";"
            raise TypeError(
                f"a deployment has no option {unknown[0]!r}{hint} it has {sorted(self.__dataclass_fields__)}"
            )
        return replace(self, **changes)


def _at_least(name: str, value: float, least: float) -> None:
    if not is_number(value):
        raise TypeError(f"{name} must be a number, but got {value!r}")
    at_least(name, value, least)
