"""`ray.util.client` in the words of Ray 2.60. A driver attaches to a node of its machine: there is no client that runs
elsewhere, so `ray.util.connect` is `init` with the cluster's address."""

from __future__ import annotations

from typing import Any

import weft
from weft.compat import session

__all__ = ["ClientBuilder", "client", "connect", "disconnect", "ray"]


def connect(
    conn_str: str, secure: bool = False, metadata: Any = None, namespace: str | None = None, **options: Any
) -> Any:
    """Attach to the cluster whose head is at HOST:PORT; Ray's port of clients (10001) is the cluster's own."""
    given = {name: value for name, value in options.items() if name in ("runtime_env", "ignore_reinit_error")}
    if namespace is not None:
        given["namespace"] = namespace
    return session.init(f"ray://{conn_str.removeprefix('ray://')}", **given)


def disconnect() -> None:
    """As `shutdown`: what the driver has made ends."""
    weft.shutdown()


class ClientBuilder:
    """What `ray.client("HOST:PORT")` returns; `connect()` attaches."""

    def __init__(self, address: str | None = None) -> None:
        self.address = address
        self._options: dict[str, Any] = {}

    def env(self, runtime_env: dict[str, Any]) -> ClientBuilder:
        """The runtime environment of the job."""
        self._options["runtime_env"] = runtime_env
        return self

    def namespace(self, namespace: str) -> ClientBuilder:
        """Of the job's named actors."""
        self._options["namespace"] = namespace
        return self

    def connect(self) -> Any:
        """A cluster of one's own without an address, as Ray's."""
        given = None if self.address in (None, "local") else f"ray://{self.address.removeprefix('ray://')}"
        return session.init(given, **self._options)


def client(address: str | None = None) -> ClientBuilder:
    """`ray.client("HOST:PORT").connect()`, Ray's older form of `init("ray://HOST:PORT")`."""
    return ClientBuilder(address)


class _ClientApi:
    """`from ray.util.client import ray`: the same functions, and whether this process is a client, which none is."""

    def is_connected(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        import weft.compat.ray

        return getattr(weft.compat.ray, name)


ray = _ClientApi()
