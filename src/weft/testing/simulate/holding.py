"""Objects of virtual processes: who owns them, who borrows them, what becomes of them when owners die.

A small model of native/borrowing.cpp and native/inheritance.cpp: the same records, counts and order. Values are small
and known, so an object is lost only with its row.
"""

from __future__ import annotations

import struct
from collections import Counter
from typing import TYPE_CHECKING

from weft.engine.wire import kinds

if TYPE_CHECKING:
    from weft.testing.simulate.process import Process

Name = tuple[int, int]
NOBODY: Name = (0, 0)
"""The owner of what a row needs, until the heir is told of it."""
_NEED = struct.Struct("<16siII")


class Ref:
    """A borrowed object."""

    __slots__ = ("is_lost", "owner", "tokens")

    def __init__(self, owner: Name) -> None:
        self.owner = owner
        """As this node calls it."""
        self.tokens = 0
        self.is_lost = False


class Holding:
    """What one process owns and borrows."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.held: Counter[bytes] = Counter()
        """By its program, and by its own objects that need it."""
        self.owned: dict[bytes, Counter[Process]] = {}
        """With the counts of who borrows it."""
        self.needs: dict[bytes, list[bytes]] = {}
        self.refs: dict[bytes, Ref] = {}
        self._deposits: dict[bytes, list[int]] = {}
        self._late: dict[bytes, list[Process]] = {}
        self._kept: dict[int, list[bytes]] = {}
        self._buried: set[Name] = set()
        self._inherited: set[bytes] = set()
        self.lent_at: dict[bytes, float] = {}

    # ---- what a program does ----

    def put(self, identity: bytes, needs: list[bytes]) -> None:
        self.owned[identity] = Counter()
        self.needs[identity] = needs
        self.held[identity] += 1
        for need in needs:
            self.held[need] += 1

    def knows(self, identity: bytes) -> bool:
        return identity in self.owned or identity in self.refs

    def lend(self, identity: bytes, to: Process) -> None:
        """Send a ref to another process."""
        if to is self.process:
            return
        self.lent_at[identity] = self.process.node.cluster.clock.now
        ref = self.refs.get(identity)
        if ref is None:
            self._add(identity, to)
            owner = self.process.name
        else:
            owner = ref.owner
            if not self._is_alive(owner):
                if owner not in self._buried:
                    self._late.setdefault(identity, []).append(to)
            elif (far := self._find(owner)) is not None and far is not to:
                self._tell(far, "count_in", identity, to)
        self._tell(to, "ref_came", identity, self.process.node.global_of(owner))

    def may_drop(self, identity: bytes) -> bool:
        """Whether it is the program that holds it, not another object or an inheritance alone."""
        others = sum(needs.count(identity) for needs in self.needs.values())
        others += sum(kept.count(identity) for kept in self._kept.values())
        return self.held[identity] > others

    def drop(self, identity: bytes) -> None:
        self.held[identity] -= 1
        if self.held[identity] <= 0:
            del self.held[identity]
            self._release(identity)

    # ---- what others say ----

    def ref_came(self, identity: bytes, owner: tuple[int, int, int]) -> None:
        self.held[identity] += 1
        if identity in self.owned:
            return
        node = self.process.node
        local = node.shell.names.to_local(owner) if owner[0] >= 0 and owner[1] else NOBODY
        ref = self.refs.get(identity)
        if ref is None:
            ref = self.refs[identity] = Ref(local)
        elif ref.owner != local:
            if not self._is_alive(local):
                return
            if self._is_alive(ref.owner):
                if (other := self._find(local)) is not None:
                    self._tell(other, "count_out", identity, self.process, 1)
                return
            self._moved(identity, ref, local)
        ref.tokens += 1
        node.talks(self.process, self._find(local) or self.process)
        if local in self._buried and not self._is_alive(local):
            self._ask_where(identity, ref)

    def count_in(self, identity: bytes, borrower: Process) -> None:
        if identity in self.owned and not borrower.is_dead and borrower is not self.process:
            self._add(identity, borrower)

    def count_out(self, identity: bytes, borrower: Process, count: int) -> None:
        """It may come before the count that it undoes, which another sends."""
        if (counts := self.owned.get(identity)) is not None and not borrower.is_dead:
            counts[borrower] -= count
            if counts[borrower] == 0:
                del counts[borrower]
            self._release(identity)

    def moved(self, identity: bytes, owner: tuple[int, int, int], sender: Process) -> None:
        """The new owner has counted this process in."""
        if sender is self.process:
            return
        ref = self.refs.get(identity)
        if ref is None:
            self._tell(sender, "count_out", identity, self.process, 1)
            return
        local = self.process.node.shell.names.to_local(owner)
        if ref.owner != local:
            if self._is_alive(ref.owner):
                return
            self._moved(identity, ref, local)
        ref.tokens += 1

    # ---- what the daemon says ----

    def record_came(self, kind: int, payload: bytes) -> None:
        if kind == kinds.FIND_ORPHANS:
            self._name(payload)
        elif kind == kinds.ADOPT:
            self._adopt(payload)
        elif kind == kinds.SETTLED:
            self._settled(payload)
        elif kind == kinds.ORPHAN_ANSWERED:
            self._answered(payload)

    def _name(self, payload: bytes) -> None:
        number, round_, count = kinds.FIND_ORPHANS_BODY.unpack_from(payload)
        dead = {kinds.PROCESS_BODY.unpack_from(payload, kinds.FIND_ORPHANS_BODY.size + 8 * at) for at in range(count)}
        named = [
            identity + kinds.PROCESS_BODY.pack(*ref.owner) for identity, ref in self.refs.items() if ref.owner in dead
        ]
        self.process.tell_daemon(kinds.ORPHANS, kinds.ORPHANS_BODY.pack(number, round_, 0) + b"".join(named))

    def _adopt(self, payload: bytes) -> None:
        number, rows, _ = kinds.ADOPT_BODY.unpack_from(payload)
        if not rows:
            for identity in self._kept.pop(number, ()):
                self.drop(identity)
            return
        at = kinds.ADOPT_BODY.size
        given: list[tuple[bytes, bytes]] = []
        for _ in range(rows):
            identity, size, _ = struct.unpack_from("<16sII", payload, at)
            given.append((identity, payload[at + 24 + 4 : at + 24 + size]))
            at += 24 + size
        for identity, _ in given:
            self.refs.pop(identity, None)
            self.owned.setdefault(identity, Counter())
            self._inherited.add(identity)
            self.held[identity] += 1
            self._kept.setdefault(number, []).append(identity)
        for identity, body in given:
            if identity not in self.needs:
                packed = [_NEED.unpack_from(body, at) for at in range(0, len(body), _NEED.size)]
                self.needs[identity] = [need for need, *_ in packed]
                for need, *owner in packed:
                    self._take_over(need, (owner[0], owner[1], owner[2]))
        for identity, _ in given:
            for late in self._late.pop(identity, ()):
                self._add(identity, late)
                self._tell(late, "moved", identity, self.process.global_name, self.process)
        self.process.tell_daemon(kinds.ADOPTED, struct.pack("<Q", number))

    def _take_over(self, need: bytes, owner: tuple[int, int, int]) -> None:
        """A ref that the dead one had: to an object of its own, or to one that it had borrowed."""
        self.held[need] += 1
        if self.knows(need):
            return
        local = self.process.node.shell.names.to_local(owner) if owner[1] else NOBODY
        ref = self.refs[need] = Ref(local)
        if local != NOBODY and not self._is_alive(local):  # the row was written before it died
            self._ask_where(need, ref)
        elif local != NOBODY and (far := self._find(local)) is not None:
            ref.tokens = 1
            self._tell(far, "count_in", need, self.process)

    def _answered(self, payload: bytes) -> None:
        identity, is_found, _, slot, generation = struct.unpack("<16sIIII", payload)
        ref = self.refs.get(identity)
        if ref is None or self._is_alive(ref.owner):
            return
        if not is_found:
            ref.is_lost = True
            return
        self._moved(identity, ref, (slot, generation))
        ref.tokens += 1
        if (owner := self._find(ref.owner)) is not None:
            self._tell(owner, "count_in", identity, self.process)

    def _settled(self, payload: bytes) -> None:
        count, _ = kinds.PROCESS_BODY.unpack_from(payload)
        dead = {kinds.PROCESS_BODY.unpack_from(payload, 8 + 8 * at) for at in range(count)}
        self._buried |= dead
        gone = {self.process.node.global_of(name) for name in dead}
        for identity, counts in list(self.owned.items()):
            for borrower in [one for one in counts if one.global_name in gone]:
                del counts[borrower]
            self._release(identity)
        for identity, ref in list(self.refs.items()):
            if ref.owner in dead or ref.owner == NOBODY:
                self._ask_where(identity, ref)

    # ---- for the daemon, when this process is dead ----

    def ledger(self) -> list[tuple[bytes, bool, int, int, list[bytes], None, bytes]]:
        given = {identity for kept in self._kept.values() for identity in kept}
        rows = {identity: counts for identity, counts in self.owned.items() if counts or identity in given}
        missing = list(rows)
        found: list[bytes] = []
        while missing:
            identity = missing.pop()
            if identity in self.owned and identity not in found:
                found.append(identity)
                missing += self.needs[identity]
        return [
            (identity, identity in rows, 0, 0, self._own_needs(identity), None, self._body(identity))
            for identity in found
        ]

    # ---- inside ----

    def _own_needs(self, identity: bytes) -> list[bytes]:
        return [need for need in self.needs[identity] if need in self.owned]

    def _body(self, identity: bytes) -> bytes:
        """Its own objects have no owner in it: an heir is told."""
        parts = [b"\0\0\0\0"]
        for need in self.needs[identity]:
            ref = self.refs.get(need)
            owner = (0, 0, 0) if ref is None or ref.owner == NOBODY else self.process.node.global_of(ref.owner)
            parts.append(_NEED.pack(need, *owner))
        return b"".join(parts)

    def _is_alive(self, name: Name) -> bool:
        return name != NOBODY and self.process.node.port.is_alive(*name)

    def _find(self, name: Name) -> Process | None:
        return self.process.node.find(name)

    def _tell(self, to: Process, what: str, *args: object) -> None:
        def came() -> None:
            if not to.is_dead:
                getattr(to.holding, what)(*args)

        node = self.process.node
        node.shell.names.to_local(to.global_name)
        node.talks(self.process, to)
        if to.node is node:
            node.send_between(self.process, to, 1, came)
        else:  # through the daemon, behind what was said to it before
            node.in_turn(lambda: node.send_between(self.process, to, 1, came))

    def _add(self, identity: bytes, borrower: Process) -> None:
        self.process.node.shell.names.to_local(borrower.global_name)  # so that its death is heard of
        counts = self.owned[identity]
        counts[borrower] += 1
        if counts[borrower] == 0:
            del counts[borrower]
            self._release(identity)
        else:
            self._deposit(identity, borrower.node.number)

    def _deposit(self, first: bytes, node: int) -> None:
        missing = [first] if node != self.process.node.number else []
        while missing:
            identity = missing.pop()
            nodes = self._deposits.setdefault(identity, [])
            if node in nodes:
                continue
            nodes.append(node)
            needs = self._own_needs(identity)
            head = kinds.ROW_HEAD.pack(identity, 0, 0, len(needs), 0, 0, 0, 0, 0)
            record = struct.pack("<III", 1, 0, node) + head + b"".join(needs) + self._body(identity)
            self.process.tell_daemon(kinds.DEPOSIT, record)
            missing += needs

    def _release(self, identity: bytes) -> None:
        if self.held.get(identity, 0) > 0:
            return
        if identity in self.owned:
            if self.owned[identity]:
                return
            del self.owned[identity]
            nodes = self._deposits.pop(identity, [])
            if nodes or identity in self._inherited:
                self._inherited.discard(identity)
                self.process.tell_daemon(kinds.WITHDRAW, identity + struct.pack(f"<{len(nodes)}I", *nodes))
            for need in self.needs.pop(identity):
                self.drop(need)
            return
        ref = self.refs.pop(identity, None)
        if ref is None or not ref.tokens or not self._is_alive(ref.owner):
            return
        if (owner := self._find(ref.owner)) is not None:
            self._tell(owner, "count_out", identity, self.process, ref.tokens)

    def _moved(self, identity: bytes, ref: Ref, owner: Name) -> None:
        ref.owner, ref.tokens, ref.is_lost = owner, 0, False
        far = self._find(owner)
        for late in self._late.pop(identity, ()):
            if far is not None and far is not late:
                self._tell(far, "count_in", identity, late)
            self._tell(late, "moved", identity, self.process.node.global_of(owner), far or self.process)
        if owner in self._buried and not self._is_alive(owner):
            self._ask_where(identity, ref)

    def _ask_where(self, identity: bytes, ref: Ref) -> None:
        self.process.tell_daemon(kinds.ORPHAN_ASKED, kinds.PROCESS_BODY.pack(*ref.owner) + identity)
