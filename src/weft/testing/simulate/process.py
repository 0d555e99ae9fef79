"""A driver or worker, as the native core has it: what it submits, leases, pushes, executes, hands back and waits for.

A small model of native/submitter.cpp, native/leases.cpp and native/pump.cpp: the same rules and numbers, with runs of
equal tasks as one event. What the node daemon sees of it (records, their order, their meaning) is as in reality.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from weft.engine.wire import kinds
from weft.engine.wire.messages import CreateGroup as CreateGroupMessage
from weft.engine.wire.messages import DefineShape, ExitProcess, GroupChanged, Warn
from weft.engine.wire.messages import RemoveGroup as RemoveGroupMessage
from weft.testing.simulate import program as steps
from weft.testing.simulate.actors import ActorCalls
from weft.testing.simulate.holding import Holding
from weft.testing.simulate.program import Bunch, Function, Program, Run

if TYPE_CHECKING:
    from weft.testing.simulate.node import SimNode

PIPELINE_S = 0.001
"""A worker is given what it is expected to finish in about this time."""
PIPELINE_TASKS = 512
WORTH_ANOTHER_WORKER_S = 30e-6
MOST_LEASES_ASKED = 4096
IDLE_LEASE_S = 0.05
LEND_AFTER_S = 0.0001
_messages = msgspec.msgpack.Decoder(GroupChanged | ExitProcess | Warn)
encode = msgspec.msgpack.Encoder().encode


class Lease:
    __slots__ = ("blocked", "expected_s", "flight", "id", "idle_since", "in_flight", "revoked", "shape", "worker")

    def __init__(self, lease: int, shape: Shape, worker: Process, now: float) -> None:
        self.id = lease
        self.shape = shape
        self.worker = worker
        self.flight: deque[Run] = deque()
        self.in_flight = 0
        self.expected_s = 0.0
        self.revoked = False
        self.blocked = False
        self.idle_since = now


class Shape:
    __slots__ = ("asked", "id", "leases", "queue", "queued", "refused")

    def __init__(self, number: int) -> None:
        self.id = number
        self.queue: deque[Run] = deque()
        self.queued = 0
        self.leases: list[Lease] = []
        self.asked = 0
        self.refused = False


class Process(ActorCalls):
    """One simulated process of a node."""

    def __init__(self, node: SimNode, name: tuple[int, int], is_worker: bool) -> None:
        super().__init__(node, name, is_worker)
        self._shapes: dict[str, Shape] = {}
        self._by_number: dict[int, Shape] = {}
        self._leases: dict[int, Lease] = {}
        self._estimates: dict[str, float] = {}
        self._group_waiters: dict[bytes, Callable[[bool], None]] = {}
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
                self.kill_actor(step.actor)
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
        bunch = Bunch(function, count, self, args, self._clock.now)
        self._stats.submitted += count
        self.node.cluster.bunches.append(bunch)
        if escapes:
            self.node.cluster.control.write("tasks", id(bunch) ^ len(self.node.cluster.bunches), count)
        for arg in args:
            if not arg.is_done:
                bunch.missing += 1
                arg.waiters.append(lambda: self._argument_done(bunch))
        if not bunch.missing:
            self._enqueue(bunch)
        return bunch

    def _argument_done(self, bunch: Bunch) -> None:
        bunch.missing -= 1
        if not bunch.missing and not self.is_dead:
            self._enqueue(bunch)

    def _enqueue(self, bunch: Bunch) -> None:
        if any(arg.failed for arg in bunch.args):
            self.settle(Run(bunch, 0, bunch.count), failed=True)
            return
        shape = self._shape(bunch.function)
        if shape.refused:
            self.settle(Run(bunch, 0, bunch.count), failed=True)
            return
        shape.queue.append(Run(bunch, 0, bunch.count))
        shape.queued += bunch.count
        self._pump(shape)

    def _shape(self, function: Function) -> Shape:
        key = function.name if function.strategy else repr(sorted(function.resources.items()))
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = Shape(len(self._shapes) + 1)
            self._by_number[shape.id] = shape
            definition = DefineShape(shape.id, function.resources, "", function.strategy, function.name)
            self.tell_daemon(kinds.CONTROL, encode(definition))
        return shape

    def _pump(self, shape: Shape, only: Lease | None = None) -> None:
        """Push what leased workers may be given; ask for as many leases as tasks are left.

        `only`: no other lease has room, as tasks were waiting before."""
        if shape.queue and shape.leases:
            self._push_what_fits(shape, shape.leases if only is None else [only])
        wanted = min(shape.queued, MOST_LEASES_ASKED)
        more = wanted > shape.asked and (shape.asked == 0 or wanted >= 2 * shape.asked)
        if more or (wanted == 0 and shape.asked):
            shape.asked = wanted
            self.tell_daemon(kinds.LEASE_REQUEST, kinds.LEASE_REQUEST_BODY.pack(shape.id, wanted))

    def _push_what_fits(self, shape: Shape, leases: list[Lease]) -> None:
        """The least loaded first, so many at once that all get the same."""
        usable = [
            (lease.expected_s, number, lease)
            for number, lease in enumerate(leases)
            if not (lease.revoked or lease.blocked)
        ]
        heapq.heapify(usable)
        while shape.queue and usable:
            _, number, lease = usable[0]
            run = shape.queue[0]
            estimate = self._estimates.get(run.bunch.function.name, -1.0)
            room = _room(lease, estimate)
            if not room:
                heapq.heappop(usable)
                continue
            count = room
            if estimate > 0:
                even = max(-(-shape.queued // len(usable)), int(WORTH_ANOTHER_WORKER_S / estimate), 1)
                count = min(room, even)
            self._push(lease, run, min(count, run.count), max(0.0, estimate))
            heapq.heapreplace(usable, (lease.expected_s, number, lease))

    def _push(self, lease: Lease, run: Run, count: int, estimate: float) -> None:
        shape = lease.shape
        if count == run.count:
            part = shape.queue.popleft()
        else:
            part = Run(run.bunch, run.first, count)
            run.first += count
            run.count -= count
        shape.queued -= count
        part.expected_s = estimate * count
        part.lease = lease
        lease.flight.append(part)
        lease.in_flight += count
        lease.expected_s += part.expected_s
        self._clock.at(self.busy(count * self._costs.submit_s), self._send_run, lease.worker, part)

    def _send_run(self, worker: Process, run: Run) -> None:
        self.node.send_between(self, worker, run.count, worker.run_came, self, run, run.first, run.count)

    # ---- leases ----

    def _granted(self, payload: bytes) -> None:
        number, shape_id, slot, generation, _ = kinds.LEASE_GRANT_BODY.unpack(payload)
        shape = self._by_number[shape_id]
        worker = self.node.find((slot, generation))
        if shape.asked > 0:
            shape.asked -= 1
        if worker is None:  # it is dead already, and this process will not be told
            self.tell_daemon(kinds.LEASE_RETURN, kinds.LEASE_BODY.pack(number))
            self._pump(shape)
            return
        waited = bool(shape.queue)
        lease = Lease(number, shape, worker, self._clock.now)
        self._leases[number] = lease
        shape.leases.append(lease)
        self.node.talks(self, worker)
        self._pump(shape, lease if waited else None)
        if not lease.flight:
            self._became_idle(lease)

    def _became_idle(self, lease: Lease) -> None:
        lease.idle_since = self._clock.now
        self._clock.after(IDLE_LEASE_S, self._return_if_idle, lease, lease.idle_since)

    def _return_if_idle(self, lease: Lease, since: float) -> None:
        if self.is_dead or self._leases.get(lease.id) is not lease or lease.flight or lease.idle_since != since:
            return
        self._return(lease)

    def _return(self, lease: Lease) -> None:
        lease.shape.leases.remove(lease)
        del self._leases[lease.id]
        self.tell_daemon(kinds.LEASE_RETURN, kinds.LEASE_BODY.pack(lease.id))

    def _revoked(self, number: int) -> None:
        lease = self._leases.get(number)
        if lease is not None:
            lease.revoked = True
            if not lease.flight:
                self._return(lease)

    def _lease_lost(self, lease: Lease) -> None:
        """Its worker is dead: the first task ran, the others lose nothing."""
        del self._leases[lease.id]
        lease.shape.leases.remove(lease)
        back: list[Run] = []
        for index, run in enumerate(lease.flight):
            run.lease = None
            run.bunch.lost += run.begun
            if index == 0:
                first = Run(run.bunch, run.first, 1)
                if self._retry(first):
                    back.append(first)
                else:
                    self.settle(first, failed=True)
                run.first += 1
                run.count -= 1
            if run.count:
                back.append(run)
        self._requeue(lease.shape, back)
        self._pump(lease.shape)

    def _requeue(self, shape: Shape, runs: list[Run]) -> None:
        for run in reversed(runs):
            shape.queue.appendleft(run)
            shape.queued += run.count

    # ---- replies ----

    def reply_came(self, run: Run, first: int, count: int, took_s: float, node: int) -> None:
        """So many of a run's tasks are done, from `first` on."""
        if self.is_dead:
            return
        run.begun -= count
        if run.bunch.actor is not None:
            self._call_answered(run, first, count)
            return
        lease = run.lease
        if lease is None:
            return
        waited = bool(lease.shape.queue)
        name = run.bunch.function.name
        known = self._estimates.get(name, -1.0)
        self._estimates[name] = took_s if took_s >= known else known - (known - took_s) * (1 - (7 / 8) ** count)
        self._take_from(lease, run, count)
        lease.blocked = False
        self._note_origin(run.bunch, first, count, node)
        shape = lease.shape
        if not lease.flight:
            if lease.revoked:
                self._return(lease)
            elif not shape.queue:
                self._became_idle(lease)
        if shape.queue and self._leases.get(lease.id) is lease:
            self._pump(shape, lease if waited else None)
        self.settle(Run(run.bunch, first, count), failed=False)

    def _take_from(self, lease: Lease, run: Run, count: int) -> None:
        share = run.expected_s * count / run.count
        lease.expected_s = max(0.0, lease.expected_s - share)
        lease.in_flight -= count
        run.expected_s -= share
        run.first += count
        run.count -= count
        if not run.count:
            lease.flight.remove(run)
            run.lease = None
        if not lease.flight:
            lease.expected_s = 0.0

    def _note_origin(self, bunch: Bunch, first: int, count: int, node: int) -> None:
        if bunch.function.result_bytes > steps.INLINE_BYTES:
            for index in range(first, first + count):
                bunch.origins[index] = node

    def settle(self, run: Run, failed: bool) -> None:
        bunch = run.bunch
        bunch.done += run.count
        if failed:
            bunch.failed += run.count
        if bunch.completed is not None:
            for index in range(run.first, run.first + run.count):
                bunch.completed[index] = bunch.completed.get(index, 0) + 1
        self._stats.finished(self._clock.now - bunch.submitted_at, run.count, failed)
        if bunch.is_done:
            waiters, bunch.waiters = bunch.waiters, []
            for waiter in waiters:
                waiter()

    def handed_back(self, runs: list[tuple[Run, int, int]]) -> None:
        """Unstarted tasks come back: so many of each run, the last ones."""
        if self.is_dead:
            return
        back, shape = [], None
        for run, first, count in runs:
            lease = run.lease
            if lease is None:
                continue
            shape = lease.shape
            back.append(Run(run.bunch, first, count))
            ahead = run.first  # the tasks before these are answered, or run
            self._take_from(lease, run, count)
            run.first = ahead
            lease.blocked = bool(lease.flight)
        if shape is not None:
            self._requeue(shape, back)
            self._pump(shape)

    # ---- the daemon ----

    def record_came(self, kind: int, payload: bytes) -> None:
        """From this node's daemon."""
        if self.is_dead:
            return
        if kind == kinds.LEASE_GRANT:
            self._granted(payload)
        elif kind == kinds.LEASE_REVOKE:
            self._revoked(kinds.LEASE_BODY.unpack(payload)[0])
        elif kind == kinds.SHAPE_REFUSED:
            self._refused(kinds.PROCESS_BODY.unpack_from(payload)[0])
        elif kind == kinds.PEER_DIED:
            self._peer_died(kinds.PROCESS_BODY.unpack_from(payload))
        elif kind == kinds.ACTOR_UP:
            self._actor_up(payload)
        elif kind == kinds.ACTOR_DOWN:
            self._actor_down(payload)
        elif kind == kinds.TASK:
            self._creation_came(payload)
        elif kind == kinds.CONTROL:
            self._message_came(payload)
        else:
            self.holding.record_came(kind, payload)

    def _message_came(self, payload: bytes) -> None:
        message = _messages.decode(payload)
        if isinstance(message, ExitProcess):
            self._asked_to_exit(message.drain)
        elif isinstance(message, GroupChanged) and message.state != "RESCHEDULING":
            self.node.cluster.group_states[message.group] = message.state
            if (waiter := self._group_waiters.pop(message.group, None)) is not None:
                waiter(message.state == "CREATED")

    def _refused(self, number: int) -> None:
        shape = self._by_number[number]
        shape.refused, shape.asked = True, 0
        runs, shape.queue, shape.queued = list(shape.queue), deque(), 0
        for run in runs:
            self.settle(run, failed=True)

    def _peer_died(self, local: tuple[int, int]) -> None:
        dead = self.node.global_of(local)
        for lease in [lease for lease in self._leases.values() if lease.worker.global_name == dead]:
            self._lease_lost(lease)
        self._actor_peer_died(dead)

    @property
    def holds_leases(self) -> int:
        return len(self._leases)

    @property
    def wants(self) -> int:
        return sum(shape.queued for shape in self._shapes.values() if not shape.refused)


def _room(lease: Lease, estimate: float) -> int:
    """How many tasks of that duration it may be given now."""
    if lease.revoked or lease.blocked:
        return 0
    if not lease.in_flight:
        return 1 if estimate < 0 else max(1, min(PIPELINE_TASKS, int(PIPELINE_S / max(estimate, 1e-9))))
    if estimate < 0 or lease.expected_s + estimate > PIPELINE_S:
        return 0
    space = PIPELINE_TASKS - lease.in_flight
    return space if estimate == 0 else min(space, int((PIPELINE_S - lease.expected_s) / estimate))
