"""Starting, looking at and ending applications. Every function here blocks until what it asks for is so."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import weft
from weft.library.keywords import answers_keywords
from weft.serve.attaching import controller_of_cluster
from weft.serve.build import build
from weft.serve.canaries import CanaryRule
from weft.serve.controller import NAMESPACE
from weft.serve.deployments import Application, Deployment
from weft.serve.fronts import of_living
from weft.serve.handle import DeploymentHandle
from weft.serve.http.messages import Kind
from weft.serve.policies import ActsInBatches, policy_app
from weft.serve.vault import open_vault

DEFAULT_APP = "default"
MOST_DOCUMENTS = 20
TELL_S = 5.0
"""How long `run` waits in silence."""


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
    verdict: str = ""
    """What became of its last canary that had a rule, and why."""

    @property
    def status(self) -> str:
        """RUNNING when all deployments are healthy, UNHEALTHY when one is not, else DEPLOYING."""
        found = {one.status for one in self.deployments.values()}
        return "UNHEALTHY" if "UNHEALTHY" in found else "RUNNING" if found == {"HEALTHY"} else "DEPLOYING"


_ADDRESS = "HTTP is served by serve.start(serve.HTTPOptions(host=..., port=...)), which returns the address"


@answers_keywords(
    http=_ADDRESS,
    http_options=_ADDRESS,
    port=_ADDRESS,
    host=_ADDRESS,
    blocking="run() returns when the application is healthy; `weft serve run module:app` runs until Ctrl-C",
    num_replicas="write @serve.deployment(num_replicas=2), or settings={deployment: {'num_replicas': 2}}",
)
def run(
    app: Application | Deployment | ActsInBatches,
    *,
    name: str = DEFAULT_APP,
    route_prefix: str | None = "/",
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    canary_share: float = 0.0,
    canary_rule: CanaryRule | None = None,
    timeout_s: float | None = None,
) -> DeploymentHandle:
    """Start an application, or update the one of this name, and wait until it is healthy. Its handle. A policy, of
    `weft.rl` or anything with an `act_batch`, is one too: see `policy_app`.

    An update replaces replicas one after another; no request fails by it. DeploymentFailedError when a constructor
    fails again and again. `settings` are options by the deployment's name that go before those in the code.

    With a `canary_share` between 0 and 1 the running application stays, and what is new in `app` runs beside it and
    gets that share of the requests, until `promote` or `rollback`; with a `canary_rule`, the one of them that it says
    follows by itself, and `status()[name].verdict` tells why.

    When it takes long, what it waits for is told at the terminal; TimeoutError, with that, after `timeout_s`. What was
    begun goes on all the same: `delete` ends it.

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
        raise TypeError(f"serve.run() wants what a deployment's bind() returns, but got {app!r}{_how_to_serve(app)}")
    if route_prefix is not None and not route_prefix.startswith("/"):
        raise ValueError(f"route_prefix must start with '/', but got {route_prefix!r}")
    if not 0 <= canary_share < 1:
        raise ValueError(f"canary_share must be at least 0 and less than 1, but got {canary_share}")
    controller = controller_of_cluster(start=True)
    built = build(app, lambda deployment: DeploymentHandle(controller, name, deployment), settings)
    if canary_share:
        ready = controller.deploy_canary.remote(name, route_prefix, built, canary_share, canary_rule)
        _until_ready(controller, name, ready, timeout_s)
        return DeploymentHandle(controller, name, built[-1].name)
    weft.get(controller.deploy.remote(name, route_prefix, built))
    _until_ready(controller, name, controller.wait_ready.remote(name), timeout_s)
    fronts = weft.get(controller.fronts.remote())
    of_living([front.learn.remote() for front in fronts])
    if not fronts and built[-1].kind is Kind.APP and sys.stderr.isatty():
        print(f"weft.serve: application {name!r} is ready. {_ADDRESS}", file=sys.stderr, flush=True)
    return DeploymentHandle(controller, name, built[-1].name)


def _how_to_serve(app: Any) -> str:
    if isinstance(app, type):
        return f": write serve.run(serve.deployment({app.__name__}).bind())"
    if hasattr(app, "routes"):
        return ". An ASGI app is answered for by a class: @serve.deployment over @serve.ingress(app) over class Api"
    return ": write serve.run(serve.deployment(function).bind())" if callable(app) else ""


def _until_ready(controller: Any, name: str, ready: Any, timeout_s: float | None) -> None:
    """Wait for the ref, and say now and then what holds it up."""
    began_s = time.monotonic()
    told = ""
    while True:
        left_s = TELL_S if timeout_s is None else began_s + timeout_s - time.monotonic()
        if weft.wait([ready], timeout=max(0.0, min(left_s, TELL_S)))[0]:
            weft.get(ready)
            return
        pending = weft.get(controller.pending.remote(name))
        if timeout_s is not None and time.monotonic() - began_s >= timeout_s:
            raise TimeoutError(
                f"application {name!r} is not ready after {timeout_s} s: {pending.rstrip('.')}. It goes on starting: "
                f"serve.delete({name!r}) ends it."
            )
        if pending and pending != told:
            told = pending
            print(f"weft.serve: application {name!r} waits: {pending}", file=sys.stderr, flush=True)


def promote(name: str = DEFAULT_APP) -> None:
    """Replace an application by its canary; no request fails by it. LookupError if it has none."""
    controller = controller_of_cluster()
    weft.get(controller.check_known.remote(name, is_canary=True))
    weft.get(controller.promote.remote(name))


def rollback(name: str = DEFAULT_APP) -> None:
    """End an application's canary; no request fails by it. LookupError if it has none."""
    controller = controller_of_cluster()
    weft.get(controller.check_known.remote(name, is_canary=True))
    weft.get(controller.end_canary.remote(name))


def delete(name: str = DEFAULT_APP) -> None:
    """End an application: its replicas finish what they have first. LookupError if there is none of the name.

    >>> from weft import serve
    >>> made = serve.run(serve.deployment(lambda x: x).bind(), name="brief")
    >>> delete("brief")
    >>> "brief" in serve.status()
    False
    """
    controller = controller_of_cluster()
    weft.get(controller.check_known.remote(name))
    weft.get(controller.delete.remote(name))


def shutdown() -> None:
    """End all applications and the controller; harmless when nothing runs."""
    try:
        controller = controller_of_cluster()
    except LookupError:
        return
    weft.get(controller.shut_down.remote())
    fronts = weft.get(controller.fronts.remote())
    of_living([front.stop.remote() for front in fronts])
    for front in fronts:
        weft.kill(front)
    weft.kill(controller)
    weft.kill(open_vault(NAMESPACE))


def status() -> dict[str, ApplicationInfo]:
    """All applications by name; empty when nothing runs.

    >>> from weft import serve
    >>> made = serve.run(serve.deployment(lambda x: x).bind(), name="same")
    >>> status()["same"].status
    'RUNNING'
    >>> serve.delete("same")
    """
    try:
        controller = controller_of_cluster()
    except LookupError:
        return {}
    return {
        name: ApplicationInfo(
            one["route_prefix"],
            {each: DeploymentInfo(**fields) for each, fields in one["deployments"].items()},
            one["verdict"],
        )
        for name, one in weft.get(controller.status.remote()).items()
    }


def get_app_handle(name: str = DEFAULT_APP) -> DeploymentHandle:
    """The handle that `run` returned, in any process of the cluster.

    >>> from weft import serve
    >>> made = serve.run(serve.deployment(lambda x: x + 1).bind(), name="next")
    >>> get_app_handle("next").remote(1).result()
    2
    >>> serve.delete("next")
    """
    controller = controller_of_cluster()
    return DeploymentHandle(controller, name, weft.get(controller.ingress_of.remote(name)))


def get_deployment_handle(deployment_name: str, app_name: str = DEFAULT_APP) -> DeploymentHandle:
    """A handle to any deployment of an application."""
    return DeploymentHandle(controller_of_cluster(), app_name, deployment_name)


def deployed_documents() -> list[Any]:
    """What files have said that is to be served, the last one last; none when nothing runs."""
    try:
        documents: list[Any] = weft.get(controller_of_cluster().wanted.remote())
    except LookupError:
        return []
    return documents


def remember_documents(documents: list[Any]) -> None:
    """For a rollback; the last ones of them."""
    weft.get(controller_of_cluster().wanted.remote(documents[-MOST_DOCUMENTS:]))
