"""The modelled network: links like TCP connections, with latency, loss, partitions and bandwidth.

A link delivers in order, once, or breaks. A lost message is sent again later and holds up those behind it. A partition
holds everything back; what is still on its way when it heals arrives then, unless the link was given up meanwhile.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any, Protocol

from weft.engine.cluster.transport import LinkEvents
from weft.engine.wire.link import Records, Sending
from weft.engine.wire.link_messages import Fault, LinkMessage
from weft.net.pulse import DEAD_S
from weft.testing.simulate.clock import Clock
from weft.testing.simulate.costs import Wire

HANDSHAKES = 2
"""Round trips before a link can be trusted."""
CLOSED_BY_OTHER = "the other node closed the connection"
RESET = 0.1
"""The share of closed links whose other end does not read what was sent last: what had come to the closing end and was
not read there makes the kernel reset the connection. The rest is read to the end."""


class Host(Protocol):
    """A machine on the network."""

    address: str
    is_up: bool

    def busy_until(self, work_s: float) -> float:
        """When its daemon is done with so much work that comes now."""

    def when_awake(self, call: Callable[[], None]) -> None:
        """Now, or when its daemon goes on."""


class Network:
    """All links, and what keeps messages back."""

    def __init__(self, clock: Clock, wire: Wire, rng: random.Random, resets: random.Random) -> None:
        self.clock = clock
        self.wire = wire
        self.rng = rng
        self.resets = resets
        self.messages = 0
        self.bytes = 0
        self.hosts: dict[str, SimTransport] = {}
        self._sides: dict[str, int] = {}
        """Of a partition: hosts on different sides do not reach each other."""
        self._cut: set[frozenset[str]] = set()
        self._mute: set[str] = set()
        self._lost: set[tuple[str, str]] = set()
        """(source, target)."""
        self.broken_at = 0.0
        """When some were last cut off from others."""
        self._held: list[tuple[str, str, Callable[[], None]]] = []
        """What is on no link yet."""
        self.stalled: dict[SimLink, None] = {}
        """Links that have messages which could not be sent, in the order in which they stalled."""
        self._out_free: dict[str, float] = {}
        self._in_free: dict[str, float] = {}

    # ---- faults ----

    def partition(self, sides: dict[str, int]) -> None:
        self._sides, self.broken_at = sides, self.clock.now

    def cut(self, one: str, other: str) -> None:
        self._cut.add(frozenset((one, other)))
        self.broken_at = self.clock.now

    def mute(self, source: str) -> None:
        """What that host sends is lost; it hears all that is sent to it."""
        self._mute.add(source)
        self.broken_at = self.clock.now

    def lose(self, source: str, target: str) -> None:
        """What the one sends to the other is lost."""
        self._lost.add((source, target))
        self.broken_at = self.clock.now

    def heal(self, slowest_s: float = 0.0) -> None:
        """All reach each other again; what was held back is sent again, on each link after so long at most: the two
        ends find out by themselves, and not at the same time."""
        self._sides = {}
        self._cut.clear()
        self._mute.clear()
        self._lost.clear()
        held, self._held = self._held, []
        for source, target, send in held:
            self.clock.after(self.delay(source, target), send)
        stalled, self.stalled = list(self.stalled), {}
        for link in stalled:
            if slowest_s:
                self.clock.after(self.rng.random() * slowest_s, link.send_held)
            else:
                link.send_held()

    def reaches(self, source: str, target: str) -> bool:
        if self._sides and self._sides.get(source, 0) != self._sides.get(target, 0):
            return False
        if source in self._mute and source != target:
            return False
        if (source, target) in self._lost:
            return False
        return not self._cut or frozenset((source, target)) not in self._cut

    # ---- messages ----

    def delay(self, source: str, target: str) -> float:
        """Of one message that is sent now."""
        wire = self.wire
        delay = wire.latency_s + (self.rng.random() * wire.jitter_s if wire.jitter_s else 0.0)
        waited, wait = 0.0, wire.resend_s
        while wire.loss and self.rng.random() < wire.loss:
            waited, wait = waited + wait, 2 * wait
            if waited > DEAD_S:  # the connection is given up by then, and another carries what was not confirmed
                delay, waited, wait = delay + DEAD_S, 0.0, wire.resend_s
        return delay + waited

    def carry(self, source: str, target: str, deliver: Callable[[], None]) -> None:
        """Have it delivered, in no order with others."""
        self.messages += 1
        if self.reaches(source, target):
            self.clock.after(self.delay(source, target), deliver)
        else:
            self._held.append((source, target, deliver))

    def transfer(self, source: str, target: str, size: int) -> float:
        """When so many bytes have gone from one host to the other, which share their bandwidth with others."""
        self.bytes += size
        took = size / self.wire.bandwidth
        begin = max(self.clock.now, self._out_free.get(source, 0.0), self._in_free.get(target, 0.0))
        end = begin + took
        self._out_free[source] = self._in_free[target] = end
        return end + self.delay(source, target)


class SimLink:
    """One end of a link; see `wire.link.Link`."""

    def __init__(self, transport: SimTransport) -> None:
        self._transport = transport
        self._network = transport.network
        self.other: SimLink | None = None
        self.peer = 0
        self.address = ""
        self.records: Records | None = None
        self.is_closed = False
        self.fault = Fault.OTHER
        self.is_ready = False
        self._last = 0.0
        """When the last message that was sent arrives."""
        self._held: list[Callable[[], None]] = []

    def send(self, message: LinkMessage) -> None:
        self.carry(self._arrive, message)

    def carry(self, deliver: Callable[..., None], *args: object) -> None:
        """Deliver at the other end, in order, if the link is still there."""
        other = self.other
        if self.is_closed or other is None:
            return
        self._in_order(other, lambda: other._take(deliver, args))

    def _in_order(self, other: SimLink, deliver: Callable[[], None]) -> None:
        network = self._network
        network.messages += 1
        source, target = self._transport.address, other._transport.address
        if self._held or not network.reaches(source, target):
            self._held.append(deliver)
            network.stalled[self] = None
            return
        self._last = max(network.clock.now + network.delay(source, target), self._last)
        network.clock.at(self._last, deliver)

    def send_held(self) -> None:
        """The network is whole again."""
        held, self._held = self._held, []
        assert self.other is not None
        for deliver in held:
            self._network.messages -= 1
            self._in_order(self.other, deliver)

    def _take(self, deliver: Callable[..., None], args: tuple[object, ...]) -> None:
        """It has arrived; the daemon sees to it when it has time."""
        if self.is_closed or not self._transport.host.is_up:
            return
        when = self._transport.host.busy_until(self._transport.message_s)
        self._network.clock.at(when, self._handle, deliver, args)

    def _handle(self, deliver: Callable[..., None], args: tuple[object, ...]) -> None:
        def handle() -> None:
            if not self.is_closed and self._transport.host.is_up:
                deliver(self, *args)

        self._transport.host.when_awake(handle)

    @staticmethod
    def _arrive(at: SimLink, message: LinkMessage) -> None:
        at._transport.events.received(at, message)

    @property
    def is_severed(self) -> bool:
        """The kernel has found the connection dead."""
        network, other = self._network, self.other
        if other is None or network.clock.now - network.broken_at < DEAD_S:
            return False
        here, there = self._transport.address, other._transport.address
        return not (network.reaches(here, there) and network.reaches(there, here))

    def pulse(self) -> None:
        """A connection that is dead is modelled as one that is late."""

    def send_parts(self) -> None:
        """Nothing is ever passed on in parts: objects have no bytes here."""

    def drop_chunk(self, transfer: int) -> None:
        """No chunk is ever on its way."""

    def send_bulk(self, sending: Sending) -> None:
        raise NotImplementedError("objects are pulled by the model of the processes")

    def send_records(self) -> None:
        batch = self.records.take() if self.records is not None else b""
        if batch:
            self.carry(self._records_arrive, batch)

    @staticmethod
    def _records_arrive(at: SimLink, batch: Any) -> None:
        at._transport.events.records_came(at, batch)

    def close(self, reason: str = "") -> None:
        if self.is_closed:
            return
        self.is_closed = True
        other = self.other
        if other is not None and not other.is_closed:
            if self._network.resets.random() < RESET:
                self._in_order(other, lambda: other._broken(CLOSED_BY_OTHER, Fault.CLOSED))
            else:
                self._in_order(other, lambda: other._take(SimLink._broken, (CLOSED_BY_OTHER, Fault.CLOSED)))
        self._transport.links.pop(self, None)
        self._transport.events.closed(self, reason)

    def _broken(self, reason: str, fault: Fault = Fault.OTHER) -> None:
        def break_up() -> None:
            if not self.is_closed and self._transport.host.is_up:
                self.fault = fault
                self.close(reason)

        self._transport.host.when_awake(break_up)


class SimTransport:
    """One node's end of the network; see `cluster.transport.Transport`."""

    def __init__(self, network: Network, host: Host, message_s: float) -> None:
        self.network = network
        self.host = host
        self.address = host.address
        self.message_s = message_s
        self.events: LinkEvents
        self.links: dict[SimLink, None] = {}
        network.hosts[self.address] = self

    def open(self, events: LinkEvents) -> None:
        self.events = events

    def connect(self, address: str) -> SimLink:
        link = SimLink(self)
        self.links[link] = None
        self.network.carry(self.address, address, lambda: self._reached(link, address))
        self.network.clock.after(10.0, self._too_slow, link)
        return link

    def _reached(self, link: SimLink, address: str) -> None:
        target = self.network.hosts.get(address)
        if link.is_closed or not self.host.is_up:
            return
        if target is None or not target.host.is_up:
            self.network.carry(address, self.address, lambda: link._broken("Connection refused", Fault.REFUSED))
            return
        other = SimLink(target)
        link.other, other.other = other, link
        target.links[other] = None
        target.host.when_awake(lambda: self._accepted(link, other, target))

    def _accepted(self, link: SimLink, other: SimLink, target: SimTransport) -> None:
        """The other daemon has taken the connection, and answers."""
        if other.is_closed or not target.host.is_up:
            return
        target.events.accepted(other)
        rest = HANDSHAKES * 2 * self.network.wire.latency_s
        answer = functools.partial(self.network.clock.after, rest, self._shaken, link)
        self.network.carry(target.address, self.address, answer)

    def _shaken(self, link: SimLink) -> None:
        def ready() -> None:
            if not link.is_closed and self.host.is_up:
                link.is_ready = True
                self.events.ready(link)

        self.host.when_awake(ready)

    def _too_slow(self, link: SimLink) -> None:
        if not link.is_ready and not link.is_closed and self.host.is_up:
            link._broken("refused: the handshake was not finished in time")

    def close(self) -> None:
        self.network.hosts.pop(self.address, None)

    def crashed(self) -> None:
        """The machine is gone at once; the others' kernels find out when they next reach it."""
        self.network.hosts.pop(self.address, None)
        for link in list(self.links):
            link.is_closed = True

    def reset_peers(self) -> None:
        """The process died but its machine lives: its kernel closes the connections."""
        self.network.hosts.pop(self.address, None)
        for link in list(self.links):
            link.is_closed = True
            other = link.other
            if other is not None and not other.is_closed:
                link._in_order(other, functools.partial(other._take, SimLink._broken, (CLOSED_BY_OTHER, Fault.CLOSED)))
