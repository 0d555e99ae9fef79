"""The control store as nodes of a simulated cluster reach it: linearizable, and there for who reaches a majority.

The chains and the council behind it have a simulation of their own (`tests/store/chain_network.py`). Here a call
is done at one moment, if its caller then reaches a majority of the servers that live or are not known to be dead, and
waits otherwise. What a head writes is refused once a later one has written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from weft.store.state.chain_rows import Key, Put, Write

if TYPE_CHECKING:
    from weft.store.store_client import Done
    from weft.testing.simulate.node import SimNode
    from weft.testing.simulate.simulation import Simulation

START_S = 0.15
AGAIN_S = 0.25
GIVE_UP_S = 30.0


class StoreModel:
    """One store for the whole cluster."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, bytes], bytes] = {}
        self.servers: list[SimNode] = []
        self.epoch = 0
        """Of the last head that has written."""

    @property
    def council(self) -> list[SimNode]:
        """An odd number of servers, as in `state.chain_council`."""
        return self.servers[: len(self.servers) - 1 + len(self.servers) % 2]

    def outlives(self, node: SimNode) -> bool:
        """Whether the others are a majority, should that node vanish without a word."""
        others = sum(one.is_up and one is not node for one in self.council)
        return 2 * others > len(self.council)


class SimStore:
    """One node's access."""

    def __init__(self, simulation: Simulation, node: SimNode) -> None:
        self._simulation = simulation
        self._model = simulation.store
        self._node = node
        self._epoch = 0
        self.address = ""
        self.url = ""
        self.shards = 1

    def found(self, on_up: Callable[[], None]) -> None:
        self.join((), on_up)

    def join(self, seeds: Sequence[str], on_up: Callable[[], None]) -> None:
        def up() -> None:
            if not self._node.is_up:
                return
            if self._model.servers and not self._reaches_majority():
                self._simulation.clock.after(AGAIN_S, up)
                return
            self._model.servers.append(self._node)
            self.address = self._node.address
            on_up()

        self._simulation.clock.after(START_S, up)

    def reach(self, seeds: Sequence[str]) -> None: ...

    def withdraw(self, then: Callable[[], None]) -> None:
        if self._node in self._model.servers and self._reaches_majority():
            self._model.servers.remove(self._node)
        then()

    def begin_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def keep(self, batch: Sequence[Write], done: Done) -> None:
        epoch = self._epoch

        def apply() -> tuple[Any, str]:
            if epoch < self._model.epoch:
                return None, "a later head has written"
            self._model.epoch = epoch
            return self._apply(batch), ""

        self._ask(apply, done, None)

    def write(self, batch: Sequence[Write], done: Done) -> None:
        self._ask(lambda: (self._apply(batch), ""), done, GIVE_UP_S)

    def read(self, keys: Sequence[Key], done: Done) -> None:
        self._ask(lambda: ([self._model.rows.get(key) for key in keys], ""), done, GIVE_UP_S)

    def scan(self, table: str, done: Done, prefix: bytes = b"") -> None:
        def rows() -> tuple[Any, str]:
            found = self._model.rows.items()
            return sorted((key, row) for (name, key), row in found if name == table and key.startswith(prefix)), ""

        self._ask(rows, done, GIVE_UP_S)

    @property
    def is_lost(self) -> bool:
        return False

    def statistics(self) -> dict[str, int]:
        living = sum(one.is_up for one in self._model.servers)
        return {"servers": living, "shards": self.shards, "replicas": living}

    def close(self) -> None: ...

    def _apply(self, batch: Sequence[Write]) -> bool:
        rows = self._model.rows
        if any(isinstance(one, Put) and one.if_absent and (one.table, one.key) in rows for one in batch):
            return False
        for one in batch:
            if isinstance(one, Put):
                rows[one.table, one.key] = one.value
            else:
                rows.pop((one.table, one.key), None)
        return True

    # ---- a call's way ----

    def _ask(self, apply: Callable[[], tuple[Any, str]], done: Done, give_up_s: float | None) -> None:
        clock, network = self._simulation.clock, self._simulation.network
        deadline = None if give_up_s is None else clock.now + give_up_s

        def answer(result: Any, error: str) -> None:
            self._node.when_awake(lambda: done(result, error) if self._node.is_up else None)

        def arrive() -> None:
            """Whoever sent it may be dead by then: what a line that was cut holds is delivered late."""
            if self._reaches_majority():
                result, error = apply()
                clock.after(network.delay(self._node.address, self._node.address), answer, result, error)
            elif deadline is not None and clock.now > deadline:
                answer(None, "no majority of the control store's servers could be reached")
            else:
                clock.after(AGAIN_S, arrive)

        clock.after(network.delay(self._node.address, self._node.address), arrive)

    def _reaches_majority(self) -> bool:
        """Who does also has the dead taken out of the council."""
        servers = self._model.servers
        network = self._simulation.network
        council = self._model.council
        here = self._node.address
        reached = [
            one
            for one in council
            if one.is_up and network.reaches(here, one.address) and network.reaches(one.address, here)
        ]
        if 2 * len(reached) <= len(council):
            return False
        self._model.servers = [one for one in servers if one.is_up]
        return True
