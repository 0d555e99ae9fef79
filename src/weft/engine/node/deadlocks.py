"""Looks for deadlocks: asks the processes what they wait for, lets `state.deadlock` judge, breaks what is in vain.

Runs in the daemon's thread, and only while some wait of this node has lasted for a second (`waits_long`). A round asks
every process of the cluster's nodes, then again for objects that the first answers name and their owners must explain.
A new long wait is looked into at once, the others at longer and longer intervals: a deadlock is closed by the wait
that began last, and that wait's node looks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from weft.engine.node.methods import Asker
from weft.engine.node.nodes import Nodes
from weft.engine.node.operations import Operations, Outcome, Pending, gather
from weft.engine.state.actors import Stage
from weft.engine.state.deadlock import WAIT, Deadlock, DeadlockFinder, Waiting
from weft.engine.state.demands import Demand
from weft.engine.state.events import Process
from weft.engine.state.node import NodeState
from weft.engine.state.resources import CPU
from weft.engine.state.workers import Place
from weft.engine.wire.messages import BreakWait, Message, TellWaits
from weft.net.loop import Loop

ANSWER_S = 1.0
"""Who has not answered by then is busy, and counts as going on."""
FIRST_S, CONFIRM_S, LONGEST_S = 0.1, 0.4, 60.0
MOST_QUESTIONS = 32
"""So many times objects are asked for in one round; chains that are longer wait for the next."""


class _Question:
    """One TellWaits under way."""

    def __init__(self, silent: set[Process]) -> None:
        self.silent = silent
        self.rows: list[dict[str, Any]] = []
        self.answer = Pending()


class Deadlocks:
    """One daemon's."""

    def __init__(
        self,
        loop: Loop,
        state: NodeState,
        operations: Operations,
        nodes: Nodes,
        send: Callable[[Process, Message], None],
    ) -> None:
        self._loop = loop
        self._state = state
        self._nodes = nodes
        self._send = send
        self._finder = DeadlockFinder()
        self._numbers = itertools.count(1)
        self._open: dict[int, _Question] = {}
        self._interval_s = 0.0
        """Until the next round; 0 while nothing waits long."""
        self._is_looking = False
        self._timer: Any = None
        operations.offer("wait_rows", self._wait_rows)
        operations.offer("break_wait", self._break_wait)

    # ---- what processes say ----

    def waits_long(self, asker: Asker) -> None:
        """A wait of this node has lasted for a second."""
        self._interval_s = FIRST_S
        self._look_after(FIRST_S)

    def told(self, asker: Asker, number: int, rows: list[dict[str, Any]]) -> None:
        question = self._open.get(number)
        if question is not None and asker.process in question.silent:
            question.silent.discard(asker.process)
            question.rows += rows
            if not question.silent:
                self._close(number)

    def process_died(self, process: Process) -> None:
        for number, question in list(self._open.items()):
            question.silent.discard(process)
            if not question.silent:
                self._close(number)

    def _close(self, number: int) -> None:
        if (question := self._open.pop(number, None)) is not None:
            question.answer.resolve(question.rows)

    # ---- what other nodes ask ----

    def _wait_rows(self, params: dict[str, Any]) -> Pending:
        """The rows of this node's processes on these objects, and what the daemon itself knows."""
        number = next(self._numbers)
        question = self._open[number] = _Question(set(self._nodes.busy_processes()))
        for process in list(question.silent):
            self._send(process, TellWaits(number, self._name(process), params["objects"]))
        self._loop.call_later(ANSWER_S, lambda: self._close(number))
        if not question.silent:
            self._close(number)
        return question.answer.map(lambda rows: [*rows, *(msgspec.to_builtins(row) for row in self._own_rows())])

    def _break_wait(self, params: dict[str, Any]) -> None:
        process = (params["slot"], params["generation"])
        if process in self._nodes.busy_processes():
            self._send(process, BreakWait(params["number"], params["cycle"]))

    # ---- a round ----

    def _look_after(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay_s, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._is_looking:
            self._is_looking = True
            self._ask({}, [], set(), 0)

    def _ask(self, rows: dict[str, tuple[int, Waiting]], objects: list[bytes], asked: set[str], count: int) -> None:
        """Ask all nodes, then go on with what their answers leave open."""
        nodes = [view.number for view in self._nodes.all_views()]
        ask = self._nodes.ask_node
        answers = gather({node: ask(node, "wait_rows", {"objects": objects}, 2 * ANSWER_S) for node in nodes})

        def came(outcome: Outcome) -> None:
            for node, answer in outcome.value.items():
                for row in answer.value or ():
                    one = msgspec.convert(row, Waiting)
                    rows[one.key] = (node, one)
            keys = {key for _, one in rows.values() for key in one.on if key.startswith("object:")}
            unknown = keys - rows.keys() - asked
            if unknown and count < MOST_QUESTIONS:
                self._ask(rows, [bytes.fromhex(key[7:]) for key in unknown], asked | unknown, count + 1)
            else:
                self._judge(rows)

        answers.then(came)

    def _judge(self, rows: dict[str, tuple[int, Waiting]]) -> None:
        self._is_looking = False
        for found in self._finder.round_told(one for _, one in rows.values()):
            self._break(rows[found.victim][0], found)
        own = self._nodes.own_number
        if not any(key.startswith(WAIT) and node == own for key, (node, _) in rows.items()):
            self._interval_s = 0.0
        elif self._timer is None:
            self._interval_s = CONFIRM_S if self._finder.suspects else min(2 * self._interval_s, LONGEST_S)
            self._look_after(self._interval_s)

    def _break(self, node: int, found: Deadlock) -> None:
        process, _, number = found.victim.removeprefix(WAIT).partition("/")[2].partition(":")
        slot, _, generation = process.partition(".")
        params = {
            "slot": int(slot), "generation": int(generation), "number": int(number), "cycle": list(found.cycle),
        }  # fmt: skip
        self._nodes.ask_node(node, "break_wait", params, ANSWER_S)

    # ---- what the daemon knows: who waits for resources, and who holds them ----

    def _own_rows(self) -> Iterator[Waiting]:
        state = self._state
        for actor in state.actors.by_id.values():
            if actor.stage is Stage.STARTING and actor.worker is not None and self._nodes.is_local(actor.worker):
                yield Waiting(f"actor:{actor.id.hex()}", (f"main:{self._name(actor.worker)}",), text=f"{actor} starts")
        if self._nodes.cluster is not None:
            return  # another node may serve them, or one that joins
        for demand in state.demands.by_key.values():
            if demand.wanted and (holders := self._holders(demand)):
                yield Waiting(self._demand_key(demand), tuple(holders), text="which its holders never give back")
        # One node of the graph for all: an edge of each actor's to each process would make it grow with the square.
        anybody = f"anybody:{self._nodes.node_id}"
        yield Waiting(anybody, tuple(f"process:{self._name(process)}" for process in self._nodes.busy_processes()))
        for worker in state.workers:
            if worker.place is Place.ACTOR:
                actor_text = str(state.actors.of_worker(worker.process) or "an actor")
                text = f"some of them are held by {actor_text} while it lives"
                yield Waiting(f"kept:{self._name(worker.process)}", (anybody,), text=text)

    def _holders(self, demand: Demand) -> list[str]:
        """All who hold what the demand is short of; none when it cannot be said that nobody else does."""
        state = self._state
        pool = state.resources
        if demand.draws_from is not None or demand.parts or not (short := demand.shortage(pool)):
            return []
        left = {name: pool.total.get(name, 0) - pool.available.get(name, 0) for name in short}
        holders = []
        for worker in state.workers:
            if worker.holding is None or worker.pool is not pool:
                continue
            held = [(n, a) for n, a in worker.holding.amounts if n in left and not (n == CPU and worker.lent)]
            for name, amount in held:
                left[name] -= amount
            if held and worker.place is Place.ENDING:
                return []
            if held:
                kind = "kept" if worker.place is Place.ACTOR else "main"
                holders.append(f"{kind}:{self._name(worker.process)}")
        return [] if any(left.values()) else holders

    def _demand_key(self, demand: Demand) -> str:
        if isinstance(demand.key, bytes):
            return f"actor:{demand.key.hex()}"
        assert isinstance(demand.key, tuple), "a group's demand has parts, so its holders are not told"
        return f"shape:{self._name(demand.key[0])}:{demand.key[1]}"

    def _name(self, process: Process) -> str:
        return f"{self._nodes.node_id}/{process[0]}.{process[1]}"
