"""Refs that go from process to process of a simulated cluster, while owners and their nodes are killed.

LEN-1 a ref that a living process holds names a living owner, which has the object and counts the ref.
LEN-2 an object has one owner at most.
LEN-3 no object is lost that a process of another node had lent to it, when one process or one node has died.
LEN-4 an object that nobody refers to is gone.
LEN-5 each row of the object table is of an object that a living process owns, and each heir's row leads to such a one.

What a process has passed on at the moment of its death is not looked at: the ref may arrive and the count not, or the
other way round. Who reads such a ref is told so, and the object of such a count stays as long as its owner.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from weft.engine.cluster.directory import Owned, decode_heir, owned_of
from weft.store.tables import HEIRS, OBJECTS

if TYPE_CHECKING:
    from weft.testing.simulate.node import SimNode
    from weft.testing.simulate.process import Process
    from weft.testing.simulate.simulation import Simulation

LENDING_S = 4.0
_STEPS = 600
_UNDER_WAY_S = 0.05


class Lending:
    """Two drivers on each node, and what they do at the seed's choice."""

    def __init__(self, simulation: Simulation, kills_heads: bool = False) -> None:
        self._simulation = simulation
        self._kills_heads = kills_heads
        self._rng = random.Random(simulation.plan.seed * 17)
        self._processes: list[Process] = []
        self.kills = 0
        self._under_way: set[bytes] = set()
        """What was being passed on by processes that died meanwhile."""

    def begin(self) -> None:
        simulation, rng = self._simulation, self._rng
        simulation.lending = self
        simulation.has_faults = True
        for node in simulation.up():
            self._processes += [node.new_driver() for _ in range(rng.choice((1, 2, 3)))]
        length = rng.choice((0.02, 0.3, 2.0))
        for _ in range(_STEPS):
            simulation.clock.after(rng.random() * length, self._step)
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            simulation.clock.after(rng.random() * length, self._kill)
        if self._kills_heads and rng.random() < 0.5:
            simulation.clock.after(length + rng.random() * LENDING_S * 6, self._drop_all)

    def living(self) -> list[Process]:
        return [process for process in self._processes if not process.is_dead and process.node.is_up]

    def _step(self) -> None:
        living, rng = self.living(), self._rng
        if not living:
            return
        process = rng.choice(living)
        holding = process.holding
        known = sorted(identity for identity, count in holding.held.items() if count > 0)
        chance = rng.random()
        if chance < 0.15 or not known:
            own = [identity for identity in known if identity in holding.owned]
            holding.put(self._simulation.new_id(), rng.sample(own, min(len(own), rng.choice((0, 0, 1, 2)))))
        elif chance < 0.75:
            holding.lend(rng.choice(known), rng.choice(living))
        else:
            identity = rng.choice(known)
            if holding.may_drop(identity):
                holding.drop(identity)

    def _drop_all(self) -> None:
        """While what the dead had lent may be passing on."""
        for process in self.living():
            for identity in list(process.holding.held):
                while process.holding.may_drop(identity):
                    process.holding.drop(identity)

    def _kill(self) -> None:
        living = self.living()
        if len({process.node for process in living}) < 2:
            return
        self.kills += 1
        process = self._rng.choice(living)
        node: SimNode = process.node
        dead_nodes = sum(not one.is_up for one in self._simulation.nodes)
        is_last = dead_nodes >= (len(self._simulation.nodes) - 1) // 2  # the control store outlives no more at once
        is_spared = node.shell.is_head and not self._kills_heads
        if self._rng.random() < 0.4 or is_spared or is_last:
            node.process_exits(process, -9)
        elif self._rng.random() < 0.7:
            node.end()
        else:
            node.crash()
        since = self._simulation.clock.now - _UNDER_WAY_S
        for dead in living:
            if dead.is_dead:
                lent = [identity for identity, at in dead.holding.lent_at.items() if at > since]
                while lent:
                    self._under_way.add(identity := lent.pop())
                    lent += dead.holding.needs.get(identity, ())

    def broken(self) -> list[tuple[str, str]]:
        found = []
        living = self.living()
        owners: dict[bytes, list[Process]] = {}
        for process in living:
            for identity in process.holding.owned:
                owners.setdefault(identity, []).append(process)
        for identity, several in owners.items():
            if len(several) > 1:
                names = [process.global_name for process in several]
                found.append(("LEN-2", f"{identity.hex()[:8]} is owned by {names}"))
        borrowed: set[bytes] = set()
        for process in living:
            for identity, ref in process.holding.refs.items():
                borrowed.add(identity)
                name = process.node.global_of(ref.owner)
                what = f"{identity.hex()[:8]} of {name} at {process.global_name}"
                owner = self._simulation.process(name)
                if ref.is_lost:
                    if self.kills < 2 and identity not in self._under_way:
                        found.append(("LEN-3", f"{what} is lost"))
                elif owner is None:
                    found.append(("LEN-1", f"{what}: its owner is dead"))
                elif identity in self._under_way:
                    continue
                elif identity not in owner.holding.owned:
                    found.append(("LEN-1", f"{what}: its owner does not have it"))
                elif process not in owner.holding.owned[identity]:
                    found.append(("LEN-1", f"{what}: it is not counted"))
        for process in living:
            for identity, counts in process.holding.owned.items():
                is_wanted = identity in borrowed or process.holding.held.get(identity, 0) > 0
                if is_wanted or identity in self._under_way:
                    continue
                names = [one.global_name for one in counts]
                found.append(("LEN-4", f"{identity.hex()[:8]} of {process.global_name} is kept for {names}"))
        return found + self._rows_left({(owner.global_name, identity) for identity, [owner, *_] in owners.items()})

    def _rows_left(self, owned: set[Owned]) -> list[tuple[str, str]]:
        rows = self._simulation.store.rows
        objects = {owned_of(key) for table, key in rows if table == OBJECTS}
        heirs = {owned_of(key): decode_heir(row).heir for (table, key), row in rows.items() if table == HEIRS}
        left = dict.fromkeys(objects - owned, "its row is left")
        for first in heirs:
            last = first
            while (heir := heirs.get(last)) is not None:
                last = (heir, last[1])
            if last not in owned:
                left[first] = f"that {last[0]} inherited it is left"
        found = []
        for (owner, identity), what in left.items():
            if identity not in self._under_way:
                found.append(("LEN-5", f"{identity.hex()[:8]} of {owner}: {what}"))
        return found
