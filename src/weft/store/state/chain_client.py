"""A client of the control store: finds the right replica, tries again, does no write twice, keeps subscriptions. Pure.

    client.handle(event) -> list[Instruction]

One write request is in flight in each shard; what is written meanwhile goes together in the next. Reads that come in
one round go together. Subscriptions are resumed where they were. Every call ends: in Complete or, at its deadline, in
Fail.

Invariants:
    CLI-1  a request keeps its number however often it is sent, and the next has a higher one.
    CLI-2  one client's writes to one key take effect in the order in which they were asked for.
    CLI-3  a subscription hears each key's changes in order, without gaps; after a long absence it hears the outcome.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from weft.store.state.chain_events import (
    Event,
    Instruction,
    KeepConfiguration,
    PeerConnected,
    PeerLost,
    Received,
    RoundEnded,
    Send,
    Ticked,
)
from weft.store.state.chain_layout import Configuration, shard_of
from weft.store.state.chain_messages import (
    AllRows,
    AskConfiguration,
    Changes,
    Decided,
    NotServing,
    ReadRefused,
    ReadReply,
    ReadRequest,
    Subscribe,
    Unsubscribe,
    WriteRefused,
    WriteReply,
    WriteRequest,
)
from weft.store.state.chain_rows import Key, Put, Write

REQUEST_WRITES = 4096
REQUEST_BYTES = 8 << 20
RETRY_S = 1.0
"""An answer that takes longer is asked for again, and each time after twice as long."""
LONGEST_RETRIES = 8
SLOWEST_BYTES_S = 16 << 20
"""What is large may take so much longer."""
RENEW_S = 5.0


class WriteAsked(Event, frozen=True):
    """Completed with True, or False when a row that must be absent is there."""

    ticket: int
    batch: Sequence[Write]
    now: float
    deadline: float


class ReadAsked(Event, frozen=True):
    """Completed with the values, None where there is no row."""

    ticket: int
    keys: Sequence[Key]
    now: float
    deadline: float


class ScanAsked(Event, frozen=True):
    """Completed with the rows, in the order of their keys."""

    ticket: int
    table: str
    prefix: bytes
    now: float
    deadline: float


class SubscribeAsked(Event, frozen=True):
    """Completed with None once every change from then on will be told (`TellChanges`)."""

    ticket: int
    table: str
    prefix: bytes
    now: float
    deadline: float


class SubscriptionEnded(Event, frozen=True):
    ticket: int


class Complete(Instruction, frozen=True):
    ticket: int
    result: object


class Fail(Instruction, frozen=True):
    ticket: int
    reason: str


class TellChanges(Instruction, frozen=True):
    """To whoever subscribed with this ticket: (key, new value or None)."""

    ticket: int
    changes: list[tuple[bytes, bytes | None]]


class _Call:
    """What a caller waits for, in parts by shard."""

    __slots__ = ("deadline", "parts", "result", "ticket")

    def __init__(self, ticket: int, parts: int, result: list[object], deadline: float) -> None:
        self.ticket = ticket
        self.parts = parts
        self.result = result
        self.deadline = deadline


class _Request:
    """One message that awaits its answer."""

    __slots__ = ("_bytes", "_retries", "calls", "message", "sent_at", "sent_to")

    def __init__(
        self, message: WriteRequest | ReadRequest, calls: list[tuple[_Call, list[int]]], size: int = 0
    ) -> None:
        self.message = message
        self._bytes = size
        self._retries = 1
        self.calls = calls
        """Each with the places in its result that its part of the answer belongs to."""
        self.sent_to = ""
        self.sent_at = 0.0

    def is_late(self, now: float, retry_s: float) -> bool:
        return bool(self.sent_to) and now - self.sent_at >= self._retries * retry_s + self._bytes / SLOWEST_BYTES_S

    def repeat(self) -> None:
        self.sent_to = ""
        self._retries = min(2 * self._retries, LONGEST_RETRIES)


class _Shard:
    """What goes to one shard."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.queue: deque[tuple[_Call, Sequence[Write]]] = deque()
        self.writing: _Request | None = None
        self.to_read: list[tuple[_Call, list[int], list[Key]]] = []
        self.reading: dict[int, _Request] = {}


class _Subscription:
    """What is known of one table and prefix, in each shard."""

    def __init__(self, call: _Call, table: str, prefix: bytes) -> None:
        self.call: _Call | None = call
        self.table = table
        self.prefix = prefix
        self.at: dict[int, int] = {}
        self.known: dict[int, set[bytes]] = {}
        self.asked: dict[int, tuple[str, float]] = {}
        """The server that was asked last, and when."""
        self.confirmed: dict[int, str] = {}
        """The server that tells it."""


class StoreClient:
    """One client, by a name that no other has had, or with a number above all that others of that name have used.

    Of clients of one name only the last can write: a shard that has done one of its requests refuses the others'."""

    def __init__(self, name: str, retry_s: float = RETRY_S, renew_s: float = RENEW_S, first_number: int = 0) -> None:
        self.name = name
        self._first_number = first_number
        self.configuration: Configuration | None = None
        self._retry_s = retry_s
        self._renew_s = renew_s
        self._now = 0.0
        self._connected: set[str] = set()
        self._shards: list[_Shard] = []
        self._early: list[Event] = []
        """Calls made before a configuration was known."""
        self._calls: dict[int, _Call] = {}
        self._subscriptions: dict[int, _Subscription] = {}

    @property
    def is_busy(self) -> bool:
        """Whether the next tick should come soon."""
        return bool(self._calls)

    # ---- events ----

    def handle(self, event: Event) -> list[Instruction]:
        self._now = getattr(event, "now", self._now)
        if isinstance(event, Received):
            return self._received(event.sender, event.message)
        if isinstance(event, RoundEnded):
            return [one for shard in range(len(self._shards)) for one in self._send(shard)]
        if isinstance(event, Ticked):
            return self._tick()
        if isinstance(event, PeerConnected):
            self._connected.add(event.peer)
            return self._redo("")
        if isinstance(event, PeerLost):
            self._connected.discard(event.peer)
            return self._redo(event.peer)
        if isinstance(event, SubscriptionEnded):
            return self._unsubscribe(event.ticket)
        if isinstance(event, WriteAsked | ReadAsked | ScanAsked | SubscribeAsked):
            if self.configuration is None:
                self._early.append(event)
                self._calls[event.ticket] = _Call(event.ticket, 1, [], event.deadline)
                return []
            return self._ask(event)
        raise TypeError(f"{type(event).__name__} is no event for a client")

    def _ask(self, event: Event) -> list[Instruction]:
        if isinstance(event, WriteAsked):
            return self._write(event)
        if isinstance(event, ReadAsked):
            return self._read(event)
        if isinstance(event, ScanAsked):
            return self._scan(event)
        assert isinstance(event, SubscribeAsked)
        return self._subscribe(event)

    # ---- calls ----

    def _write(self, event: WriteAsked) -> list[Instruction]:
        parts: dict[int, list[Write]] = {}
        for one in event.batch:
            parts.setdefault(shard_of(one.key, len(self._shards)), []).append(one)
        if len(parts) > 1 and any(isinstance(one, Put) and one.if_absent for one in event.batch):
            reason = f"a batch with a condition must lie in one shard, but its keys lie in {len(parts)}"
            return [Fail(event.ticket, reason)]
        if not parts:
            return [Complete(event.ticket, True)]
        call = self._calls[event.ticket] = _Call(event.ticket, len(parts), [True], event.deadline)
        for shard, writes in parts.items():
            self._shards[shard].queue.append((call, writes))
        return []

    def _read(self, event: ReadAsked) -> list[Instruction]:
        parts: dict[int, list[int]] = {}
        for index, (_, key) in enumerate(event.keys):
            parts.setdefault(shard_of(key, len(self._shards)), []).append(index)
        if not parts:
            return [Complete(event.ticket, [])]
        call = _Call(event.ticket, len(parts), [None] * len(event.keys), event.deadline)
        self._calls[event.ticket] = call
        for shard, places in parts.items():
            self._shards[shard].to_read.append((call, places, [event.keys[place] for place in places]))
        return []

    def _scan(self, event: ScanAsked) -> list[Instruction]:
        call = self._calls[event.ticket] = _Call(event.ticket, len(self._shards), [], event.deadline)
        for shard, state in enumerate(self._shards):
            state.number += 1
            request = ReadRequest(shard, state.number, (), event.table, event.prefix)
            state.reading[state.number] = _Request(request, [(call, [])])
        return []

    def _end_part(self, call: _Call) -> list[Instruction]:
        call.parts -= 1
        if call.parts > 0 or self._calls.pop(call.ticket, None) is None:
            return []
        return [Complete(call.ticket, call.result)]

    def _fail(self, call: _Call, reason: str) -> list[Instruction]:
        return [] if self._calls.pop(call.ticket, None) is None else [Fail(call.ticket, reason)]

    # ---- sending ----

    def _send(self, number: int) -> list[Instruction]:
        """All that can go out to one shard now."""
        shard = self._shards[number]
        if shard.writing is None and shard.queue:
            self._fill_request(number, shard)
        if shard.to_read:
            keys = [key for _, _, part in shard.to_read for key in part]
            shard.number += 1
            calls = [(call, places) for call, places, _ in shard.to_read]
            shard.reading[shard.number] = _Request(ReadRequest(number, shard.number, keys), calls)
            shard.to_read = []
        assert self.configuration is not None
        chain = self.configuration.chains[number]
        out: list[Instruction] = []
        if shard.writing is not None:
            out += self._send_one(shard.writing, chain.head.server)
        for request in shard.reading.values():
            out += self._send_one(request, chain.tail.server)
        return out

    def _fill_request(self, number: int, shard: _Shard) -> None:
        batches: list[Sequence[Write]] = []
        calls: list[tuple[_Call, list[int]]] = []
        writes = size = 0
        while shard.queue and writes < REQUEST_WRITES and size < REQUEST_BYTES:
            call, batch = shard.queue.popleft()
            if call.ticket not in self._calls:
                continue  # its deadline has passed
            batches.append(batch)
            calls.append((call, []))
            writes += len(batch)
            size += sum(len(one.key) + (len(one.value) if isinstance(one, Put) else 0) for one in batch)
        if batches:
            shard.number += 1
            shard.writing = _Request(WriteRequest(number, self.name, shard.number, batches), calls, size)

    def _send_one(self, request: _Request, server: str) -> list[Instruction]:
        if request.sent_to or server not in self._connected:
            return []
        request.sent_to = server
        request.sent_at = self._now
        return [Send(server, request.message)]

    def _redo(self, lost: str) -> list[Instruction]:
        """Someone has come or gone: what was on its way to the one that is gone goes elsewhere."""
        if lost:
            for request in self._requests():
                if request.sent_to == lost:
                    request.sent_to = ""
            for one in self._subscriptions.values():
                one.asked = {shard: asked for shard, asked in one.asked.items() if asked[0] != lost}
                one.confirmed = {shard: server for shard, server in one.confirmed.items() if server != lost}
        return self._send_all()

    def _send_all(self) -> list[Instruction]:
        out = [one for shard in range(len(self._shards)) for one in self._send(shard)]
        return out + [one for name in self._subscriptions for one in self._resume(name)]

    def _requests(self) -> list[_Request]:
        found = [request for shard in self._shards for request in shard.reading.values()]
        return found + [shard.writing for shard in self._shards if shard.writing is not None]

    # ---- answers ----

    def _received(self, sender: str, message: object) -> list[Instruction]:
        if isinstance(message, Decided):
            return self._learn(message.configuration)
        if isinstance(message, WriteReply | WriteRefused):
            return self._written(message)
        if isinstance(message, ReadReply | ReadRefused):
            return self._read_came(message)
        if isinstance(message, NotServing):
            return self._not_served(sender, message)
        if isinstance(message, Changes):
            return self._changes_came(sender, message)
        if isinstance(message, AllRows):
            return self._all_rows_came(sender, message)
        raise TypeError(f"a {type(message).__name__} of {sender} is no message for a client")

    def _learn(self, configuration: Configuration) -> list[Instruction]:
        before = self.configuration
        if before is not None and before.number >= configuration.number:
            return []
        self.configuration = configuration
        out: list[Instruction] = [KeepConfiguration(configuration)]
        if before is None:
            self._shards = [_Shard(self._first_number) for _ in configuration.chains]
            early, self._early = self._early, []
            for event in early:
                if self._calls.pop(getattr(event, "ticket"), None) is not None:  # noqa: B009
                    out += self._ask(event)
            return out + self._send_all()
        for shard, (old, new) in enumerate(zip(before.chains, configuration.chains, strict=True)):
            state = self._shards[shard]
            if state.writing is not None and old.head != new.head:
                state.writing.sent_to = ""
            if old.tail != new.tail:
                for request in state.reading.values():
                    request.sent_to = ""
        return out + self._send_all()

    def _written(self, message: WriteReply | WriteRefused) -> list[Instruction]:
        shard = self._shards[message.shard]
        request = shard.writing
        if request is None or request.message.number != message.number:
            return []
        shard.writing = None
        out: list[Instruction] = []
        if isinstance(message, WriteRefused):
            for call, _ in request.calls:
                out += self._fail(call, message.reason)
        else:
            for (call, _), outcome in zip(request.calls, message.outcomes, strict=True):
                call.result[0] = bool(call.result[0]) and outcome
                out += [
                    Complete(one.ticket, call.result[0]) if isinstance(one, Complete) else one
                    for one in self._end_part(call)
                ]
        return out + self._send(message.shard)

    def _read_came(self, message: ReadReply | ReadRefused) -> list[Instruction]:
        request = self._shards[message.shard].reading.pop(message.number, None)
        out: list[Instruction] = []
        if request is None:
            return out
        if isinstance(message, ReadRefused):
            for call, _ in request.calls:
                out += self._fail(call, message.reason)
            return out
        assert isinstance(request.message, ReadRequest)
        if request.message.table:
            call = request.calls[0][0]
            call.result += message.rows
            if call.parts == 1:
                call.result.sort()
            return self._end_part(call)
        values = iter(message.values)
        for call, places in request.calls:
            for place in places:
                call.result[place] = next(values)
            out += self._end_part(call)
        return out

    def _not_served(self, sender: str, message: NotServing) -> list[Instruction]:
        """Again at the next tick, or when a newer configuration is known."""
        shard = self._shards[message.shard]
        request = shard.writing if message.is_write else shard.reading.get(message.number)
        if request is None or request.message.number != message.number or request.sent_to != sender:
            return []
        request.sent_at = float("-inf")
        assert self.configuration is not None
        return [Send(sender, AskConfiguration(self.configuration.number))]

    # ---- subscriptions ----

    def _subscribe(self, event: SubscribeAsked) -> list[Instruction]:
        call = self._calls[event.ticket] = _Call(event.ticket, len(self._shards), [], event.deadline)
        self._subscriptions[event.ticket] = _Subscription(call, event.table, event.prefix)
        return self._resume(event.ticket)

    def _unsubscribe(self, ticket: int) -> list[Instruction]:
        one = self._subscriptions.pop(ticket, None)
        self._calls.pop(ticket, None)
        if one is None:
            return []
        return [Send(server, Unsubscribe(shard, ticket)) for shard, server in one.confirmed.items()]

    def _resume(self, ticket: int, is_due: bool = False) -> list[Instruction]:
        """Subscribe wherever the present tail has not been asked, or (`is_due`) not lately."""
        one = self._subscriptions[ticket]
        out: list[Instruction] = []
        assert self.configuration is not None
        for shard, chain in enumerate(self.configuration.chains):
            tail = chain.tail.server
            asked, at = one.asked.get(shard, ("", 0.0))
            wait = self._renew_s if one.confirmed.get(shard) == tail else self._retry_s
            if tail in self._connected and (asked != tail or (is_due and self._now - at >= wait)):
                one.asked[shard] = (tail, self._now)
                out.append(Send(tail, Subscribe(shard, ticket, one.table, one.prefix, one.at.get(shard, -1))))
        return out

    def _changes_came(self, sender: str, message: Changes) -> list[Instruction]:
        one = self._subscriptions.get(message.subscription)
        if one is None:
            return [Send(sender, Unsubscribe(message.shard, message.subscription))]
        shard = message.shard
        at = one.at.get(shard)
        if at is not None and message.since > at:
            one.asked.pop(shard, None)  # something between was lost
            return self._resume(message.subscription)
        known = one.known.setdefault(shard, set())
        fresh = [(key, value) for seq, key, value in message.changes if at is None or seq > at]
        for key, value in fresh:
            known.add(key) if value is not None else known.discard(key)
        return self._progressed(one, sender, message, fresh)

    def _all_rows_came(self, sender: str, message: AllRows) -> list[Instruction]:
        one = self._subscriptions.get(message.subscription)
        if one is None or message.through < one.at.get(message.shard, -1):
            return []
        known = one.known.setdefault(message.shard, set())
        here = {key for key, _ in message.rows}
        changes: list[tuple[bytes, bytes | None]] = [(key, None) for key in sorted(known - here)]
        one.known[message.shard] = here
        return self._progressed(one, sender, message, [*changes, *message.rows])

    def _progressed(
        self, one: _Subscription, sender: str, message: Changes | AllRows, changes: list[tuple[bytes, bytes | None]]
    ) -> list[Instruction]:
        is_first = message.shard not in one.at
        one.at[message.shard] = max(one.at.get(message.shard, -1), message.through)
        one.confirmed[message.shard] = sender
        out: list[Instruction] = [TellChanges(message.subscription, changes)] if changes else []
        if is_first and one.call is not None:
            out += self._end_part(one.call)
        return out

    # ---- time ----

    def _tick(self) -> list[Instruction]:
        out: list[Instruction] = []
        for call in [call for call in self._calls.values() if call.deadline <= self._now]:
            where = "no server of it was reached" if self.configuration is None else f"by {self.name}"
            out += self._fail(
                call, f"the control store did not answer in time ({where}); a write may or may not have been done"
            )
            if (one := self._subscriptions.get(call.ticket)) is not None and one.call is call:
                del self._subscriptions[call.ticket]
        if self.configuration is None:
            return out
        for shard in self._shards:
            for number in [
                number
                for number, request in shard.reading.items()
                if not any(call.ticket in self._calls for call, _ in request.calls)
            ]:
                del shard.reading[number]
        late = [one for one in self._requests() if one.is_late(self._now, self._retry_s)]
        for request in late:
            request.repeat()
        if late:  # perhaps because a newer configuration was not heard of
            known = sorted(self._connected & set(self.configuration.servers))
            out += [Send(server, AskConfiguration(self.configuration.number)) for server in known]
        for ticket in self._subscriptions:
            out += self._resume(ticket, is_due=True)
        return out + self._send_all()
