"""Starting, looking at and ending applications. Every function here blocks until what it asks for is so."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import weft
from weft.library.keywords import answers_keywords
from weft.serve.build import build
from weft.serve.controller import NAME, NAMESPACE, Controller
from weft.serve.deployments import Application, Deployment
from weft.serve.grpc.options import GRPCOptions
from weft.serve.handle import DeploymentHandle
from weft.serve.http.messages import HTTPOptions
from weft.serve.policies import ActsInBatches, policy_app
from weft.serve.vault import open_vault
from weft.util.scheduling_strategies import NodeAffinitySchedulingStrategy

DEFAULT_APP = "default"
MOST_CONTROLLER_CALLS = 10_000
"""Each router has one under way all the time."""
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
    timeout_s: float | None = None,
) -> DeploymentHandle:
    """Start an application, or update the one of this name, and wait until it is healthy. Its handle. A policy, of
    `weft.rl` or anything with an `act_batch`, is one too: see `policy_app`.

    An update replaces replicas one after another; no request fails by it. DeploymentFailedError when a constructor
    fails again and again. `settings` are options by the deployment's name that go before those in the code.

    With a `canary_share` between 0 and 1 the running application stays, and what is new in `app` runs beside it and
    gets that share of the requests, until `promote` or `rollback`.

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
        raise TypeError(f"serve.run() wants what a deployment's bind() returns, but got {app!r}")
    if route_prefix is not None and not route_prefix.startswith("/"):
        raise ValueError(f"route_prefix must start with '/', but got {route_prefix!r}")
    if not 0 <= canary_share < 1:
        raise ValueError(f"canary_share must be at least 0 and less than 1, but got {canary_share}")
    controller = _controller(start=True)
    built = build(app, lambda deployment: DeploymentHandle(controller, name, deployment), settings)
    if canary_share:
        _until_ready(
            controller, name, controller.deploy_canary.remote(name, route_prefix, built, canary_share), timeout_s
        )
        return DeploymentHandle(controller, name, built[-1].name)
    weft.get(controller.deploy.remote(name, route_prefix, built))
    _until_ready(controller, name, controller.wait_ready.remote(name), timeout_s)
    weft.get([front.learn.remote() for front in weft.get(controller.all_fronts.remote())])
    return DeploymentHandle(controller, name, built[-1].name)


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


def start(http_options: HTTPOptions | dict[str, Any] | None = None) -> str:
    """Serve HTTP, once per cluster, and return the address: applications answer under their `route_prefix`. Where there
    are fronts on several nodes it is the first one's, and `http_addresses()` has all.

    Needs `pip install 'weft[serve]'`. If HTTP is served already, the options are ignored.

    >>> import urllib.request
    >>> from weft import serve
    >>> made = serve.run(serve.deployment(lambda name: f"hello {name}").bind(), name="hello", route_prefix="/hello")
    >>> address = start(serve.HTTPOptions(port=0))
    >>> urllib.request.urlopen(f"{address}/hello?name=you", timeout=10).read()
    b'hello you'
    >>> serve.shutdown()
    """
    options = HTTPOptions(**http_options) if isinstance(http_options, dict) else http_options or HTTPOptions()
    if importlib.util.find_spec("uvicorn") is None:
        raise ImportError("serving HTTP needs uvicorn: pip install 'weft[serve]'")
    controller = _controller(start=True)
    from weft.serve.http.front import HttpFront

    nodes = [_own_node()]
    if options.location == "every_node":
        nodes += [one["NodeID"] for one in weft.nodes() if one["Alive"] and one["NodeID"] != nodes[0]]
    return _front_address(controller, "http", HttpFront, options, nodes * options.workers)


def http_addresses() -> list[str]:
    """Where HTTP is served: an address for each node that has fronts, the one that `start` returned first.

    >>> from weft import serve
    >>> address = serve.start(serve.HTTPOptions(port=0, workers=2))
    >>> http_addresses() == [address]
    True
    >>> serve.shutdown()
    """
    fronts = weft.get(_controller().fronts.remote("http"))
    return list(dict.fromkeys(weft.get([front.address.remote() for front in fronts])))


def _own_node() -> str:
    return weft.get_runtime_context().get_node_id()


def start_grpc(grpc_options: GRPCOptions | dict[str, Any]) -> str:
    """Serve gRPC, once per cluster, and return HOST:PORT. A call goes to the application that its metadata names as
    `application`, or to the only one there is, and there to the method of the RPC's name.

    Needs `pip install 'weft[serve-grpc]'`. If gRPC is served already, the options are ignored."""
    options = GRPCOptions(**grpc_options) if isinstance(grpc_options, dict) else grpc_options
    if importlib.util.find_spec("grpc") is None:
        raise ImportError("serving gRPC needs grpcio: pip install 'weft[serve-grpc]'")
    controller = _controller(start=True)
    from weft.serve.grpc.front import GrpcFront

    return _front_address(controller, "grpc", GrpcFront, options, [_own_node()])


def _front_address(controller: Any, kind: str, front: type, options: Any, nodes: list[str]) -> str:
    """Of the first front of this kind. If there are none, one is started on each of the nodes, as often as it is named;
    when the first node is gone, its fronts go to another: somebody must answer."""
    fronts = weft.get(controller.fronts.remote(kind))
    if not fronts:
        lasting = {"num_cpus": 0, "lifetime": "detached", "max_restarts": -1, "max_task_retries": -1}
        for node in nodes:
            there = NodeAffinitySchedulingStrategy(node, soft=node == nodes[0])
            placed: Any = weft.remote(front).options(**lasting, scheduling_strategy=there)
            fronts.append(placed.remote(controller, options))
            weft.get(fronts[-1].address.remote())  # the first decides about the port
        weft.get(controller.fronts.remote(kind, fronts))
    address: str = weft.get(fronts[0].address.remote())
    return address


def promote(name: str = DEFAULT_APP) -> None:
    """Replace an application by its canary; no request fails by it. LookupError if it has none."""
    controller = _controller()
    weft.get(controller.check_canary.remote(name))
    weft.get(controller.promote.remote(name))


def rollback(name: str = DEFAULT_APP) -> None:
    """End an application's canary; no request fails by it. LookupError if it has none."""
    controller = _controller()
    weft.get(controller.check_canary.remote(name))
    weft.get(controller.end_canary.remote(name))


def delete(name: str = DEFAULT_APP) -> None:
    """End an application: its replicas finish what they have first. LookupError if there is none of the name.

    >>> from weft import serve
    >>> made = serve.run(serve.deployment(lambda x: x).bind(), name="brief")
    >>> delete("brief")
    >>> "brief" in serve.status()
    False
    """
    controller = _controller()
    weft.get(controller.check_known.remote(name))
    weft.get(controller.delete.remote(name))


def shutdown() -> None:
    """End all applications and the controller; harmless when nothing runs."""
    try:
        controller = _controller()
    except LookupError:
        return
    weft.get(controller.shut_down.remote())
    fronts = weft.get(controller.all_fronts.remote())
    weft.get([front.stop.remote() for front in fronts])
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
    """The handle that `run` returned, in any process of the cluster.

    >>> from weft import serve
    >>> made = serve.run(serve.deployment(lambda x: x + 1).bind(), name="next")
    >>> get_app_handle("next").remote(1).result()
    2
    >>> serve.delete("next")
    """
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
