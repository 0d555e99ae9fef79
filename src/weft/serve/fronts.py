"""Starting HTTP and gRPC, and where they are served."""

from __future__ import annotations

import contextlib
import importlib.util
from typing import Any

import weft
from weft.exceptions import ActorError, ActorUnschedulableError
from weft.library.keywords import answers_keywords
from weft.serve.attaching import controller_of_cluster
from weft.serve.front_spread import LASTING
from weft.serve.grpc.options import GRPCOptions
from weft.serve.http.messages import HTTPOptions
from weft.util.scheduling_strategies import NodeAffinitySchedulingStrategy

_OPTIONS = "write serve.start(serve.HTTPOptions(host=..., port=...))"


@answers_keywords(
    **dict.fromkeys(
        ("detached", "grpc_options", "http", "location"), "it takes http_options alone; see serve.HTTPOptions"
    ),
    host=_OPTIONS,
    port=_OPTIONS,
)
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
    controller = controller_of_cluster(start=True)
    from weft.serve.http.front import HttpFront

    node = _own_node()
    address = _front_address(controller, "http", HttpFront, options, [node] * options.workers)
    if options.location == "every_node":
        weft.get(controller.spread_fronts.remote(options, node))
    return address


def http_addresses() -> list[str]:
    """Where HTTP is served: an address for each node that has fronts, the one that `start` returned first.

    >>> from weft import serve
    >>> address = serve.start(serve.HTTPOptions(port=0, workers=2))
    >>> http_addresses() == [address]
    True
    >>> serve.shutdown()
    """
    fronts = weft.get(controller_of_cluster().fronts.remote("http"))
    return list(dict.fromkeys(of_living([front.address.remote() for front in fronts])))


def of_living(answers: list[Any]) -> list[Any]:
    """Of fronts, without those whose nodes have died, which the controller is about to notice."""
    found = []
    for answer in answers:
        with contextlib.suppress(ActorError, ActorUnschedulableError):
            found.append(weft.get(answer))
    return found


def _own_node() -> str:
    return weft.get_runtime_context().get_node_id()


def start_grpc(grpc_options: GRPCOptions | dict[str, Any]) -> str:
    """Serve gRPC, once per cluster, and return HOST:PORT. A call goes to the application that its metadata names as
    `application`, or to the only one there is, and there to the method of the RPC's name.

    Needs `pip install 'weft[serve-grpc]'`. If gRPC is served already, the options are ignored."""
    options = GRPCOptions(**grpc_options) if isinstance(grpc_options, dict) else grpc_options
    if importlib.util.find_spec("grpc") is None:
        raise ImportError("serving gRPC needs grpcio: pip install 'weft[serve-grpc]'")
    controller = controller_of_cluster(start=True)
    from weft.serve.grpc.front import GrpcFront

    return _front_address(controller, "grpc", GrpcFront, options, [_own_node()])


def _front_address(controller: Any, kind: str, front: type, options: Any, nodes: list[str]) -> str:
    """Of the first front of this kind. If there are none, one is started on each of the nodes, as often as it is named;
    when the node is gone, its fronts go to another: somebody must answer."""
    fronts = weft.get(controller.fronts.remote(kind))
    if not fronts:
        for node in nodes:
            there = NodeAffinitySchedulingStrategy(node, soft=True)
            placed: Any = weft.remote(front).options(**LASTING, scheduling_strategy=there)
            fronts.append(placed.remote(controller, options))
            weft.get(fronts[-1].address.remote())  # the first decides about the port
        weft.get(controller.fronts.remote(kind, fronts))
    address: str = weft.get(fronts[0].address.remote())
    return address
