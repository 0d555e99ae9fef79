"""What a deployment can be told, checked where it is written. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from weft.library.checks import above, at_least, did_you_mean, is_number, one_of
from weft.serve.scaling import AutoscalingConfig as AutoscalingConfig

STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")


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
    max_replicas_per_node: int | None = None
    """More of them wait until another node comes or one ends."""
    placement_group_bundles: tuple[Mapping[str, float], ...] = ()
    """Each replica gets a placement group of these: its actor is in the first, what it starts goes to any of them."""
    placement_group_strategy: str = "PACK"

    def __post_init__(self) -> None:
        _at_least("num_replicas", self.num_replicas, 0)
        _at_least("max_ongoing_requests", self.max_ongoing_requests, 1)
        _at_least("max_queued_requests", self.max_queued_requests, -1)
        above("health_check_period_s", self.health_check_period_s)
        above("health_check_timeout_s", self.health_check_timeout_s)
        _at_least("graceful_shutdown_timeout_s", self.graceful_shutdown_timeout_s, 0)
        if self.max_replicas_per_node is not None:
            _at_least("max_replicas_per_node", self.max_replicas_per_node, 1)
        one_of("placement_group_strategy", self.placement_group_strategy, STRATEGIES)
        if self.max_replicas_per_node is not None and self.placement_group_bundles:
            raise ValueError(
                "max_replicas_per_node and placement_group_bundles cannot be given together: a group's strategy says "
                "which nodes it takes"
            )

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
        if changes.get("placement_group_bundles") is not None:
            changes["placement_group_bundles"] = tuple(dict(one) for one in changes["placement_group_bundles"])
        elif "placement_group_bundles" in changes:
            changes["placement_group_bundles"] = ()
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
