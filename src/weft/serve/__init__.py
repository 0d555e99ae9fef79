"""weft.serve: models and policies behind handles, over shared memory, with batching, scaling and HTTP beside it.

>>> from weft import serve
>>> @serve.deployment(num_replicas=2)
... class Doubler:
...     def __call__(self, x: int) -> int: return 2 * x
>>> handle = serve.run(Doubler.bind())
>>> handle.remote(21).result()
42
>>> serve.shutdown()

Every name is loaded at its first use; uvicorn and Starlette when HTTP is first used, grpcio when gRPC is.
"""

from __future__ import annotations

from weft._lazy import LazyNames

TYPE_CHECKING = False

if TYPE_CHECKING:
    from weft.serve.api import delete as delete
    from weft.serve.api import get_app_handle as get_app_handle
    from weft.serve.api import get_deployment_handle as get_deployment_handle
    from weft.serve.api import http_addresses as http_addresses
    from weft.serve.api import promote as promote
    from weft.serve.api import rollback as rollback
    from weft.serve.api import run as run
    from weft.serve.api import shutdown as shutdown
    from weft.serve.api import start as start
    from weft.serve.api import start_grpc as start_grpc
    from weft.serve.api import status as status
    from weft.serve.batching import batch as batch
    from weft.serve.config import AutoscalingConfig as AutoscalingConfig
    from weft.serve.config import DeploymentConfig as DeploymentConfig
    from weft.serve.context import get_multiplexed_model_id as get_multiplexed_model_id
    from weft.serve.context import get_replica_context as get_replica_context
    from weft.serve.context import get_request_id as get_request_id
    from weft.serve.context import get_time_left_s as get_time_left_s
    from weft.serve.deployments import Application as Application
    from weft.serve.deployments import Deployment as Deployment
    from weft.serve.deployments import deployment as deployment
    from weft.serve.errors import BackPressureError as BackPressureError
    from weft.serve.errors import DeadlineExceededError as DeadlineExceededError
    from weft.serve.errors import DeploymentFailedError as DeploymentFailedError
    from weft.serve.errors import DeploymentGoneError as DeploymentGoneError
    from weft.serve.errors import GrpcError as GrpcError
    from weft.serve.errors import ReplicaDiedError as ReplicaDiedError
    from weft.serve.errors import ServeError as ServeError
    from weft.serve.grpc.input import GrpcInputStream as GrpcInputStream
    from weft.serve.grpc.options import GRPCOptions as GRPCOptions
    from weft.serve.handle import DeploymentHandle as DeploymentHandle
    from weft.serve.handle import DeploymentResponse as DeploymentResponse
    from weft.serve.handle import DeploymentResponseGenerator as DeploymentResponseGenerator
    from weft.serve.http.ingress import ingress as ingress
    from weft.serve.http.messages import HTTPOptions as HTTPOptions
    from weft.serve.multiplexing import multiplexed as multiplexed
    from weft.serve.policies import policy_app as policy_app

_HOMES = {
    "api": "delete get_app_handle get_deployment_handle http_addresses promote rollback run shutdown start start_grpc "
    "status",
    "batching": "batch",
    "config": "AutoscalingConfig DeploymentConfig",
    "context": "get_multiplexed_model_id get_replica_context get_request_id get_time_left_s",
    "deployments": "Application Deployment deployment",
    "errors": "BackPressureError DeadlineExceededError DeploymentFailedError DeploymentGoneError GrpcError "
    "ReplicaDiedError ServeError",
    "grpc.input": "GrpcInputStream",
    "grpc.options": "GRPCOptions",
    "http.ingress": "ingress",
    "multiplexing": "multiplexed",
    "policies": "policy_app",
    "http.messages": "HTTPOptions",
    "handle": "DeploymentHandle DeploymentResponse DeploymentResponseGenerator",
}
_LAZY = LazyNames(__name__, _HOMES)

__all__ = _LAZY.names
__getattr__ = _LAZY.load
__dir__ = _LAZY.listed
