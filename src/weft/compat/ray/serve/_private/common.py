"""`ray.serve._private.common` of Ray 2.60: names of deployments, for annotations of policies."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DeploymentID:
    """A deployment of an application."""

    name: str
    app_name: str = "default"
