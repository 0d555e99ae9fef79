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

from collections.abc import Sequence

from weft.store.state.chain_calls import (
    Call,
    Complete,
    Fail,
    ReadAsked,
    Request,
    ScanAsked,
    ShardCalls,
    SubscribeAsked,
    SubscriptionEnded,
    WriteAsked,
)
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
    WriteRefused,
    WriteReply,
    WriteRequest,
)
from weft.store.state.chain_rows import Put, Write
from weft.store.state.chain_subscriptions import Subscriptions

REQUEST_WRITES = 4096
REQUEST_BYTES = 8 << 20
RETRY_S = 1.0
"""An answer that takes longer is asked for again, and each time after twice as long."""
RENEW_S = 5.0


class StoreClient:
    """One client, by a name that no other has had, or with a number above all that others of that name have used.

    Of clients of one name only the last can write: a shard that has done one of its requests refuses the others'."""

    def __init__(self, name: str, retry_s: float = RETRY_S, renew_s: float = RENEW_S, first_number: int = 0) -> None:
        self.name = name
        self._first_number = first_number
        self.configuration: Configuration | None = None
        self._retry_s = retry_s
        self._now = 0.0
        self._connected: set[str] = set()
        self._shards: list[ShardCalls] = []
        self._early: list[Event] = []
        """Calls made before a configuration was known."""
        self._calls: dict[int, Call] = {}
        self._subscriptions = Subscriptions(self._connected, retry_s, renew_s, self._end_part)

    @property
    def is_busy(self) -> bool:
        """Whether the next tick should come soon."""
        return bool(self._calls)

    # ---- events ----

    def handle(self, event: Event) -> list[Instruction]:
        self._now = self._subscriptions.now = getattr(event, "now", self._now)
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
            self._calls.pop(event.ticket, None)
            return self._subscriptions.end(event.ticket)
        if isinstance(event, WriteAsked | ReadAsked | ScanAsked | SubscribeAsked):
            if self.configuration is None:
                self._early.append(event)
                self._calls[event.ticket] = Call(event.ticket, 1, [], event.deadline)
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
        call = self._calls[event.ticket] = Call(event.ticket, len(self._shards), [], event.deadline)
        return self._subscriptions.begin(call, event.table, event.prefix)

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
        call = self._calls[event.ticket] = Call(event.ticket, len(parts), [True], event.deadline)
        for shard, writes in parts.items():
            self._shards[shard].queue.append((call, writes))
        return []

    def _read(self, event: ReadAsked) -> list[Instruction]:
        parts: dict[int, list[int]] = {}
        for index, (_, key) in enumerate(event.keys):
            parts.setdefault(shard_of(key, len(self._shards)), []).append(index)
        if not parts:
            return [Complete(event.ticket, [])]
        call = Call(event.ticket, len(parts), [None] * len(event.keys), event.deadline)
        self._calls[event.ticket] = call
        for shard, places in parts.items():
            self._shards[shard].to_read.append((call, places, [event.keys[place] for place in places]))
        return []

    def _scan(self, event: ScanAsked) -> list[Instruction]:
        call = self._calls[event.ticket] = Call(event.ticket, len(self._shards), [], event.deadline)
        for shard, state in enumerate(self._shards):
            state.number += 1
            request = ReadRequest(shard, state.number, (), event.table, event.prefix)
            state.reading[state.number] = Request(request, [(call, [])])
        return []

    def _end_part(self, call: Call) -> list[Instruction]:
        call.parts -= 1
        if call.parts > 0 or self._calls.pop(call.ticket, None) is None:
            return []
        return [Complete(call.ticket, call.result)]

    def _fail(self, call: Call, reason: str) -> list[Instruction]:
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
            shard.reading[shard.number] = Request(ReadRequest(number, shard.number, keys), calls)
            shard.to_read = []
        assert self.configuration is not None
        chain = self.configuration.chains[number]
        out: list[Instruction] = []
        if shard.writing is not None:
            out += self._send_one(shard.writing, chain.head.server)
        for request in shard.reading.values():
            out += self._send_one(request, chain.tail.server)
        return out

    def _fill_request(self, number: int, shard: ShardCalls) -> None:
        batches: list[Sequence[Write]] = []
        calls: list[tuple[Call, list[int]]] = []
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
            shard.writing = Request(WriteRequest(number, self.name, shard.number, batches), calls, size)

    def _send_one(self, request: Request, server: str) -> list[Instruction]:
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
            self._subscriptions.lost(lost)
        return self._send_all()

    def _send_all(self) -> list[Instruction]:
        out = [one for shard in range(len(self._shards)) for one in self._send(shard)]
        return out + self._subscriptions.resume()

    def _requests(self) -> list[Request]:
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
            return self._subscriptions.changes_came(sender, message)
        if isinstance(message, AllRows):
            return self._subscriptions.all_rows_came(sender, message)
        raise TypeError(f"a {type(message).__name__} of {sender} is no message for a client")

    def _learn(self, configuration: Configuration) -> list[Instruction]:
        before = self.configuration
        if before is not None and before.number >= configuration.number:
            return []
        self.configuration = self._subscriptions.configuration = configuration
        out: list[Instruction] = [KeepConfiguration(configuration)]
        if before is None:
            self._shards = [ShardCalls(self._first_number) for _ in configuration.chains]
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

    # ---- time ----

    def _tick(self) -> list[Instruction]:
        out: list[Instruction] = []
        for call in [call for call in self._calls.values() if call.deadline <= self._now]:
            where = "no server of it was reached" if self.configuration is None else f"by {self.name}"
            out += self._fail(
                call, f"the control store did not answer in time ({where}); a write may or may not have been done"
            )
            self._subscriptions.failed(call)
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
        return out + self._subscriptions.resume(is_due=True) + self._send_all()
