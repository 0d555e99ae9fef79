"""What the code of a deployment can ask about the request that it answers."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import NamedTuple


class RequestContext(NamedTuple):
    """Travels with the request, from a front or a caller to the replica and on to those it calls."""

    request_id: str = ""
    multiplexed_model_id: str = ""


LONGEST_REQUEST_ID = 128


def sane_request_id(given: str) -> str:
    """The client's request id, if it is one that can be logged and sent back; else nothing.

    >>> sane_request_id("a-1"), sane_request_id("a\\n")
    ('a-1', '')
    """
    return given if len(given) <= LONGEST_REQUEST_ID and given.isascii() and given.isprintable() else ""


request_context: ContextVar[RequestContext] = ContextVar("weft_serve_request", default=RequestContext())  # noqa: B039


@dataclass(frozen=True)
class ReplicaContext:
    app: str
    deployment: str
    replica: str


replica_context: ContextVar[ReplicaContext | None] = ContextVar("weft_serve_replica", default=None)


def get_request_id() -> str:
    """Of the request that is answered now; empty if its caller gave none."""
    return request_context.get().request_id


def get_multiplexed_model_id() -> str:
    """The model that the caller wants: `handle.options(multiplexed_model_id=...)` or the header `serve-model-id`."""
    return request_context.get().multiplexed_model_id


def get_replica_context() -> ReplicaContext:
    """Which replica this code runs in; RuntimeError outside of one."""
    found = replica_context.get()
    if found is None:
        raise RuntimeError("get_replica_context() was called outside of a replica")
    return found
