"""`ray.serve.exceptions` of Ray 2.60."""

from weft.exceptions import TaskCancelledError as RequestCancelledError
from weft.serve.errors import BackPressureError
from weft.serve.errors import DeploymentGoneError as DeploymentUnavailableError
from weft.serve.errors import GrpcError as gRPCStatusError
from weft.serve.errors import ReplicaDiedError as ReplicaUnavailableError
from weft.serve.errors import ServeError as RayServeException

__all__ = [
    "BackPressureError",
    "DeploymentUnavailableError",
    "RayServeException",
    "ReplicaUnavailableError",
    "RequestCancelledError",
    "gRPCStatusError",
]
