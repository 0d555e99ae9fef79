"""Sends one process's requests for one deployment to its replicas. There is one per process and deployment.

No thread of its own: it runs in whoever submits, in who waits for an answer, and in the callbacks of what has ended. A
callback costs several times what the call does, since it comes on another thread, so that the answers to a few requests
that were sent at once are left to who waits; they get one when nobody might (their response is awaited, given on, asked
whether it is done, cancelled or dropped) and when another request needs their place. It learns of replicas by one
outstanding call to the controller, of room in full replicas by one outstanding call to each.

1. RTR-1: a request goes to the less loaded of two replicas taken at random, one of them on this node if there is one,
   which is preferred. Loaded: what the replica last said to have under way, or what this process has under way there,
   if that is more.
2. RTR-2: no request is sent to a replica that is known to be full; it waits here, first come first served, but for
   those of a session, which wait for one replica.
3. RTR-3: a request is sent again only when it has certainly not begun (refused, or the replica was drained before it
   ended), or when the deployment says retry_on_death.
4. RTR-4: every request has an outcome: with its value, its error, or the deployment's end.
5. RTR-5: a request that is given up, or whose deadline has passed, is neither sent nor counted as waiting. Deadlines
   are watched by who waits for the answer and by the replica; here, when a request is about to be sent.
"""

from __future__ import annotations

import itertools
import math
import random
import threading
import time
import uuid
from collections import OrderedDict, deque
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

import weft
from weft.exceptions import ActorError, GetTimeoutError, TaskError
from weft.serve.bundler import Bundler
from weft.serve.bundles import FAILED, REFUSED
from weft.serve.context import NO_CONTEXT, RequestContext
from weft.serve.errors import (
    BackPressureError,
    DeadlineExceededError,
    DeploymentGoneError,
    ReplicaDiedError,
    RequestFailedError,
)
from weft.serve.peers import Peer, choose
from weft.serve.requests import AwaitedRequest, BundledRequest, Request
from weft.serve.table import Table

MOST_PASSED_OVER = 256
MOST_UNWATCHED = 64
"""So many threads may wait for an answer each without a callback; more are more likely responses that pile up."""


class Router:
    def __init__(self, controller: Any, key: str) -> None:
        self._controller = controller
        self.key = key
        context = weft.get_runtime_context()
        self._process = context.get_worker_id()
        """Replicas are told who asks, and give up what they do for one that has died."""
        self._caller = f"{self._process}/{uuid.uuid4().hex}"
        self._node = context.get_node_id()
        self._lock = threading.Lock()
        self._pick = random.Random()
        self._table: Table | None = None
        self._peers: dict[str, Peer] = {}
        self._waiting: OrderedDict[Request, None] = OrderedDict()
        """The first is sent first; whoever gives up leaves it."""
        self._bereaved: list[tuple[Request, str, BaseException]] = []
        """Requests whose replica died, until the controller says how."""
        self._unwatched: set[AwaitedRequest] = set()
        """At a replica, and no callback comes when they end: whoever waits for one takes its answer itself."""
        self.dropped: deque[Peer] = deque()
        """Who has a place free again; counted when a request needs one."""
        self._told = 0
        self._end: BaseException | None = None
        self._listen(0)

    def submit(self, request: Request, watched: bool = False) -> None:
        """`watched` where somebody may wait, or have ceased to, already: it needs a callback from the first."""
        request.router = self
        with self._lock:
            if self._end is not None:
                raise self._end
            table = self._table
            peer = None if table is None or self._waiting else self._take(request, table)
            if peer is None:
                if table is not None and 0 <= table.max_queued_requests <= len(self._waiting):
                    raise BackPressureError(self.key, len(self._waiting))
                self._waiting[request] = None
        if peer is not None:
            self._send(request, peer, watched or len(self._unwatched) >= MOST_UNWATCHED)
            return
        for unwatched in list(self._unwatched):  # what has ended there makes room
            self.watch(unwatched)
        self._pump()

    def withdraw(self, request: Request) -> None:
        """It was given up: if it waits here, it does so no more."""
        with self._lock:
            if request not in self._waiting:
                return
            del self._waiting[request]
        self._pump()

    def _take(self, request: Request, table: Table) -> Peer | None:
        """A place for the request at a replica, if there is one. With the lock held."""
        model, session = request.context.multiplexed_model_id, request.context.session_id
        if len(self._peers) == 1 and not model:
            (only,) = self._peers.values()
            if only.load >= table.max_ongoing_requests:
                return None
            only.mine += 1
            return only
        limit, share = table.max_ongoing_requests, table.canary_share
        peer = choose(self._peers.values(), limit, model, self._pick, share, session)
        if peer is not None:
            peer.mine += 1
            if model:
                peer.remember(model)
        return peer

    @property
    def is_over(self) -> bool:
        return self._end is not None

    @property
    def waiting(self) -> int:
        """Requests of this process that no replica has."""
        return len(self._waiting)

    @property
    def room(self) -> float:
        """How many requests would not have to wait for others of this process."""
        table, peers = self._table, list(self._peers.values())
        if table is None or not peers:
            return math.inf  # what waits brings a replica
        return 0 if self._waiting else sum(max(0, table.max_ongoing_requests - peer.mine) for peer in peers)

    @property
    def ongoing(self) -> tuple[int, int]:
        """Requests of this process that replicas have, and how many of these there are."""
        peers = list(self._peers.values())
        return sum(peer.mine for peer in peers), len(peers)

    # ---- sending ---------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Send what can be sent."""
        while self.dropped:
            self._less(self.dropped.popleft(), None)
        while True:
            with self._lock:
                found = self._next()
                if found is None:
                    break
                request, peer = found
                del self._waiting[request]
            self._send(request, peer)
        self._ask_for_room()
        self._tell_waiting()

    def _next(self) -> tuple[Request, Peer] | None:
        """The first that waits and can be sent. Those of a session wait for their own replica, and nobody behind them
        does. With the lock held."""
        if self._table is None:
            return None
        for request in itertools.islice(self._waiting, MOST_PASSED_OVER):
            peer = self._take(request, self._table)
            if peer is not None:
                return request, peer
            if not request.context.session_id:
                break
        return None

    def _send(self, request: Request, peer: Peer, watched: bool = True) -> None:
        if request.is_abandoned:
            self._less(peer, None)
            return
        context = request.context
        if context.deadline_s != math.inf:
            now_s = time.monotonic()
            if context.deadline_s <= now_s:
                self._less(peer, None)
                request.end(None, DeadlineExceededError(self.key))
                return
            context = context.departing(now_s)
        if isinstance(request, BundledRequest):
            bundler = peer.bundlers.get(request.loop)
            if bundler is None:
                made = Bundler(peer, request.loop, self._process, self.bundle_answered, self.bundle_lost)
                bundler = peer.bundlers.setdefault(request.loop, made)
            request.peer = peer
            bundler.send(request)
            return
        assert isinstance(request, AwaitedRequest)
        if request.streams:
            self._send_stream(request, context, peer)
            return
        given = None if context == NO_CONTEXT else tuple(context)
        request.peer = peer
        ref = request.ref = peer.actor.answer.remote(self._process, given, request.method, request.args, request.kwargs)
        if request.is_given_up:  # by a thread that may not have seen the ref
            weft.cancel(ref)
        if watched:
            ref.future().add_done_callback(partial(self._called_back, request, ref))
        else:
            self._unwatched.add(request)

    def watch(self, request: AwaitedRequest) -> None:
        """Have its answer taken when it comes: perhaps no thread waits for it. Takes no lock: `__del__` calls it."""
        try:
            self._unwatched.remove(request)
        except KeyError:
            return
        ref = request.ref
        if ref is not None:
            ref.future().add_done_callback(partial(self._called_back, request, ref))

    def _send_stream(self, request: AwaitedRequest, context: RequestContext, peer: Peer) -> None:
        refs = peer.actor.stream.options(num_returns="streaming").remote(
            self._process, context, request.method, request.args, request.kwargs
        )
        stream = Stream(self, request, peer, refs)
        request.end(stream, None)
        if request.is_abandoned:  # meanwhile
            stream.close()

    def stream_on(self, peer: Peer, context: RequestContext, method: str, args: tuple[Any, ...]) -> AwaitedRequest:
        """A stream at this very replica."""
        request = AwaitedRequest(context, method, args, {}, True)
        request.router = self
        with self._lock:
            peer.mine += 1
        self._send(request, peer)
        return request

    def wait(self, request: Request, timeout_s: float | None) -> None:
        """Wait for the attempt under way, if there is one, and take its answer here: the thread that waits for a ref
        fetches it itself, which is much sooner than a callback."""
        ref = request.ref
        if ref is None:
            return
        try:
            answer = weft.get(ref) if timeout_s is None else weft.get(ref, timeout=max(0.0, timeout_s))
        except Exception as error:
            if isinstance(error, GetTimeoutError) and not isinstance(error, TaskError):
                return
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
        self._unwatched.discard(request)
        if error is not None:
            self._less(peer, None)
            self._failed(request, peer, error)
            return
        verdict, load, value = answer
        self._less(peer, load)
        if verdict == REFUSED:
            self._again(request)
        else:
            request.end(value, None)
            if self._waiting:
                self._pump()

    def bundle_answered(self, peer: Peer, answers: list[tuple[BundledRequest, int, int, Any]]) -> None:
        """(request, verdict, load, value) each. By a bundler, on its loop."""
        if not answers:
            return
        refused = [one[0] for one in answers if one[1] == REFUSED]
        with self._lock:
            peer.mine -= len(answers)
            peer.said = answers[-1][2]
            end = self._end
            if end is None:
                for request in reversed(refused):
                    self._first_in_line(request)
        for request, verdict, _, value in answers:
            if verdict == FAILED:
                request.end(None, RequestFailedError(self.key, value))
            elif verdict != REFUSED:
                request.end(value, None)
            elif end is not None:
                request.end(None, end)
        if self._waiting:
            self._pump()

    def bundle_lost(self, peer: Peer, requests: list[BundledRequest], error: BaseException) -> None:
        for request in requests:
            self._less(peer, None)
            self._failed(request, peer, error)

    def _less(self, peer: Peer, load: int | None) -> None:
        with self._lock:
            peer.mine -= 1
            if load is not None:
                peer.said = load

    def _first_in_line(self, request: Request) -> None:
        """With the lock held."""
        if not request.is_abandoned:
            self._waiting[request] = None
            self._waiting.move_to_end(request, last=False)

    def _again(self, request: Request) -> None:
        with self._lock:
            end = self._end
            if end is None:
                self._first_in_line(request)
        if end is not None:
            request.end(None, end)
        self._pump()

    def _failed(self, request: Request, peer: Peer, error: BaseException) -> None:
        if not isinstance(error, ActorError):
            request.end(None, error)
            self._pump()
            return
        with self._lock:
            is_news = self._peers.pop(peer.name, None) is not None
            self._bereaved.append((request, peer.name, error))
        if is_news:
            self._controller.replica_lost.remote(self.key, peer.name, str(error))
        self._judge()

    def _judge(self) -> None:
        """Decide about requests of dead replicas, once the controller knows of the death."""
        with self._lock:
            table, end = self._table, self._end
            known = [one for one in self._bereaved if end or (table and table.knows_end_of(one[1]))]
            self._bereaved = [one for one in self._bereaved if one not in known]
        for request, replica, error in known:
            has_not_run = getattr(error, "actor_init_failed", False)
            may_run = has_not_run or (table is not None and (table.retry_on_death or replica in table.drained))
            if end is None and table is not None and may_run:
                self._again(request)
            else:
                request.end(None, end or ReplicaDiedError(self.key, replica, str(error)))

    # ---- learning --------------------------------------------------------------------------------------

    def _listen(self, revision: int) -> None:
        self._controller.listen.remote(self.key, revision, self._caller).future().add_done_callback(self._heard)

    def _heard(self, done: Future[Any]) -> None:
        error = done.exception()
        table: Table | None = None if error is not None else done.result()
        if error is None and table is not None and table.is_gone:
            error = DeploymentGoneError(self.key)
        if error is not None or table is None:
            self._over(error or DeploymentGoneError(self.key))
            return
        with self._lock:
            is_first = self._table is None
            self._table = table
            self._peers = {
                name: self._peers.get(name)
                or Peer(name, actor, name in table.canaries, table.nodes.get(name) == self._node)
                for name, actor in table.replicas.items()
            }
        self._listen(table.revision)
        self._judge()
        self._pump()
        if is_first:
            self._refuse_surplus(table.max_queued_requests)

    def _refuse_surplus(self, limit: int) -> None:
        """Requests that came before it was known how many may wait; the latest go."""
        surplus: list[Request] = []
        with self._lock:
            while 0 <= limit < len(self._waiting):
                surplus.append(self._waiting.popitem()[0])
        for request in surplus:
            request.end(None, BackPressureError(self.key, limit))

    def _over(self, error: BaseException) -> None:
        with self._lock:
            self._end = error
            waiting, self._waiting = self._waiting, OrderedDict()
        for request in waiting:
            request.end(None, error)
        self._judge()

    def _ask_for_room(self) -> None:
        """While requests wait, have every replica that others fill say when it has room. What this process filled
        alone says so by its answers."""
        if not self._waiting:
            return
        with self._lock:
            limit = self._table.max_ongoing_requests if self._table is not None else 0
            asked = [peer for peer in self._peers.values() if not peer.asked_for_room and peer.mine < limit]
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
        if len(self._waiting) == self._told:
            return
        with self._lock:
            waiting = len(self._waiting)
            due = (waiting == 0) != (self._told == 0) or waiting >= 2 * self._told
            if waiting == self._told or not due:
                return
            self._told = waiting
        self._controller.waiting_changed.remote(self.key, self._caller, waiting)

    # ---- streams ---------------------------------------------------------------------------------------

    def stream_refused(self, request: AwaitedRequest, peer: Peer, load: int) -> None:
        """By its consumer, who then waits for the request's new future."""
        self._less(peer, load)
        request.renew()
        self._again(request)

    def stream_lost(self, request: AwaitedRequest, peer: Peer, error: BaseException) -> None:
        """Like `stream_refused`, when not even the first answer came; only certain deaths are tried again."""
        self._less(peer, None)
        request.renew()
        self._failed(request, peer, error)

    def stream_ended(self, peer: Peer) -> None:
        self._less(peer, max(0, peer.said - 1))  # what it said counted the stream
        self._pump()


@dataclass
class Stream:
    """An attempt of a stream at one replica; its consumer reads whether it was taken."""

    router: Router
    request: AwaitedRequest
    peer: Peer
    refs: Any
    is_closed: bool = False

    def close(self) -> None:
        """The replica's generator ends, if it has not, and its place is free; again is harmless."""
        if not self.is_closed:
            self.is_closed = True
            if not self.refs.is_finished():
                weft.cancel(self.refs)  # closing alone ends it at its next item, for which it may wait for ever
            self.refs.close()
            self.router.stream_ended(self.peer)

    def drop(self) -> None:
        """The same by the collector of garbage, which may run in the midst of anything."""
        if not self.is_closed:
            self.is_closed = True
            self.router.dropped.append(self.peer)


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
