"""Sends one process's requests for one deployment to its replicas. There is one a process and deployment.

No thread of its own: it runs in whoever submits and in the callbacks of what has ended. It learns of replicas by one
outstanding call to the controller, of room in full replicas by one outstanding call to each.

1. RTR-1: a request goes to the less loaded of two replicas taken at random. Loaded: what the replica last said to have
   under way, or what this process has under way there, if that is more.
2. RTR-2: no request is sent to a replica that is known to be full; it waits here, first come first served.
3. RTR-3: a request is sent again only when it has certainly not begun (refused, or the replica was drained before it
   ended), or when the deployment says retry_on_death.
4. RTR-4: every request's future ends: with its value, its error, or the deployment's end.
"""

from __future__ import annotations

import random
import threading
import uuid
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import weft
from weft.exceptions import ActorError
from weft.serve.context import RequestContext
from weft.serve.errors import BackPressureError, DeploymentGoneError, ReplicaDiedError
from weft.serve.replica import REFUSED

MOST_REMEMBERED_MODELS = 1000


@dataclass(frozen=True)
class Table:
    """What the controller tells routers of one deployment."""

    revision: int
    replicas: dict[str, Any]
    """Actor handles by the replica's name."""
    draining: frozenset[str]
    drained: frozenset[str]
    """Replicas that ended after they had answered all they took, lately."""
    max_ongoing_requests: int
    max_queued_requests: int
    retry_on_death: bool
    is_gone: bool = False

    def knows_end_of(self, replica: str) -> bool:
        return replica not in self.replicas and replica not in self.draining


@dataclass
class Request:
    """One request until its future has ended."""

    context: RequestContext
    method: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    streams: bool
    future: Future[Any] = field(default_factory=Future)
    """Of the value; of a `Stream` for a stream."""
    ref: Any = None
    """Of the attempt under way; None while it waits and when it has ended."""
    peer: Peer | None = None
    """Who has that attempt."""


@dataclass
class Peer:
    """A replica as this process sees it."""

    name: str
    actor: Any
    mine: int = 0
    said: int = 0
    asked_for_room: bool = False
    models: set[str] = field(default_factory=set)

    @property
    def load(self) -> int:
        return max(self.mine, self.said)

    def remember(self, model: str) -> None:
        if len(self.models) >= MOST_REMEMBERED_MODELS:
            self.models.clear()
        self.models.add(model)


def choose(peers: Iterable[Peer], limit: int, model: str, pick: random.Random) -> Peer | None:
    """The replica for a request; None when all are full. One that has the request's model is preferred."""
    free = [peer for peer in peers if peer.load < limit]
    if model:
        free = [peer for peer in free if model in peer.models] or free
    if len(free) < 2:
        return free[0] if free else None
    one, other = pick.sample(free, 2)
    return one if one.load <= other.load else other


class Router:
    def __init__(self, controller: Any, key: str) -> None:
        self._controller = controller
        self.key = key
        self._caller = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._pick = random.Random()
        self._table: Table | None = None
        self._peers: dict[str, Peer] = {}
        self._waiting: deque[Request] = deque()
        self._bereaved: list[tuple[Request, str, BaseException]] = []
        """Requests whose replica died, until the controller says how."""
        self._told = 0
        self._end: BaseException | None = None
        self._listen(0)

    def submit(self, request: Request) -> None:
        with self._lock:
            if self._end is not None:
                raise self._end
            table = self._table
            if table is not None and 0 <= table.max_queued_requests <= len(self._waiting):
                full = not any(peer.load < table.max_ongoing_requests for peer in self._peers.values())
                if full or self._waiting:
                    raise BackPressureError(self.key, len(self._waiting))
            self._waiting.append(request)
        self._pump()

    @property
    def is_over(self) -> bool:
        return self._end is not None

    # ---- sending ---------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Send what can be sent."""
        while True:
            with self._lock:
                table = self._table
                if table is None or not self._waiting:
                    break
                model = self._waiting[0].context.multiplexed_model_id
                peer = choose(self._peers.values(), table.max_ongoing_requests, model, self._pick)
                if peer is None:
                    break
                request = self._waiting.popleft()
                peer.mine += 1
                if model:
                    peer.remember(model)
            self._send(request, peer)
        self._ask_for_room()
        self._tell_waiting()

    def _send(self, request: Request, peer: Peer) -> None:
        if request.future.cancelled():
            self._less(peer, None)
            return
        if request.streams:
            refs = peer.actor.stream.options(num_returns="streaming").remote(
                request.context, request.method, request.args, request.kwargs
            )
            settle(request.future, Stream(self, request, peer, refs), None)
            return
        ref = peer.actor.answer.remote(request.context, request.method, request.args, request.kwargs)
        request.peer = peer
        request.ref = ref
        ref.future().add_done_callback(partial(self._called_back, request, ref))

    def wait(self, request: Request, timeout_s: float | None) -> None:
        """Wait for the attempt under way, if there is one, and take its answer here: the thread that waits for a ref
        fetches it itself, which is much sooner than a callback."""
        ref = request.ref
        if ref is None or not weft.wait([ref], timeout=timeout_s)[0]:
            return
        try:
            answer = weft.get(ref)
        except Exception as error:
            self._answered(request, ref, error, None)
        else:
            self._answered(request, ref, None, answer)

    def _called_back(self, request: Request, ref: Any, done: Future[Any]) -> None:
        error = done.exception()
        self._answered(request, ref, error, None if error is not None else done.result())

    def _answered(self, request: Request, ref: Any, error: BaseException | None, answer: Any) -> None:
        """By whoever saw the answer, perhaps twice; the first counts."""
        with self._lock:
            peer = request.peer
            if request.ref is not ref or peer is None:
                return
            request.ref, request.peer = None, None
        if error is not None:
            self._less(peer, None)
            self._failed(request, peer, error)
            return
        verdict, load, value = answer
        self._less(peer, load)
        if verdict == REFUSED:
            self._again(request)
        else:
            settle(request.future, value, None)
            self._pump()

    def _less(self, peer: Peer, load: int | None) -> None:
        with self._lock:
            peer.mine -= 1
            if load is not None:
                peer.said = load

    def _again(self, request: Request) -> None:
        with self._lock:
            end = self._end
            if end is None:
                self._waiting.appendleft(request)
        if end is not None:
            settle(request.future, None, end)
        self._pump()

    def _failed(self, request: Request, peer: Peer, error: BaseException) -> None:
        if not isinstance(error, ActorError):
            settle(request.future, None, error)
            self._pump()
            return
        with self._lock:
            self._peers.pop(peer.name, None)
            self._bereaved.append((request, peer.name, error))
        self._controller.replica_lost.remote(self.key, peer.name, str(error))
        self._judge()

    def _judge(self) -> None:
        """Decide about requests of dead replicas, once the controller knows of the death."""
        with self._lock:
            table, end = self._table, self._end
            known = [one for one in self._bereaved if end or (table and table.knows_end_of(one[1]))]
            self._bereaved = [one for one in self._bereaved if one not in known]
        for request, replica, error in known:
            if end is None and table is not None and (table.retry_on_death or replica in table.drained):
                self._again(request)
            else:
                settle(request.future, None, end or ReplicaDiedError(self.key, replica, str(error)))

    # ---- learning --------------------------------------------------------------------------------------

    def _listen(self, revision: int) -> None:
        self._controller.listen.remote(self.key, revision).future().add_done_callback(self._heard)

    def _heard(self, done: Future[Any]) -> None:
        error = done.exception()
        table: Table | None = None if error is not None else done.result()
        if error is None and table is not None and table.is_gone:
            error = DeploymentGoneError(self.key)
        if error is not None or table is None:
            self._over(error or DeploymentGoneError(self.key))
            return
        with self._lock:
            self._table = table
            self._peers = {name: self._peers.get(name) or Peer(name, actor) for name, actor in table.replicas.items()}
        self._listen(table.revision)
        self._judge()
        self._pump()

    def _over(self, error: BaseException) -> None:
        with self._lock:
            self._end = error
            waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            settle(request.future, None, error)
        self._judge()

    def _ask_for_room(self) -> None:
        """While requests wait, have every full replica say when it has room."""
        with self._lock:
            asked = [peer for peer in self._peers.values() if not peer.asked_for_room] if self._waiting else []
            for peer in asked:
                peer.asked_for_room = True
        for peer in asked:
            peer.actor.room.remote().future().add_done_callback(partial(self._has_room, peer))

    def _has_room(self, peer: Peer, done: Future[Any]) -> None:
        error = done.exception()
        with self._lock:
            peer.asked_for_room = error is not None
            if error is None:
                peer.said = done.result()
        self._pump()

    def _tell_waiting(self) -> None:
        """The controller scales by what waits here. Told when it grows to a power of two or ends, not each time."""
        with self._lock:
            waiting = len(self._waiting)
            due = (waiting == 0) != (self._told == 0) or waiting >= 2 * self._told
            if waiting == self._told or not due:
                return
            self._told = waiting
        self._controller.waiting_changed.remote(self.key, self._caller, waiting)

    # ---- streams ---------------------------------------------------------------------------------------

    def stream_refused(self, request: Request, peer: Peer, load: int) -> None:
        """By its consumer, who then waits for the request's new future."""
        self._less(peer, load)
        request.future = Future()
        self._again(request)

    def stream_lost(self, request: Request, peer: Peer, error: BaseException) -> None:
        """Like `stream_refused`, when not even the first answer came; only certain deaths are tried again."""
        self._less(peer, None)
        request.future = Future()
        self._failed(request, peer, error)

    def stream_ended(self, peer: Peer) -> None:
        self._less(peer, None)
        self._pump()


@dataclass(frozen=True)
class Stream:
    """An attempt of a stream at one replica; its consumer reads whether it was taken."""

    router: Router
    request: Request
    peer: Peer
    refs: Any


def settle(future: Future[Any], value: Any, error: BaseException | None) -> None:
    """End a future that its caller may have cancelled."""
    if not future.set_running_or_notify_cancel():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)


_routers: dict[tuple[Any, str], Router] = {}
_routers_lock = threading.Lock()


def router_of(controller: Any, key: str) -> Router:
    """This process's router for the deployment."""
    router = _routers.get((controller, key))
    if router is not None and not router.is_over:
        return router
    with _routers_lock:
        for dead in [name for name, one in _routers.items() if one.is_over]:
            del _routers[dead]
        return _routers.setdefault((controller, key), Router(controller, key))
