"""`ray.serve.status` and its types of Ray 2.60, and the logging settings, which have no effect."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import weft.serve


class ApplicationStatus(str, Enum):
    NOT_STARTED = "NOT_STARTED"
    DEPLOYING = "DEPLOYING"
    DEPLOY_FAILED = "DEPLOY_FAILED"
    RUNNING = "RUNNING"
    UNHEALTHY = "UNHEALTHY"
    DELETING = "DELETING"


class DeploymentStatus(str, Enum):
    UPDATING = "UPDATING"
    HEALTHY = "HEALTHY"
    UNHEALTHY = "UNHEALTHY"
    DEPLOY_FAILED = "DEPLOY_FAILED"
    UPSCALING = "UPSCALING"
    DOWNSCALING = "DOWNSCALING"


@dataclass(frozen=True)
class DeploymentStatusOverview:
    status: DeploymentStatus
    replica_states: dict[str, int]
    message: str
    status_trigger: str = "UNSPECIFIED"


@dataclass(frozen=True)
class ApplicationStatusOverview:
    status: ApplicationStatus
    message: str
    deployments: dict[str, DeploymentStatusOverview]
    last_deployed_time_s: float = 0.0


@dataclass(frozen=True)
class ServeStatus:
    applications: dict[str, ApplicationStatusOverview] = field(default_factory=dict)
    proxies: dict[str, Any] = field(default_factory=dict)


@dataclass
class LoggingConfig:
    """Taken without effect: replicas log as their loggers say."""

    encoding: str = "TEXT"
    log_level: int | str = logging.INFO
    logs_dir: str | None = None
    enable_access_log: bool = True
    additional_log_standard_attrs: list[str] = field(default_factory=list)


def status() -> ServeStatus:
    """Of all applications; of none where nothing is served."""
    return ServeStatus({name: _application(one) for name, one in weft.serve.status().items()})


def _application(one: Any) -> ApplicationStatusOverview:
    deployments = {name: _deployment(each) for name, each in one.deployments.items()}
    message = " ".join(each.message for each in one.deployments.values() if each.message)
    return ApplicationStatusOverview(ApplicationStatus(one.status), message, deployments)


def _deployment(one: Any) -> DeploymentStatusOverview:
    known = {each.value for each in DeploymentStatus}
    state = DeploymentStatus(one.status if one.status in known else "UPDATING")
    return DeploymentStatusOverview(state, dict(one.replicas), one.message)
