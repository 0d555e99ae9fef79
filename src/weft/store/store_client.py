"""A client of the control store: `store/state/chain_client` over sockets, for a daemon's loop or one call at a time.

Rows of tables that never change once written (functions: their keys are hashes) are remembered here.
"""

from __future__ import annotations

import errno
import itertools
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from weft.net.endpoint import dial
from weft.net.loop import Loop, Timer
from weft.store.state import chain_calls as cc
from weft.store.state import chain_events as ev
from weft.store.state.chain_client import StoreClient
from weft.store.state.chain_messages import AnyMessage, Hello, Pulse
from weft.store.state.chain_rows import Key, Write
from weft.store.storage import check_batch, check_key
from weft.store.store_link import StoreLink
from weft.store.tables import FUNCTIONS

BUSY_S = 0.01
IDLE_S = 1.0
REDIAL_S = 0.1
PULSE_S = 1.0
SILENT_PULSES = 4
GIVE_UP_S = 30.0
CACHED_ROWS = 1024
NEVER_CHANGE = frozenset((FUNCTIONS,))
Listener = Callable[[bytes, bytes | None], None]
Done = Callable[[Any, str], None]
"""Called with the result and an empty text, or with None and why it failed."""


class ControlStoreError(RuntimeError):
    """The control store refused or did not answer; the message says which and why."""


class ControlClient:
    """In a loop. Calls return at once and call back; what is called in one round of the loop travels together."""

    def __init__(
        self,
        loop: Loop,
        name: str,
        token: bytes,
        addresses: Sequence[str],
        give_up_s: float = GIVE_UP_S,
        first_number: int = 0,
    ) -> None:
        """See `StoreClient` for `first_number`."""
        self._loop = loop
        self._token = token
        self._seeds = tuple(addresses)
        self._give_up_s = give_up_s
        self.state = StoreClient(name, first_number=first_number)
        self._links: dict[str, StoreLink] = {}
        self._unnamed: dict[StoreLink, None] = {}
        self._redial_at: dict[str, float] = {}
        self._silent: set[str] = set()
        """Servers whose last connection fell silent."""
        self._pulse_at = 0.0
        self.refused: set[str] = set()
        """Servers whose machine says that nobody listens there."""
        self._tickets = itertools.count(1)
        self._done: dict[int, Done] = {}
        self._listeners: dict[int, Listener] = {}
        self._cache: OrderedDict[Key, bytes] = OrderedDict()
        self._timer: Timer | None = None
        self._tick_at = 0.0
        self._is_closed = False
        self._round: Timer | None = None
        self._tick()

    # ---- calls ----

    def write(self, batch: Sequence[Write], done: Done) -> None:
        """True, or False when a row that must be absent is there. ValueError for what no storage takes."""
        check_batch(batch)
        now = time.monotonic()
        self._ask(cc.WriteAsked(next(self._tickets), batch, now, now + self._give_up_s), done)

    def read(self, keys: Sequence[Key], done: Done) -> None:
        """The values, None where there is no row."""
        if all(key in self._cache for key in keys):
            return done([self._cached(key) for key in keys], "")
        for table, key in keys:
            check_key(table, key)
        now = time.monotonic()

        def remember(result: Any, error: str) -> None:
            for key, value in zip(keys, result or (), strict=False):
                if key[0] in NEVER_CHANGE and value is not None:
                    self._remember(key, value)
            done(result, error)

        self._ask(cc.ReadAsked(next(self._tickets), keys, now, now + self._give_up_s), remember)
        return None

    def scan(self, table: str, prefix: bytes, done: Done) -> None:
        """The rows, by key."""
        check_key(table, prefix)
        now = time.monotonic()
        self._ask(cc.ScanAsked(next(self._tickets), table, prefix, now, now + self._give_up_s), done)

    def subscribe(self, table: str, prefix: bytes, listener: Listener, done: Done) -> Callable[[], None]:
        """Every change from when it is done on; what is returned ends it."""
        check_key(table, prefix)
        now = time.monotonic()
        ticket = next(self._tickets)
        self._listeners[ticket] = listener
        self._ask(cc.SubscribeAsked(ticket, table, prefix, now, now + self._give_up_s), done)
        return lambda: self._end_subscription(ticket)

    def flush(self) -> None:
        """What has been asked for goes out now, and not at the end of the loop's round."""
        self._end_round()

    def close(self) -> None:
        self._is_closed = True
        for timer in (self._timer, self._round):
            if timer is not None:
                timer.cancel()
        for link in [*self._links.values(), *self._unnamed]:
            link.close()

    def _ask(self, event: ev.Event, done: Done) -> None:
        self._done[getattr(event, "ticket")] = done  # noqa: B009
        self._carry(self.state.handle(event))
        if self._round is None:
            self._round = self._loop.call_later(0, self._end_round)
        if self._tick_at > time.monotonic() + BUSY_S:
            self._tick_in(BUSY_S)

    def _end_subscription(self, ticket: int) -> None:
        self._listeners.pop(ticket, None)
        self._done.pop(ticket, None)
        self._feed(cc.SubscriptionEnded(ticket))

    def _cached(self, key: Key) -> bytes:
        self._cache.move_to_end(key)
        return self._cache[key]

    def _remember(self, key: Key, value: bytes) -> None:
        self._cache[key] = value
        if len(self._cache) > CACHED_ROWS:
            self._cache.popitem(last=False)

    # ---- links ----

    def _dial_missing(self, now: float) -> None:
        current = self.state.configuration
        wanted = {address: address for address in self._seeds} if current is None else current.servers
        dialling = {link.dialled for link in self._unnamed}
        for name, address in wanted.items():
            is_due = self._redial_at.get(name, 0.0) <= now and address
            if name not in self._links and name not in dialling and is_due:
                self._redial_at[name] = now + REDIAL_S
                try:
                    connection, error, tls = dial(address, name in self._silent)
                except OSError:  # no descriptor is left now
                    continue
                self._silent.discard(name)
                calls = (self._ready, self._messages, self._closed)
                link = StoreLink(self._loop, connection, self._token, False, *calls, error, tls)
                link.dialled = name
                self._unnamed[link] = None

    def _pulse(self, now: float) -> None:
        """An idle client is told of a dead connection by the kernel; one that waits asks whether the server lives."""
        if self.state.is_busy and now >= self._pulse_at:
            self._pulse_at = now + PULSE_S
            for link in list(self._links.values()):
                link.beat(Pulse(), SILENT_PULSES)

    def _ready(self, link: StoreLink) -> None:
        link.send(Hello(self.state.name))
        link.flush()

    def _closed(self, link: StoreLink, reason: str, code: int) -> None:
        self._unnamed.pop(link, None)
        if code == errno.ECONNREFUSED and link.dialled:
            self.refused.add(link.dialled)
        if code == errno.ETIMEDOUT:
            self._silent.add(link.peer or link.dialled)
        if not self._is_closed and link.peer and self._links.get(link.peer) is link:
            del self._links[link.peer]
            self._feed(ev.PeerLost(link.peer, False, time.monotonic()))

    def _messages(self, link: StoreLink, messages: list[AnyMessage]) -> None:
        now = time.monotonic()
        for message in messages:
            if isinstance(message, Hello):
                self._unnamed.pop(link, None)
                self.refused.discard(message.name)
                link.peer = message.name
                before = self._links.get(message.name)
                self._links[message.name] = link
                if before is not None:  # it was dialled by its address, and then by its name; a server uses the newer
                    before.close()
                self._carry(self.state.handle(ev.PeerConnected(message.name, now)))
            elif not isinstance(message, Pulse):
                self._carry(self.state.handle(ev.Received(link.peer, message, now)))
        if not self._is_closed:
            self._end_round()
        return None

    # ---- events and instructions ----

    def _feed(self, event: ev.Event) -> None:
        self._carry(self.state.handle(event))
        self._end_round()

    def _end_round(self) -> None:
        if self._round is not None:
            self._round.cancel()
            self._round = None
        self._carry(self.state.handle(ev.RoundEnded()))
        for link in list(self._links.values()):
            link.flush()

    def _carry(self, instructions: list[ev.Instruction]) -> None:
        for one in instructions:
            if isinstance(one, ev.Send):
                if (link := self._links.get(one.to)) is not None:
                    link.send(one.message)
            elif isinstance(one, cc.Complete):
                if (done := self._done.pop(one.ticket, None)) is not None:
                    done(one.result, "")
            elif isinstance(one, cc.Fail):
                self._listeners.pop(one.ticket, None)
                if (done := self._done.pop(one.ticket, None)) is not None:
                    done(None, one.reason)
            elif isinstance(one, cc.TellChanges):
                for key, value in one.changes:
                    if (listener := self._listeners.get(one.ticket)) is not None:
                        listener(key, value)
            elif isinstance(one, ev.KeepConfiguration):
                self._dial_missing(time.monotonic())
            else:
                raise TypeError(f"{type(one).__name__} is no instruction for a client")

    def _tick_in(self, delay: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._tick_at = time.monotonic() + delay
        self._timer = self._loop.call_later(delay, self._tick)

    def _tick(self) -> None:
        now = time.monotonic()
        self._pulse(now)
        self._dial_missing(now)
        self._feed(ev.Ticked(now))
        current = self.state.configuration
        is_whole = current is not None and all(name in self._links for name in current.servers)
        self._tick_in(IDLE_S if is_whole and not self.state.is_busy else BUSY_S if self.state.is_busy else REDIAL_S)


class BlockingClient:
    """One call at a time, in the caller's thread; for tests, tools and measurements."""

    def __init__(self, name: str, token: bytes, addresses: Sequence[str], give_up_s: float = GIVE_UP_S) -> None:
        self.loop = Loop()
        self.client = ControlClient(self.loop, name, token, addresses, give_up_s)

    def write(self, batch: Sequence[Write]) -> bool:
        return bool(self.wait_for(lambda done: self.client.write(batch, done)))

    def read(self, keys: Sequence[Key]) -> list[bytes | None]:
        values: list[bytes | None] = self.wait_for(lambda done: self.client.read(keys, done))
        return values

    def scan(self, table: str, prefix: bytes = b"") -> list[tuple[bytes, bytes]]:
        rows: list[tuple[bytes, bytes]] = self.wait_for(lambda done: self.client.scan(table, prefix, done))
        return rows

    def subscribe(self, table: str, prefix: bytes, listener: Listener) -> Callable[[], None]:
        ends: list[Callable[[], None]] = []
        self.wait_for(lambda done: ends.append(self.client.subscribe(table, prefix, listener, done)))
        return ends[0]

    def wait_for(self, call: Callable[[Done], object]) -> Any:
        """The result of a call that is given what to call back. Raises ControlStoreError."""
        answer: list[tuple[Any, str]] = []
        call(lambda result, error: answer.append((result, error)))
        self.client.flush()
        while not answer:
            self.loop.run_once(BUSY_S)
        result, error = answer[0]
        if error:
            raise ControlStoreError(error)
        return result

    def run_for(self, wait_s: float) -> None:
        """Let what comes be handled."""
        self.loop.run_once(wait_s)

    def close(self) -> None:
        self.client.close()
        self.loop.close()
