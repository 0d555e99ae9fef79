"""Who owns what the dead have left: claims in the control store, and refs that come late.

Runs in the daemon's thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from weft.engine.cluster.directory import Owned
from weft.engine.cluster.fences import Fences
from weft.engine.cluster.left_rows import LeftRows
from weft.engine.cluster.parts import Parts
from weft.engine.node.inheritance import NOBODY, needed_rows
from weft.engine.node.operations import Outcome
from weft.engine.state.events import Process
from weft.engine.state.inheritance import Part
from weft.engine.wire.link_messages import GlobalProcess

UNANSWERED = frozenset(("ConnectionError", "TimeoutError"))
LINGER_S = 10.0
"""So long rows of the dead stay here after the estate is settled: their heirs' own rows are on their way."""


class Estates(Protocol):
    """What is known of the dead and what they have left: `cluster.inheritance` is it."""

    left: LeftRows
    fences: Fences

    def is_dead(self, name: GlobalProcess) -> bool: ...
    def is_settled(self, estate: GlobalProcess) -> bool: ...
    def lends(self, process: Process) -> None: ...


class Claims:
    """One daemon's."""

    def __init__(self, parts: Parts, estates: Estates) -> None:
        self._parts = parts
        self._port = parts.port
        self._here = parts.here
        self._left = estates.left
        self._directory = estates.left.directory
        self._fences = estates.fences
        self._is_dead, self._is_settled, self._lends = estates.is_dead, estates.is_settled, estates.lends
        parts.operations.offer("heir_of", self.heir_of)

    def claim(self, part: Part, heir: Process, ids: Iterable[bytes]) -> None:
        names = self._parts.names
        owners = {identity: names.to_global(dead) for identity, dead in part.dead_owners.items()}
        missing = {(owners[identity], identity) for identity in ids if identity not in self._left}
        if missing:
            self._left.read(missing, lambda: self._claim(part, heir, list(ids), owners))
        else:
            self._claim(part, heir, list(ids), owners)

    def _claim(self, part: Part, heir: Process, ids: list[bytes], owners: dict[bytes, GlobalProcess]) -> None:
        names = self._parts.names
        far = {identity: one.row for identity, one in self._left.rows.items()}
        wanted: dict[bytes, tuple[GlobalProcess, ...]] = {}
        for identity in (*needed_rows(ids, far), *needed_rows(ids, self._here.rows)):
            here = self._here.rows.get(identity)
            owner = names.to_global(here.owner) if here is not None else far[identity].owner
            before = self._directory.before((owner, identity)) if here is not None else far[identity].before
            named = owners.get(identity, owner)
            wanted[identity] = (*before, owner) if named in before else (*before, owner, named)
        missing = {need for identity in wanted for need in self._left.needs(identity)} - wanted.keys()
        dead = {identity: chain for identity, chain in wanted.items() if self._is_dead(chain[-1])}
        living = {identity: names.to_local(wanted[identity][-1]) for identity in wanted.keys() - dead.keys()}
        self._claim_along(part, heir, dead, [], living, list(missing))

    def _claim_along(
        self,
        part: Part,
        heir: Process,
        wanted: dict[bytes, tuple[GlobalProcess, ...]],
        won: list[bytes],
        owners: dict[bytes, Process],
        lost: list[bytes],
    ) -> None:
        """An heir that is dead as well has heirs of its own. `wanted`: whose each was, last the one to claim from."""
        names = self._parts.names
        name = names.to_global(heir)

        def claimed(granted: set[Owned], others: dict[Owned, GlobalProcess]) -> None:
            for _, identity in granted:
                won.append(identity)
                self._directory.inherited((name, identity), tuple(dict.fromkeys(wanted[identity])))
            if not self._port.is_alive(*heir):
                self._parts.loop.call_later(LINGER_S, lambda: self._directory.forget_owner(name))
                self._here.claimed(part.number, heir, won, owners, lost)
                return
            if granted:
                self._lends(heir)  # who comes late finds that it is the heir
            further: dict[bytes, tuple[GlobalProcess, ...]] = {}
            for (_, identity), owner in others.items():
                if self._is_dead(owner):
                    further[identity] = (*wanted[identity], owner)
                else:
                    owners[identity] = names.to_local(owner)
            if further:
                self._claim_along(part, heir, further, won, owners, lost)
            else:
                self._here.claimed(part.number, heir, won, owners, lost)

        self._directory.claim([(chain[-1], identity) for identity, chain in wanted.items()], name, claimed)

    # ---- refs that come late ----

    def look_up(self, process: Process, dead: Process, identity: bytes) -> None:
        """Of an owner that is settled: who has it now? Where nobody does, who asks is its heir, if there is a row."""
        owner = self._parts.names.to_global(dead)
        if dead == NOBODY:
            if (known := self._left.rows.get(identity)) is None:
                self._here.answer(process, identity, None)
                return
            owner = known.row.owner
            dead = self._parts.names.to_local(owner)

        def came(found: dict[Owned, GlobalProcess]) -> None:
            heir = found.get((owner, identity))
            if heir is not None:
                self._passed_on(process, heir, identity)
            elif owner[0] in self._parts.members.links:
                self._ask_home(process, dead, owner, identity)
            else:
                self._here.came_late(owner, process, dead, identity)

        self._directory.heirs([(owner, identity)], came)

    def _ask_home(self, process: Process, dead: Process, owner: GlobalProcess, identity: bytes) -> None:
        """Its node lives, and knows whether a process there has it: what nobody elsewhere knew passes on there without
        a row in the store. Or the owner itself lives, and only a link was lost for too long."""

        def came(outcome: Outcome) -> None:
            heir: GlobalProcess | None = (value := outcome.value) and (value[0], value[1], value[2])
            is_settled = self._is_settled(owner) or value == []
            if outcome.error_kind in UNANSWERED:
                self._here.ask_again(process, dead, identity)
            elif heir == owner and not is_settled:
                self._count_in_at(process, owner, identity)
            elif heir and heir != owner and (heir[0] == owner[0] or not is_settled):
                self._passed_on(process, heir, identity)
            elif is_settled:
                self._here.came_late(owner, process, dead, identity)
            else:
                self._here.answer(process, identity, None)

        who = {"slot": owner[1], "generation": owner[2]}
        self._parts.nodes.ask_node(owner[0], "heir_of", {"id": identity, **who}).then(came)

    def heir_of(self, params: dict[str, Any]) -> list[int] | None:
        """Of a process of this node, also when it is dead. Where the object has none: its owner, unless that is dead
        and settled, which [] says. Who asks may have lost the link to this node and taken the owner for dead, or have
        forgotten its death."""
        identity = bytes(params["id"])
        heir = self._here.last_heir(identity)
        if heir is None or (self._port.is_proxy(heir[0]) and not self._port.is_alive(*heir)):
            return self._owner_here((params.get("slot", 0), params.get("generation", 0)))
        name = self._parts.names.to_global(heir)
        if name[0] == self._parts.names.number and not self._directory.before((name, identity)):
            return self._owner_here((params.get("slot", 0), params.get("generation", 0)))
        return list(name)

    def _owner_here(self, owner: Process) -> list[int] | None:
        if owner == NOBODY:  # asked by an older version
            return None
        is_owner = self._port.is_alive(*owner) or owner in self._here.unsettled
        return [self._parts.names.number, *owner] if is_owner else []

    def _passed_on(self, process: Process, heir: GlobalProcess, identity: bytes) -> None:
        if heir == self._parts.names.to_global(process) or self._is_dead(heir):
            self._follow(process, heir, identity)
        else:
            self._count_in_at(process, heir, identity)

    def _count_in_at(self, process: Process, owner: GlobalProcess, identity: bytes) -> None:
        """If that one is about to be settled, the process asks again afterwards."""
        local = self._parts.names.to_local(owner)

        def is_ready() -> None:
            self._here.answer(process, identity, local)

        self._fences.when_ready({local}, lambda: self._here.when_ready(local, is_ready))

    def _follow(self, process: Process, heir: GlobalProcess, identity: bytes) -> None:
        """An heir that is dead."""
        local = heir[1:] if heir[0] == self._parts.names.number else self._parts.names.to_local(heir)
        if local in self._here.unsettled:
            self._here.answer(process, identity, local)  # it waits, and asks again when that is settled
        else:
            self.look_up(process, local, identity)
