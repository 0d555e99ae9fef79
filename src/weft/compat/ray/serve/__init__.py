"""`ray.serve` of Ray 2.60 on `weft.serve`: what runs is served over HTTP at once, and `__call__` gets the request.

What Ray has and Weft does not is refused by name; options that only tune Ray are taken without effect. Names that are
not here are those of `weft.serve`.
"""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import weft.serve
from weft.compat.ray.serve import words
from weft.compat.ray.serve.config import HTTPOptions, gRPCOptions
from weft.compat.ray.serve.context import get_replica_context
from weft.compat.ray.serve.deployments import Deployment, deployment
from weft.compat.ray.serve.schema import status
from weft.serve import Application, DeploymentHandle, delete, shutdown

with contextlib.suppress(ImportError):  # programs write `import starlette` and mean these
    for _part in ("requests", "responses"):
        importlib.import_module(f"starlette.{_part}")

words.teach()

__all__ = [
    "Application",
    "Deployment",
    "HTTPOptions",
    "RunTarget",
    "batch",
    "delete",
    "deployment",
    "get_app_handle",
    "get_deployment_handle",
    "get_multiplexed_model_id",
    "get_replica_context",
    "ingress",
    "multiplexed",
    "run",
    "run_many",
    "shutdown",
    "shutdown_async",
    "start",
    "status",
]


@dataclass(frozen=True)
class RunTarget:
    """One application for `run_many`."""

    target: Application
    name: str = "default"
    route_prefix: str | None = "/"
    logging_config: Any = None


def run(
    target: Any,
    blocking: bool = False,
    name: str = "default",
    route_prefix: str | None = "/",
    logging_config: Any = None,
    _local_testing_mode: bool = False,
    external_scaler_enabled: bool = False,
) -> DeploymentHandle:
    """Start or update an application, and serve HTTP unless it is served already; its handle. With `blocking` it
    returns after a Ctrl-C. `logging_config` and the last two have no effect: what is tested runs as ever."""
    if external_scaler_enabled:
        raise NotImplementedError("Weft has no external scaler: set num_replicas, or autoscaling_config")
    handle = weft.serve.run(target, name=name, route_prefix=route_prefix)
    if route_prefix is not None:
        weft.serve.start()
    if blocking:
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(3600)
    return handle


def run_many(
    targets: Iterable[RunTarget], blocking: bool = False, wait_for_ingress_deployment_creation: bool = True, **_: Any
) -> list[DeploymentHandle]:
    """One after the other."""
    made = [run(one.target, name=one.name, route_prefix=one.route_prefix) for one in targets]
    if blocking and made:
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(3600)
    return made


def start(
    proxy_location: Any = None,
    http_options: Any = None,
    grpc_options: Any = None,
    logging_config: Any = None,
    **_: Any,
) -> None:
    """Serve HTTP, and gRPC if it is asked for. The location is Ray's word for which nodes have fronts."""
    where = str(getattr(proxy_location, "value", proxy_location) or "")
    if where != "Disabled":
        options = HTTPOptions(**http_options) if isinstance(http_options, dict) else http_options or HTTPOptions()
        weft.serve.start(options.as_wefts("every_node" if where == "EveryNode" else "here"))
    if grpc_options is not None:
        asked = gRPCOptions(**grpc_options) if isinstance(grpc_options, dict) else grpc_options
        if asked.grpc_servicer_functions:
            weft.serve.start_grpc(asked.as_wefts())


async def shutdown_async() -> None:
    """As `shutdown`."""
    import asyncio

    await asyncio.to_thread(shutdown)


def __getattr__(name: str) -> Any:
    try:
        return getattr(weft.serve, name)
    except AttributeError as error:
        raise AttributeError(str(error).replace("weft.serve", "ray.serve")) from None
