"""What can go wrong between a caller and a deployment, one class for each way to react."""

from __future__ import annotations

from weft.exceptions import WeftError


class ServeError(WeftError):
    """Everything below."""


class BackPressureError(ServeError):
    """Every replica is busy and as many requests as allowed wait already. Try again later, or add replicas."""

    def __init__(self, deployment: str, waiting: int) -> None:
        super().__init__(deployment, waiting)
        self.deployment = deployment
        self.waiting = waiting

    def __str__(self) -> str:
        return (
            f"deployment {self.deployment} has {self.waiting} requests of this process waiting, as many as "
            "max_queued_requests allows: try again later, or give it more replicas"
        )


class ReplicaDiedError(ServeError):
    """The replica died while it had the request, so that it may have run in part. It was not tried again."""

    def __init__(self, deployment: str, replica: str, reason: str) -> None:
        super().__init__(deployment, replica, reason)
        self.deployment = deployment
        self.replica = replica
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"replica {self.replica} of deployment {self.deployment} died with the request, which may have run "
            f"in part: {self.reason}. A deployment whose requests may run twice can say retry_on_death=True."
        )


class DeadlineExceededError(ServeError, TimeoutError):
    """The request's time was over before it had its answer. What worked for it is cancelled."""

    def __init__(self, deployment: str) -> None:
        super().__init__(deployment)
        self.deployment = deployment

    def __str__(self) -> str:
        return (
            f"deployment {self.deployment} did not answer before the request's deadline, which is that of the request "
            "that it was made for or timeout_s of the handle's options(): what worked for it is cancelled"
        )


class DeploymentFailedError(ServeError):
    """No replica of a deployment could be started; the message has what its constructor raised."""

    def __init__(self, deployment: str, reason: str) -> None:
        super().__init__(deployment, reason)
        self.deployment = deployment
        self.reason = reason

    def __str__(self) -> str:
        return f"deployment {self.deployment} has no replica that starts: {self.reason}"


class DeploymentGoneError(ServeError):
    """The deployment was deleted, or never existed."""

    def __init__(self, deployment: str) -> None:
        super().__init__(deployment)
        self.deployment = deployment

    def __str__(self) -> str:
        return f"deployment {self.deployment} does not exist (any more): serve.status() shows what does"


class RequestFailedError(ServeError):
    """The deployment's code failed with a request that travelled in a bundle; only the words came back."""

    def __init__(self, deployment: str, reason: str) -> None:
        super().__init__(deployment, reason)
        self.deployment = deployment
        self.reason = reason

    def __str__(self) -> str:
        return f"deployment {self.deployment} failed with the request: {self.reason}"


class MethodMissingError(ServeError, AttributeError):
    """The deployment has no such method."""


class GrpcError(ServeError):
    """Raised by a deployment to have a gRPC client told this status: `GrpcError("INVALID_ARGUMENT", "no image")`."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.code}: {self.reason}"
