"""What this node has told and asked the cluster's head, so that a new head can be told and asked again.

Runs in the daemon's thread, on every node that is not the head. Three kinds of things:
    - what processes said (creations, kills, functions): kept until the head says that it is safe in the control store;
    - what processes wait to be told of (actors, placement groups): kept while they wait;
    - questions: kept until they are answered.
While there is no head all of it waits here, and nobody notices but a delay.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Any, TypeAlias

import msgspec

from weft.engine.cluster.calls import ANSWER_S, Calls
from weft.engine.cluster.guests import Guests
from weft.engine.cluster.membership import Membership
from weft.engine.cluster.transport import NodeLink
from weft.engine.node.operations import Operations, Outcome, Pending
from weft.engine.state.events import Process
from weft.engine.wire import kinds
from weft.engine.wire import link_messages as lm
from weft.engine.wire.messages import (
    ActorSpec,
    CreateGroup,
    DefineShape,
    DriverHello,
    KillActor,
    RemoveGroup,
    Reply,
    Request,
    WatchGroup,
)
from weft.net.loop import Loop, Timer

MARK_S = 0.1
"""So long after something was told the head is asked whether it is safe."""
FOR_HEAD = frozenset((kinds.CREATE_ACTOR, kinds.ACTOR_WATCH, kinds.ACTOR_DROP, kinds.ACTOR_CREATED, kinds.FUNCTION))
HEAD_METHODS = frozenset(
    "get_actor claim_actor_name list_named_actors actor_info kv_get kv_put kv_del kv_keys "
    "create_group get_group list_groups list_actors list_jobs list_cluster_events actor_log_open "
    "actor_log_append name_object named_object delete_object".split()
)
ONCE = frozenset(("job_submit", "job_upload", "drain"))
"""Operations that are not asked for a second time when the head dies: whether they were done is not known."""
Told: TypeAlias = tuple[Process, int, bytes]
_LENGTH = struct.Struct("<I")
_messages = msgspec.msgpack.Decoder(
    DefineShape | DriverHello | KillActor | CreateGroup | RemoveGroup | WatchGroup | Request
)
_specs = msgspec.msgpack.Decoder(ActorSpec)
_replies = msgspec.msgpack.Decoder(Reply)
_encode = msgspec.msgpack.Encoder().encode


def for_head(kind: int, payload: bytes) -> tuple[bool, Any]:
    """Whether a record to a daemon is the head's affair, and the message in it."""
    if kind != kinds.CONTROL:
        return kind in FOR_HEAD, None
    message = _messages.decode(payload)
    if isinstance(message, Request):
        return message.method in HEAD_METHODS, message
    return isinstance(message, KillActor | CreateGroup | RemoveGroup | WatchGroup), message


class Following:
    """One daemon's side of it."""

    def __init__(self, loop: Loop, operations: Operations, members: Membership, calls: Calls, guests: Guests) -> None:
        self._loop = loop
        self._operations = operations
        self._members = members
        self._calls = calls
        self._guests = guests
        self._told: deque[tuple[int, Told]] = deque()
        self._last = 0
        self._marking: Timer | None = None
        self._actors: dict[tuple[Process, bytes], bytes] = {}
        """ACTOR_WATCH, by who watches which actor."""
        self._groups: dict[tuple[Process, bytes], None] = {}
        self._requests: dict[tuple[Process, int], bytes] = {}
        self._asks: list[tuple[str, dict[str, Any], Pending]] = []
        """Operations that wait for a head."""

    # ---- records of local processes ----

    def tell(self, process: Process, kind: int, payload: bytes, message: Any) -> None:
        """Pass it on to the head, now or when there is one."""
        if kind == kinds.CREATE_ACTOR:
            (length,) = _LENGTH.unpack_from(payload)
            actor = _specs.decode(payload[4 : 4 + length]).actor
            self._actors[process, actor] = actor + kinds.PROCESS_BODY.pack(*process)
        elif kind == kinds.ACTOR_WATCH:
            self._actors[process, payload[:16]] = payload
        elif isinstance(message, CreateGroup | WatchGroup):
            self._groups[process, message.group] = None
        if isinstance(message, Request):
            self._requests[process, message.id] = payload
            if message.method == "create_group":
                self._groups[process, msgspec.convert(message.params["spec"], CreateGroup).group] = None
        elif kind != kinds.ACTOR_WATCH:
            self._last += 1
            self._told.append((self._last, (process, kind, payload)))
            self._mark_later()
        self._send(process, kind, payload)

    def is_watched(self, process: Process, payload: bytes) -> bool:
        """Whether that process has asked for that actor before."""
        return (process, payload[:16]) in self._actors

    def _send(self, process: Process, kind: int, payload: bytes) -> None:
        if (head := self._members.head) is not None:
            self._guests.send_to_daemon(head, process, kind, payload)

    def head_says(self, to: Process, kind: int, payload: bytes) -> None:
        """A record of the head to a process of this node passes by."""
        if kind == kinds.CONTROL and self._requests:
            try:
                self._requests.pop((to, _replies.decode(payload).id), None)
            except msgspec.ValidationError:
                return  # another message
        elif kind == kinds.ACTOR_DOWN:
            actor, state, _ = kinds.ACTOR_STATE_BODY.unpack_from(payload)
            if state:
                self._actors.pop((to, actor), None)

    def group_gone(self, group: bytes) -> None:
        for key in [key for key in self._groups if key[1] == group]:
            del self._groups[key]

    def process_died(self, process: Process) -> None:
        self._actors = {key: payload for key, payload in self._actors.items() if key[0] != process}
        self._groups = {key: None for key in self._groups if key[0] != process}
        self._requests = {key: payload for key, payload in self._requests.items() if key[0] != process}

    # ---- what is safe ----

    def _mark_later(self) -> None:
        if self._marking is None:
            self._marking = self._loop.call_later(MARK_S, self._mark)

    def _mark(self) -> None:
        head = self._members.head
        if head is None or not self._members.send(head, lm.Mark(self._last)):
            self._marking = None  # registering with the next head marks anew

    def marked(self, link: NodeLink, message: lm.Marked) -> None:
        if link.peer != self._members.head:
            return
        self._marking = None
        while self._told and self._told[0][0] <= message.number:
            self._told.popleft()
        if self._told:
            self._mark_later()

    # ---- another head ----

    def told_again(self) -> list[Told]:
        """All that a new head must be told, in order."""
        again = [told for _, told in self._told]
        again += [(process, kinds.ACTOR_WATCH, payload) for (process, _), payload in self._actors.items()]
        again += [(process, kinds.CONTROL, _encode(WatchGroup(group))) for process, group in self._groups]
        again += [(process, kinds.CONTROL, payload) for (process, _), payload in self._requests.items()]
        return again

    def register(self) -> None:
        """With the head that has taken over."""
        for process, kind, payload in self.told_again():
            self._send(process, kind, payload)
        if self._marking is not None:
            self._marking.cancel()
            self._marking = None
        if self._told:
            self._mark_later()

    def became_head(self) -> list[Told]:
        """All that this node itself must be told, being the head now."""
        again = self.told_again()
        self._told.clear()
        for known in (self._actors, self._groups, self._requests):
            known.clear()
        return again

    # ---- operations ----

    def ask(self, method: str, params: dict[str, Any]) -> Pending:
        """An operation of the head; waits for one where there is none."""
        answer = Pending()
        self._ask(method, params, answer)
        return answer

    def ask_again(self) -> None:
        """There is a head."""
        asks, self._asks = self._asks, []
        for method, params, answer in asks:
            self._ask(method, params, answer)

    def _ask(self, method: str, params: dict[str, Any], answer: Pending) -> None:
        head = self._members.head
        if self._operations.ask_head is None:
            self._operations.perform(method, params).then(answer.settle)
        elif head is None or self._members.is_head:  # which does not serve yet
            self._asks.append((method, params, answer))
            text = f"the cluster has had no head for {ANSWER_S:g} s that could be asked for {method!r}"
            self._loop.call_later(ANSWER_S, lambda: answer.fail(TimeoutError(text)))
        else:

            def came(outcome: Outcome) -> None:
                is_lost = outcome.error_kind == "ConnectionError" and self._members.head != head
                if is_lost and method not in ONCE:
                    self._ask(method, params, answer)
                else:
                    answer.settle(outcome)

            self._calls.ask(head, method, params).then(came)
