"""The bytes of objects on their way between nodes, in chunks, straight into and out of the arena.

Runs in the daemon's thread. A pull has its memory before it asks for the first byte (`state.admission`). The object's
origin says where to take it from (`state.copies`): from itself, from nodes that have it, each a part, or from one that
is receiving it and passes every chunk on as it comes. A source that fails is replaced for what is missing.

PUL-1  A chunk that came counts once, from whomever it came.
PUL-2  Nothing is written to a pull's memory once it is over, also when a second source still sends.
PUL-3  What is passed on from a pull that is not over, and not sent at once, is copied: its memory may go at any moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container
from typing import TypeAlias

from weft import _native
from weft.engine.cluster.transport import NodeLink
from weft.engine.node.room import RETRY_S, WAIT_S
from weft.engine.node.spilling import Done, Spilling, why_not
from weft.engine.state.admission import Admission
from weft.engine.state.copies import Copies
from weft.engine.wire import link_messages as lm
from weft.engine.wire.link import CHUNK_BYTES
from weft.engine.wire.link_messages import GlobalObject
from weft.net.loop import Loop
from weft.observe import event_records

DAEMON_SLOT = 0
STRIPE_BYTES = 16 << 20
"""A part of an object that is worth a source of its own."""
Entry: TypeAlias = tuple[int, int]
"""(entry, generation) of this node's object table."""
Range: TypeAlias = tuple[int, int]
"""From, to: in bytes, beginning at a chunk."""
GONE, LOST = "gone", "lost"
"""How a pull fails when the object is freed, or its origin is no more."""


class TransferNumbers:
    """Names of transfers in the heads of chunks, in 32 bits: given again when all were, but none that is in use."""

    def __init__(self, most: int = 0xFFFFFFFF) -> None:
        self._most = most
        self._last = 0

    def next(self, used: Container[int]) -> int:
        """From 1 on."""
        self._last = self._last % self._most + 1
        while self._last in used:
            self._last = self._last % self._most + 1
        return self._last


class Pull:
    """A transfer to this node."""

    def __init__(self, number: int, entry: Entry, origin: GlobalObject) -> None:
        self.number = number
        self.entry = entry
        self.origin = origin
        self.size = origin[3]
        self.began_ns = time.monotonic_ns()
        self.view: memoryview | None = None
        """The memory that was set aside for it."""
        self.sources: dict[int, list[Range]] = {}
        self.orphans: list[Range] = [(0, self.size)]
        """What nobody has been asked for yet, or was and failed."""
        self.failed: set[int] = set()
        self.relays: list[Outgoing] = []
        self._has = bytearray((self.size + CHUNK_BYTES - 1) // CHUNK_BYTES)
        self.missing = len(self._has)

    def has(self, offset: int) -> bool:
        return bool(self._has[offset // CHUNK_BYTES])

    def came(self, offset: int) -> None:
        index = offset // CHUNK_BYTES
        self.missing -= not self._has[index]
        self._has[index] = 1

    def is_chunk(self, offset: int, size: int) -> bool:
        return offset % CHUNK_BYTES == 0 and offset < self.size and size == min(CHUNK_BYTES, self.size - offset)

    def source_failed(self, node: int) -> None:
        self.failed.add(node)
        self.orphans += self.give_up_source(node)

    def give_up_source(self, node: int) -> list[Range]:
        """What it was to send and did not."""
        return [run for part in self.sources.pop(node, ()) for run in missing_runs(self._has, part, self.size)]


class Outgoing:
    """A part of an object on its way to another node; see `wire.link.Sending`."""

    def __init__(self, link: NodeLink, transfer: int, part: Range) -> None:
        self.link = link
        self.transfer = transfer
        self.at, self.end = part
        self.data: memoryview | None = None
        self.pull: Pull | None = None
        """Where the bytes come from, while they are still coming."""
        self.unpin: Callable[[], None] = lambda: None

    @property
    def is_over(self) -> bool:
        return self.at >= self.end

    @property
    def is_fleeting(self) -> bool:
        return self.pull is not None

    def take(self) -> tuple[int, memoryview | bytes] | None:
        if self.is_over or self.data is None or (self.pull is not None and not self.pull.has(self.at)):
            return None
        offset = self.at
        part = self.data[offset : min(offset + CHUNK_BYTES, self.end)]
        self.at += len(part)
        # The last part is copied, so that the object need not be kept until the socket has taken it.
        return offset, bytes(part) if self.is_over else part

    def give_up(self) -> None:
        self.at = self.end

    def finish(self) -> None:
        self.give_up()
        self.data = None
        if self.pull is not None:
            self.pull.relays.remove(self)
            self.pull = None
        self.unpin()
        self.unpin = lambda: None


class Pulls:
    """All transfers to and from a node."""

    def __init__(
        self,
        port: _native.NodePort,
        loop: Loop,
        spilling: Spilling,
        send: Callable[[int, lm.LinkMessage], bool],
        drop_chunks: Callable[[int], None],
        on_end: Callable[[Entry, str], None],
    ) -> None:
        self._port = port
        self._loop = loop
        self._spilling = spilling
        self._stuck_since: float | None = None
        """Since when nothing could be pulled for want of room."""
        self._is_waiting = self._is_making_room = False
        self._send = send
        """To the node of that number; False when there is no link to it."""
        self._drop_chunks = drop_chunks
        """Of a transfer: nothing more of it is written to memory."""
        self._on_end = on_end
        """Of (entry, why it failed: GONE, LOST, a sentence, or empty)."""
        self._pulls: dict[int, Pull] = {}
        self._by_entry: dict[Entry, Pull] = {}
        self._numbers = TransferNumbers()
        self._admission: Admission[int] = Admission()
        self.copies: dict[Entry, Copies] = {}
        """Of this node's objects, those that others have asked for."""

    # ---- bytes come in ----

    def begin(self, entry: Entry, origin: GlobalObject) -> None:
        pull = Pull(self._numbers.next(self._pulls), entry, origin)
        self._pulls[pull.number] = self._by_entry[entry] = pull
        self._go_on(self._admission.asked(pull.number, self._claim))

    def has_arrivals(self) -> bool:
        """Whether memory is taken by objects that are on their way here, and can be spilled once they are whole."""
        return any(pull.view is not None for pull in self._pulls.values())

    def is_pulled(self, entry: Entry) -> bool:
        return entry in self._by_entry

    def moved(self, entry: Entry, origin: GlobalObject) -> None:
        """The object has another origin from now on."""
        if (pull := self._by_entry.get(entry)) is not None:
            pull.origin = origin

    def _claim(self, number: int) -> bool:
        """Set its memory aside. Also True when the object is gone: it needs none."""
        pull = self._pulls[number]
        if not self._port.exists(*pull.entry):
            return True
        pull.view = self._port.begin_receiving(*pull.entry, pull.size)
        if pull.view is None and not self._is_making_room:
            self._is_making_room = True
            self._spilling.make_room(pull.size, self._room_made)
        return pull.view is not None

    def _room_made(self, done: Done) -> None:
        self._is_making_room = False
        self._go_on(self._admission.tried_again(self._claim) if done.code == "done" else [])

    def _go_on(self, admitted: list[int]) -> None:
        for number in admitted:
            self._stuck_since = None
            self._ask(self._pulls[number])
        if not self._admission.is_stuck or self._waits_for_room():
            return
        if (hopeless := self._admission.take_hopeless()) is not None:
            size, why = self._pulls[hopeless].size, self._spilling.trouble
            text = f"there is no room for its {size} bytes in this node's object store"
            self._end(hopeless, f"{text}, and {why}" if why else text)

    def _waits_for_room(self) -> bool:
        """As long as it is being made; or others read what could make it, or the disk is full, for a while."""
        if self._is_making_room:
            return True
        now = self._loop.now()
        if self._stuck_since is None:
            self._stuck_since = now
        elif now - self._stuck_since > WAIT_S:
            return False
        if not (self._spilling.trouble or self._port.room_may_come(DAEMON_SLOT)):
            return False
        if not self._is_waiting:
            self._is_waiting = True
            self._loop.call_later(RETRY_S, self._try_again)
        return True

    def _try_again(self) -> None:
        self._is_waiting = False
        self._go_on(self._admission.tried_again(self._claim))

    def _ask(self, pull: Pull) -> None:
        """For sources of what is missing."""
        node, entry, generation, _ = pull.origin
        if pull.view is None:
            self._end(pull.number, GONE)
        elif node in pull.failed:
            self._end(pull.number, LOST)
        elif pull.size <= CHUNK_BYTES:
            self.sources_came(lm.Sources(pull.number, [node]))
        elif not self._send(node, lm.FindObject(pull.number, entry, generation, list(pull.failed))):
            self._end(pull.number, LOST)

    def sources_came(self, message: lm.Sources) -> None:
        pull = self._pulls.get(message.transfer)
        if pull is None or not message.nodes:
            return
        orphans, pull.orphans = pull.orphans, []
        for part in orphans:
            for node, (begin, end) in split(part, message.nodes):
                pull.sources.setdefault(node, []).append((begin, end))
                if not self._send(node, lm.Pull(pull.number, *pull.origin[:3], begin, end)):
                    pull.source_failed(node)
        if pull.orphans:
            self._ask(pull)

    def chunk_target(self, transfer: int, offset: int, size: int) -> memoryview | None:
        """Where a chunk belongs; None when nobody wants it any more."""
        pull = self._pulls.get(transfer)
        if pull is None or pull.view is None or not pull.is_chunk(offset, size):
            return None
        return pull.view[offset : offset + size]

    def chunk_came(self, transfer: int, offset: int) -> None:
        pull = self._pulls.get(transfer)
        if pull is None:
            return
        pull.came(offset)
        for relay in list(pull.relays):
            if relay.at == offset:
                relay.link.send_parts()
        if not pull.missing:
            self._end(transfer, "")

    def refused(self, node: int, message: lm.PullFailed) -> None:
        """A source has it no more, or cannot send it."""
        pull = self._pulls.get(message.transfer)
        if pull is None:
            return
        if node == pull.origin[0]:
            self._end(pull.number, message.reason or GONE)
        else:
            pull.source_failed(node)
            self._ask(pull)

    def node_gone(self, node: int) -> None:
        for copies in self.copies.values():
            copies.node_gone(node)
        for pull in list(self._pulls.values()):
            if node == pull.origin[0]:
                self._end(pull.number, LOST)
            elif node in pull.sources:
                pull.source_failed(node)
                if pull.orphans:
                    self._ask(pull)

    def resumed(self, node: int) -> None:
        """What that node was sending is lost, and it is still there: it is asked again for what did not come."""
        for pull in list(self._pulls.values()):
            for part in pull.give_up_source(node):
                pull.sources.setdefault(node, []).append(part)
                self._send(node, lm.Pull(pull.number, *pull.origin[:3], *part))

    def _end(self, number: int, why: str) -> None:
        pull = self._pulls.pop(number, None)
        if pull is None:
            return
        del self._by_entry[pull.entry]
        if pull.view is not None:
            self._drop_chunks(number)
            pull.view = None
            self._port.end_receiving(*pull.entry, not why)
            if not why:
                spent_ns = time.monotonic_ns() - pull.began_ns
                self._port.record(event_records.RECEIVED, pull.began_ns, spent_ns, pull.size, f"node {pull.origin[0]}")
        for relay in list(pull.relays):
            self._end_relay(relay, pull.entry, not why)
        node, entry, generation, size = pull.origin
        if size > CHUNK_BYTES:
            self._send(node, lm.Copied(entry, generation, not why))
        self._on_end(pull.entry, why)
        self._go_on(self._admission.ended(number, self._claim))

    # ---- bytes go out ----

    def find_came(self, link: NodeLink, number: int, message: lm.FindObject) -> None:
        """Another node wants an object of this one."""
        entry = (message.entry, message.generation)
        if not self._port.exists(*entry):
            link.send(lm.PullFailed(message.transfer, ""))
            return
        copies = self.copies.setdefault(entry, Copies(number))
        link.send(lm.Sources(message.transfer, copies.asked(link.peer, message.without)))

    def copied_came(self, node: int, message: lm.Copied) -> None:
        if (copies := self.copies.get((message.entry, message.generation))) is not None:
            copies.ended(node, message.ok)

    def serve(self, link: NodeLink, entry: Entry | None, message: lm.Pull) -> None:
        """Send a part of what is known here as `entry`, or is on its way here."""
        outgoing = Outgoing(link, message.transfer, (message.begin, message.end))
        pull = None if entry is None else self._by_entry.get(entry)

        def begin(why: str) -> None:
            if why:
                outgoing.finish()
                link.send(lm.PullFailed(message.transfer, "" if why == GONE else why))
                return
            link.send_bulk(outgoing)
            size = message.end - message.begin
            self._port.record(event_records.SENT, time.monotonic_ns(), 0, size, f"node {link.peer}")

        if pull is not None and pull.view is not None and message.end <= pull.size:
            outgoing.pull, outgoing.data = pull, pull.view
            pull.relays.append(outgoing)
            begin("")
        elif entry is None or message.begin % CHUNK_BYTES:
            begin(GONE)
        else:
            self._pin(outgoing, entry, begin)

    def _pin(self, outgoing: Outgoing, entry: Entry, then: Callable[[str], None]) -> None:
        """Then: empty, and it has its bytes; else GONE, or a sentence why they cannot be read."""
        deadline = self._loop.now() + WAIT_S

        def try_it() -> None:
            data = self._port.begin_sending(*entry)
            if data is None:
                self._spilling.bring_back(*entry, came)
                return
            outgoing.data = data
            outgoing.unpin = lambda: self._port.end_sending(*entry)
            then("" if outgoing.end <= len(data) else GONE)

        def came(done: Done) -> None:
            if done.code == "done":
                try_it()
            elif done.code == "no_room" and self._loop.now() < deadline:
                self._loop.call_later(RETRY_S, try_it)
            else:
                then(GONE if done.code in ("gone", "elsewhere") else f"on its node, {why_not(done)}")

        try_it()

    def _end_relay(self, relay: Outgoing, entry: Entry, ok: bool) -> None:
        """What it was taken from is whole now, or will never be."""
        assert relay.pull is not None
        relay.pull.relays.remove(relay)
        relay.pull, relay.data = None, None

        def go_on(why: str) -> None:
            if relay.is_over:  # its link has ended meanwhile
                relay.finish()
            elif why:
                relay.give_up()
                relay.link.send(lm.PullFailed(relay.transfer, "it did not come to the node that was to pass it on"))
            relay.link.send_parts()

        if ok:
            self._pin(relay, entry, go_on)
        else:
            go_on(LOST)


def split(part: Range, nodes: list[int]) -> list[tuple[int, Range]]:
    """Which node sends which part; beginning at chunks, and none too small to be worth it.

    >>> split((0, 40 << 20), [7, 8]) == [(7, (0, 20 << 20)), (8, (20 << 20, 40 << 20))]
    True
    >>> split((0, 1000), [7, 8])
    [(7, (0, 1000))]
    """
    begin, end = part
    count = max(1, min(len(nodes), (end - begin) // STRIPE_BYTES))
    chunks = (end - begin + CHUNK_BYTES - 1) // CHUNK_BYTES
    edges = [begin + chunks * index // count * CHUNK_BYTES for index in range(count)] + [end]
    return [(nodes[index], (edges[index], edges[index + 1])) for index in range(count)]


def missing_runs(has: bytearray, part: Range, size: int) -> list[Range]:
    """The stretches of a part that did not come.

    >>> missing_runs(bytearray([1, 0, 0, 1, 0]), (0, 5 << 20), 5 << 20) == [(1 << 20, 3 << 20), (4 << 20, 5 << 20)]
    True
    """
    runs: list[Range] = []
    for offset in range(part[0], part[1], CHUNK_BYTES):
        if has[offset // CHUNK_BYTES]:
            continue
        end = min(offset + CHUNK_BYTES, size)
        if runs and runs[-1][1] == offset:
            runs[-1] = (runs[-1][0], end)
        else:
            runs.append((offset, end))
    return runs
