"""A driver or worker: its programs, and the native core that submits for it (`_native.VirtualProcess`).

What is queued, leased, pushed, tried again or failed is decided by native/submitter.cpp, native/leases.cpp and
native/actor_links.cpp, as in a real process. Here are the programs, the time that all of it takes, and the names:
the native core knows processes by one number in the whole simulation, the daemon's records by slots of its node.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from weft._native import VirtualProcess
from weft.engine.wire import kinds
from weft.engine.wire.messages import ActorSpec, DefineShape, ExitProcess, GroupChanged, KillActor, Warn
from weft.engine.wire.messages import CreateGroup as CreateGroupMessage
from weft.engine.wire.messages import RemoveGroup as RemoveGroupMessage
from weft.testing.simulate import program as steps
from weft.testing.simulate.executor import DURATION, Executor
from weft.testing.simulate.holding import Holding
from weft.testing.simulate.program import Bunch, Function, Program, Run

if TYPE_CHECKING:
    from weft.engine.wire.link_messages import GlobalProcess
    from weft.testing.simulate.node import SimNode

LEND_AFTER_S = 0.0001
LOOK_S = 0.002
"""Leases that may be idle are looked at so long after an event."""
FAR_SLOTS = 1 << 20
"""The native core takes a process's number for such a slot."""
_HEARD = frozenset((kinds.LEASE_GRANT, kinds.LEASE_REVOKE, kinds.SHAPE_REFUSED, kinds.ACTOR_DOWN, kinds.NOT_NEAR))
_messages = msgspec.msgpack.Decoder(GroupChanged | ExitProcess | Warn)
encode = msgspec.msgpack.Encoder().encode


class Process(Executor):
    """One simulated process of a node."""

    def __init__(self, node: SimNode, name: tuple[int, int], is_worker: bool) -> None:
        super().__init__(node, name, is_worker)
        there = weakref.ref(node)  # the native object would keep it for ever
        self._core = VirtualProcess(lambda number: (alive := there()) is not None and alive.knows_number(number))
        self._shapes: dict[str, int] = {}
        self._functions: dict[str, int] = {}
        self._bunches: dict[int, Bunch] = {}
        """By number: those of this process that are not done."""
        self._sent: dict[int, dict[Run, None]] = {}
        """To each process, by number: what it has not answered."""
        self._actors: dict[bytes, int] = {}
        """Where each was at last."""
        self._group_waiters: dict[bytes, Callable[[bool], None]] = {}
        self._is_looking = False
        self.holding = Holding(self)

    # ---- programs ----

    def run_program(self, program: Program, over: Callable[[], None]) -> None:
        self._step(program, None, over)

    def _step(self, program: Program, value: object, over: Callable[[], None]) -> None:
        while not self.is_dead:
            try:
                step = program.send(value)
            except StopIteration:
                over()
                return
            if isinstance(step, steps.Submit):
                value = self.submit(step.function, step.count, step.args, step.escapes)
            elif isinstance(step, steps.Call):
                value = self.call(step)
            elif isinstance(step, steps.CreateActor):
                value = self.create_actor(step)
            elif isinstance(step, steps.KillActor):
                self.tell_daemon(kinds.CONTROL, encode(KillActor(step.actor)))
                value = None
            elif isinstance(step, steps.RemoveGroup):
                self.tell_daemon(kinds.CONTROL, encode(RemoveGroupMessage(step.group)))
                value = None
            else:
                self._wait(step, program, over)
                return

    def _wait(self, step: steps.Step, program: Program, over: Callable[[], None]) -> None:
        def go_on(value: object = None) -> None:
            self._step(program, value, over)

        if isinstance(step, steps.Compute):
            self._clock.after(step.seconds / self.node.speed, go_on)
        elif isinstance(step, steps.Get):
            self.get(step.bunches, go_on)
        else:
            assert isinstance(step, steps.CreateGroup)
            group = self.node.cluster.new_id()
            self._group_waiters[group] = lambda is_placed: go_on(group if is_placed else None)
            self.node.cluster.groups[group] = (self, step)
            self.tell_daemon(kinds.CONTROL, encode(CreateGroupMessage(group, step.bundles, step.strategy)))

    def get(self, bunches: list[Bunch], then: Callable[[int], None]) -> None:
        """Whoever waits lends its CPUs, when it has waited for a while."""
        waiting = [bunch for bunch in bunches if not bunch.is_done]
        if not waiting:
            self._clock.at(self.node.pull_all(bunches), self._if_alive, then, sum(bunch.failed for bunch in bunches))
            return
        self._stats.waits += 1
        left = len(waiting)

        def one_done() -> None:
            nonlocal left
            left -= 1
            if left == 0 and not self.is_dead:
                self._stats.waits -= 1
                self._goes_on()
                self.get(bunches, then)

        for bunch in waiting:
            bunch.waiters.append(one_done)
        if self.is_worker:
            self._clock.after(LEND_AFTER_S, lambda: self._lend() if left else None)

    def _if_alive(self, then: Callable[[int], None], value: int) -> None:
        if not self.is_dead:
            then(value)

    # ---- submitting ----

    def submit(self, function: Function, count: int, args: list[Bunch], escapes: bool) -> Bunch:
        bunch = self._new_bunch(function, count, args)
        if escapes:
            self.node.cluster.control.write("objects", bunch.number, count)
        for arg in args:
            if not arg.is_done:
                bunch.missing += 1
                arg.waiters.append(lambda: self._argument_done(bunch))
        if not bunch.missing:
            self._enqueue(bunch)
        return bunch

    def _new_bunch(self, function: Function, count: int, args: list[Bunch]) -> Bunch:
        bunches = self.node.cluster.bunches
        bunch = Bunch(len(bunches) + 1, function, count, self, args, self._clock.now)
        bunches.append(bunch)
        self._bunches[bunch.number] = bunch
        self._stats.submitted += count
        return bunch

    def _argument_done(self, bunch: Bunch) -> None:
        bunch.missing -= 1
        if not bunch.missing and not self.is_dead:
            self._enqueue(bunch)

    def _enqueue(self, bunch: Bunch) -> None:
        if any(arg.failed for arg in bunch.args):
            self._settle(bunch, list(range(bunch.count)), failed=True)
            return
        function = bunch.function
        key = self._functions.setdefault(function.name, len(self._functions) + 1)
        core = self._core_now()
        core.submit(bunch.number, bunch.count, key, self._shape(function), function.max_retries)
        self._carry_out()

    def _shape(self, function: Function) -> int:
        key = function.name if function.strategy else repr(sorted(function.resources.items()))
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = len(self._shapes) + 1
            definition = DefineShape(shape, function.resources, "", function.strategy, function.name)
            self.tell_daemon(kinds.CONTROL, encode(definition))
        return shape

    def create_actor(self, step: steps.CreateActor) -> bytes:
        actor = self.node.cluster.new_id()
        needed = step.resources or {"CPU": 1.0}
        spec = ActorSpec(actor, "Simulated", 1, step.resources, needed, max_restarts=step.max_restarts)
        self.node.cluster.control.write("actors", int.from_bytes(actor[:8], "big"), 1)
        self._core_now().create_actor(actor, encode(spec), DURATION.pack(step.init_s))
        self._carry_out()
        return actor

    def call(self, step: steps.Call) -> Bunch:
        bunch = self._new_bunch(Function("call", float(step.seconds), max_retries=step.retries), step.count, [])
        bunch.actor = step.actor
        self._core_now().call(step.actor, bunch.number, step.count, step.retries)
        self._carry_out()
        return bunch

    # ---- the native core ----

    def _core_now(self) -> VirtualProcess:
        self._core.set_time(int(self._clock.now * 1e9))
        return self._core

    def _carry_out(self, origin: int | None = None) -> None:
        """Send what the native core has to say, then tell of tasks that are over; their results are on `origin`."""
        sent, done = self._core.take_sent(), self._core.take_done()
        for to, what, content in sent:
            if not to:
                assert isinstance(content, bytes)
                self.tell_daemon(what, content)
                continue
            assert isinstance(content, list)
            run = Run(self._bunches[what], content)
            self._sent.setdefault(to, {})[run] = None
            each = self._costs.submit_s if run.bunch.actor is None else self._costs.call_s
            self._clock.at(self.busy(len(content) * each), self._send_run, to, run)
        if not self._is_looking and self._core.leases:
            self._is_looking = True
            self._clock.after(LOOK_S, self._look_for_idle)
        for (number, failed), group in itertools.groupby(done, lambda one: (one[0], one[2])):
            bunch, indices = self._bunches[number], [index for _, index, _ in group]
            if origin is not None and not failed and bunch.function.result_bytes > steps.INLINE_BYTES:
                bunch.origins.update(dict.fromkeys(indices, origin))
            self._settle(bunch, indices, failed)

    def _send_run(self, to: int, run: Run) -> None:
        worker = self.node.cluster.process(self.node.cluster.names.name_of(to))
        if worker is not None:
            self.node.send_between(self, worker, len(run.indices), worker.run_came, self, run)

    def _look_for_idle(self) -> None:
        self._is_looking = False
        if self.is_dead:
            return
        due_ns = self._core_now().return_idle()
        if due_ns >= 0:
            self._is_looking = True
            self._clock.after(due_ns / 1e9 + 1e-9, self._look_for_idle)
        self._carry_out()

    def _settle(self, bunch: Bunch, indices: list[int], failed: bool) -> None:
        bunch.done += len(indices)
        if failed:
            bunch.failed += len(indices)
        if bunch.completed is not None:
            for index in indices:
                bunch.completed[index] = bunch.completed.get(index, 0) + 1
        self._stats.finished(self._clock.now - bunch.submitted_at, len(indices), failed)
        if bunch.is_done:
            self._bunches.pop(bunch.number, None)
            waiters, bunch.waiters = bunch.waiters, []
            for waiter in waiters:
                waiter()

    # ---- other processes ----

    def answer_came(self, worker: GlobalProcess, run: Run, indices: list[int], took_s: float) -> None:
        """So many of a run's tasks are done."""
        if self.is_dead:
            return
        run.begun -= len(indices)
        number = self._leave(worker, run, len(indices))
        self._core_now().answered(number, run.bunch.number, indices, int(took_s * 1e9))
        self._carry_out(worker[0])

    def handed_back(self, worker: GlobalProcess, runs: list[tuple[Run, list[int]]]) -> None:
        """Tasks that were not started come back."""
        if self.is_dead:
            return
        core = self._core_now()
        for run, indices in runs:
            core.handed_back(self._leave(worker, run, len(indices)), run.bunch.number, indices)
        self._carry_out()

    def _leave(self, worker: GlobalProcess, run: Run, count: int) -> int:
        """So many of a run are that worker's no more; its number."""
        number = self.node.cluster.names.number_of(worker)
        run.left -= count
        if not run.left:
            self._sent.get(number, {}).pop(run, None)
        return number

    # ---- the daemon ----

    def record_came(self, kind: int, payload: bytes) -> None:
        """From this node's daemon."""
        if self.is_dead:
            return
        if kind == kinds.LEASE_GRANT:
            self._granted(payload)
        elif kind == kinds.PEER_DIED:
            self._peer_died(payload)
        elif kind == kinds.ACTOR_UP:
            self._actor_up(payload)
        elif kind in _HEARD:
            if kind == kinds.ACTOR_DOWN:
                self._lost(self._actors.get(payload[:16], 0))
            self._hear(kind, payload)
        elif kind == kinds.TASK:
            self._creation_came(payload)
        elif kind == kinds.CONTROL:
            self._message_came(payload)
        else:
            self.holding.record_came(kind, payload)

    def _hear(self, kind: int, payload: bytes) -> None:
        self._core_now().hear(kind, payload)
        self._carry_out()

    def _message_came(self, payload: bytes) -> None:
        message = _messages.decode(payload)
        if isinstance(message, ExitProcess):
            self._asked_to_exit(message.drain)
        elif isinstance(message, GroupChanged) and message.state != "RESCHEDULING":
            self.node.cluster.group_states[message.group] = message.state
            if (waiter := self._group_waiters.pop(message.group, None)) is not None:
                waiter(message.state == "CREATED")

    def _granted(self, payload: bytes) -> None:
        lease, shape, *worker, _ = kinds.LEASE_GRANT_BODY.unpack(payload)
        name, is_known = self._met((worker[0], worker[1]))
        if not is_known:
            self.tell_daemon(kinds.LEASE_RETURN, kinds.LEASE_BODY.pack(lease))
        self._hear_of(name, is_known, kinds.LEASE_GRANT, kinds.LEASE_GRANT_BODY.pack(lease, shape, *name, 0))

    def _hear_of(self, name: tuple[int, int], is_known: bool, kind: int, payload: bytes) -> None:
        """A record that names a process. One that is dead already finds out by itself where it would send to it."""
        self._core_now().hear(kind, payload)
        if not is_known:
            self._core.hear(kinds.PEER_DIED, kinds.PEER_DIED_BODY.pack(*name, 0, 0) + b"it was dead")
        self._carry_out()

    def _actor_up(self, payload: bytes) -> None:
        actor, slot, generation, incarnation, _ = kinds.ACTOR_UP_BODY.unpack(payload)
        name, is_known = self._met((slot, generation))
        before, self._actors[actor] = self._actors.get(actor, 0), name[0] - FAR_SLOTS
        if before != self._actors[actor]:
            self._lost(before)
        self._hear_of(name, is_known, kinds.ACTOR_UP, kinds.ACTOR_UP_BODY.pack(actor, *name, incarnation, 0))

    def _peer_died(self, payload: bytes) -> None:
        slot, generation = kinds.PROCESS_BODY.unpack_from(payload)
        number = self.node.cluster.names.number_of(self.node.global_of((slot, generation)))
        self._lost(number)
        self._hear(kinds.PEER_DIED, kinds.PROCESS_BODY.pack(FAR_SLOTS + number, 1) + payload[8:])

    def _met(self, local: tuple[int, int]) -> tuple[tuple[int, int], bool]:
        """A process that this one will send to: its name for the native core, and whether it lives."""
        number = self.node.cluster.names.number_of(self.node.global_of(local))
        if (process := self.node.find(local)) is not None:
            self.node.talks(self, process)
        return (FAR_SLOTS + number, 1), process is not None

    def _lost(self, number: int) -> None:
        for run in self._sent.pop(number, ()):
            run.lose()
