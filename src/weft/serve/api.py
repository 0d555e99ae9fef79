"""Starting, looking at and ending applications. Every function here blocks until what it asks for is so."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import weft
from weft.serve.build import build
from weft.serve.controller import NAME, NAMESPACE, Controller
from weft.serve.deployments import Application, Deployment
from weft.serve.handle import DeploymentHandle
from weft.serve.http.messages import HTTPOptions
from weft.serve.policies import ActsInBatches, policy_app
from weft.serve.vault import open_vault

DEFAULT_APP = "default"
MOST_CONTROLLER_CALLS = 10_000
"""Each router has one under way all the time."""


@dataclass(frozen=True)
class DeploymentInfo:
    """One deployment in `status()`."""

    status: str
    message: str
    replicas: dict[str, int]
    """How many there are, by state."""
    target: int
    ongoing: int


@dataclass(frozen=True)
class ApplicationInfo:
    route_prefix: str | None
    deployments: dict[str, DeploymentInfo]

    @property
    def status(self) -> str:
        """RUNNING when all deployments are healthy, UNHEALTHY when one is not, else DEPLOYING."""
        found = {one.status for one in self.deployments.values()}
        return "UNHEALTHY" if "UNHEALTHY" in found else "RUNNING" if found == {"HEALTHY"} else "DEPLOYING"


def run(
    app: Application | Deployment | ActsInBatches,
    *,
    name: str = DEFAULT_APP,
    route_prefix: str | None = "/",
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    canary_share: float = 0.0,
) -> DeploymentHandle:
    """Start an application, or update the one of this name, and wait until it is healthy. Its handle. A policy, of
    `weft.rl` or anything with an `act_batch`, is one too: see `policy_app`.

    An update replaces replicas one after another; no request fails by it. DeploymentFailedError when a constructor
    fails again and again. `settings` are options by the deployment's name that go before those in the code.

    With a `canary_share` between 0 and 1 the running application stays, and what is new in `app` runs beside it and
    gets that share of the requests, until `promote` or `rollback`.

    >>> from weft import serve
    >>> @serve.deployment
    ... def greet(name: str) -> str: return f"hello {name}"
    >>> serve.run(greet.bind()).remote("you").result()
    'hello you'
    >>> serve.shutdown()
    """
    if isinstance(app, Deployment):
        app = app.bind()
    elif not isinstance(app, Application) and isinstance(app, ActsInBatches):
        app = policy_app(app)
    if not isinstance(app, Application):
        raise TypeError(f"serve.run() wants what a deployment's bind() returns, but got {app!r}")
    if route_prefix is not None and not route_prefix.startswith("/"):
        raise ValueError(f"route_prefix must start with '/', but got {route_prefix!r}")
    if not 0 <= canary_share < 1:
        raise ValueError(f"canary_share must be at least 0 and less than 1, but got {canary_share}")
    controller = _controller(start=True)
    built = build(app, lambda deployment: DeploymentHandle(controller, name, deployment), settings)
    if canary_share:
        weft.get(controller.deploy_canary.remote(name, route_prefix, built, canary_share))
        return DeploymentHandle(controller, name, built[-1].name)
    weft.get(controller.deploy.remote(name, route_prefix, built))
    weft.get(controller.wait_ready.remote(name))
    weft.get([front.learn.remote() for front in weft.get(controller.http_fronts.remote())])
    return DeploymentHandle(controller, name, built[-1].name)


def start(http_options: HTTPOptions | dict[str, Any] | None = None) -> str:
    """Serve HTTP, once a cluster, and return the address: applications answer under their `route_prefix`.

    Needs `pip install 'weft[serve]'`. If HTTP is served already, the options are ignored."""
    options = HTTPOptions(**http_options) if isinstance(http_options, dict) else http_options or HTTPOptions()
    if importlib.util.find_spec("uvicorn") is None:
        raise ImportError("serving HTTP needs uvicorn: pip install 'weft[serve]'")
    controller = _controller(start=True)
    fronts = weft.get(controller.http_fronts.remote())
    if not fronts:
        from weft.serve.http.front import HttpFront

        lasting = {"num_cpus": 0, "lifetime": "detached", "max_restarts": -1, "max_task_retries": -1}
        for _ in range(options.workers):
            fronts.append(weft.remote(HttpFront).options(**lasting).remote(controller, options))
            weft.get(fronts[-1].address.remote())  # the first decides about the port
        weft.get(controller.http_fronts.remote(fronts))
    address: str = weft.get(fronts[0].address.remote())
    return address


def promote(name: str = DEFAULT_APP) -> None:
    """Replace an application by its canary; no request fails by it. LookupError if it has none."""
    weft.get(_controller().promote.remote(name))


def rollback(name: str = DEFAULT_APP) -> None:
    """End an application's canary; no request fails by it. LookupError if it has none."""
    weft.get(_controller().roll_back.remote(name))


def delete(name: str = DEFAULT_APP) -> None:
    """End an application: its replicas finish what they have first. LookupError if there is none of the name."""
    weft.get(_controller().delete.remote(name))


def shutdown() -> None:
    """End all applications and the controller; harmless when nothing runs."""
    try:
        controller = _controller()
    except LookupError:
        return
    weft.get(controller.shut_down.remote())
    fronts = weft.get(controller.http_fronts.remote())
    weft.get([front.stop.remote() for front in fronts])
    for front in fronts:
        weft.kill(front)
    weft.kill(controller)
    weft.kill(open_vault(NAMESPACE))


def status() -> dict[str, ApplicationInfo]:
    """All applications by name; empty when nothing runs."""
    try:
        controller = _controller()
    except LookupError:
        return {}
    return {
        name: ApplicationInfo(
            one["route_prefix"], {each: DeploymentInfo(**fields) for each, fields in one["deployments"].items()}
        )
        for name, one in weft.get(controller.status.remote()).items()
    }


def get_app_handle(name: str = DEFAULT_APP) -> DeploymentHandle:
    """The handle that `run` returned, in any process of the cluster."""
    controller = _controller()
    return DeploymentHandle(controller, name, weft.get(controller.ingress_of.remote(name)))


def get_deployment_handle(deployment_name: str, app_name: str = DEFAULT_APP) -> DeploymentHandle:
    """A handle to any deployment of an application."""
    return DeploymentHandle(_controller(), app_name, deployment_name)


def _controller(start: bool = False) -> Any:
    if start:
        if not weft.is_initialized():
            weft.init()
        lasting = {"lifetime": "detached", "num_cpus": 0, "max_restarts": -1, "max_task_retries": -1}
        options = {"name": NAME, "namespace": NAMESPACE, "max_concurrency": MOST_CONTROLLER_CALLS, **lasting}
        return weft.remote(Controller).options(get_if_exists=True, **options).remote()
    if not weft.is_initialized():
        raise LookupError("nothing is served here: Weft is not initialised")
    try:
        return weft.get_actor(NAME, namespace=NAMESPACE)
    except ValueError:
        raise LookupError("nothing is served here: serve.run() starts it") from None
