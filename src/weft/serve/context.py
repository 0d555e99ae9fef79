"""What the code of a deployment can ask about the request that it answers."""

from __future__ import annotations

import math
import time
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from weft.serve.requests import AwaitedRequest


class RequestContext(NamedTuple):
    """Travels with the request, from a front or a caller to the replica and on to those it calls."""

    request_id: str = ""
    multiplexed_model_id: str = ""
    deadline_s: float = math.inf
    """By this process's monotonic clock; on its way, the time that is left: nodes have clocks of their own."""
    session_id: str = ""
    """All requests of a session go to one replica, for as long as that runs."""

    def departing(self, now_s: float) -> RequestContext:
        return self if self.deadline_s == math.inf else self._replace(deadline_s=self.deadline_s - now_s)

    def arrived(self, now_s: float) -> RequestContext:
        return self if self.deadline_s == math.inf else self._replace(deadline_s=self.deadline_s + now_s)


NO_CONTEXT = RequestContext()
"""Of who answers no request."""
LONGEST_REQUEST_ID = 128


def sane_request_id(given: str) -> str:
    """The client's request id, if it is one that can be logged and sent back; else nothing.

    >>> sane_request_id("a-1"), sane_request_id("a\\n")
    ('a-1', '')
    """
    return given if len(given) <= LONGEST_REQUEST_ID and given.isascii() and given.isprintable() else ""


request_context: ContextVar[RequestContext] = ContextVar("weft_serve_request", default=NO_CONTEXT)
calls_of_request: ContextVar[list[AwaitedRequest] | None] = ContextVar("weft_serve_calls", default=None)
"""What the request that is answered now has asked of other deployments: it is given up when the request is. Those that
have ended are dropped when there are many."""


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


def get_session_id() -> str:
    """The session of the request that is answered now: `handle.options(session_id=...)` or the header
    `serve-session-id`; empty if it has none."""
    return request_context.get().session_id


def get_time_left_s() -> float | None:
    """Until the deadline of the request that is answered now; None if it has none. It is cancelled then."""
    deadline_s = request_context.get().deadline_s
    return None if deadline_s == math.inf else max(0.0, deadline_s - time.monotonic())


def get_replica_context() -> ReplicaContext:
    """Which replica this code runs in; RuntimeError outside of one."""
    found = replica_context.get()
    if found is None:
        raise RuntimeError("get_replica_context() was called outside of a replica")
    return found
