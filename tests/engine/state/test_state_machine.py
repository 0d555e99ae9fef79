"""Random lives of a node: after every event the invariants hold, and at the end nothing has leaked."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from node_rig import Rig, actor_id

from weft.engine.state import events as ev
from weft.engine.state import instructions as do
from weft.engine.state.actors import Stage
from weft.engine.state.workers import Place

SHAPES = [{"CPU": 1}, {"CPU": 0.5}, {"CPU": 3}, {"GPU": 1}, {"CPU": 1, "GPU": 0.5}, {"disk": 1}, {}]
TOTAL = {"CPU": 3, "GPU": 2, "disk": 1}
Process = tuple[int, int]


class NodeMachine(RuleBasedStateMachine):
    """Drivers, workers and actors that do anything that the protocol allows, and die at any moment."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(TOTAL, gpu_ids=(0, 1), prestart=2, start_limit=4)
        self.rig.slots_left = 60
        self.rig.feed(ev.NodeStarted())
        self.jobs = 0
        self.actors = 0
        self.leases: dict[int, Process] = {}
        self.doomed: set[Process] = set()
        self.blocked: set[Process] = set()
        self.join()

    # ---- the shell and the processes ----

    def feed(self, event: ev.Event) -> None:
        for one in self.rig.feed(event):
            if isinstance(one, do.KillWorker):
                self.doomed.add(one.process)
            elif isinstance(one, do.GrantLease):
                assert one.lease not in self.leases, "a lease was granted twice"
                self.leases[one.lease] = one.process

    def requesters(self) -> list[Process]:
        bound = [w.process for w in self.rig.state.workers if w.place in (Place.LEASED, Place.ACTOR)]
        return [*self.rig.state.drivers, *(process for process in bound if process not in self.doomed)]

    def die(self, process: Process, status: int) -> None:
        self.doomed.discard(process)
        self.blocked.discard(process)
        self.leases = {lease: holder for lease, holder in self.leases.items() if holder != process}
        self.feed(ev.ProcessDied(process, "killed by SIGKILL (pid 1)", status=status))
        if process[0] > 100:
            self.rig.slots_left += 1
            self.feed(ev.SlotReleased())
        gone = [lease for lease in self.leases if lease not in self.rig.state.leases.by_id]
        for lease in gone:
            del self.leases[lease]

    @precondition(lambda self: len(self.rig.state.drivers) < 3)
    @rule()
    def join(self) -> None:
        self.jobs += 1
        self.rig.join((self.jobs, 1), self.jobs)

    @rule(data=st.data(), shape=st.integers(0, len(SHAPES) - 1), wanted=st.integers(0, 5))
    def request(self, data: st.DataObject, shape: int, wanted: int) -> None:
        if requesters := self.requesters():
            process = data.draw(st.sampled_from(requesters))
            self.rig.define(shape, process=process, **SHAPES[shape])
            self.feed(ev.LeaseRequested(process, shape, wanted))

    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        if self.leases:
            lease = data.draw(st.sampled_from(sorted(self.leases)))
            self.feed(ev.LeaseReturned(self.leases.pop(lease), lease))

    @rule(data=st.data())
    def retire(self, data: st.DataObject) -> None:
        if workers := [worker.process for worker in self.rig.state.workers if worker.place is Place.LEASED]:
            self.feed(ev.WorkerRetired(data.draw(st.sampled_from(workers))))

    @rule(data=st.data())
    def block_or_go_on(self, data: st.DataObject) -> None:
        if workers := [worker.process for worker in self.rig.state.workers if worker.place is not Place.REQUESTED]:
            worker = data.draw(st.sampled_from(workers))
            if worker in self.blocked:
                self.blocked.discard(worker)
                self.feed(ev.WorkerUnblocked(worker))
            else:
                self.blocked.add(worker)
                self.feed(ev.WorkerBlocked(worker))

    @rule(data=st.data(), restarts=st.integers(-1, 2), detached=st.booleans(), shape=st.integers(0, 6))
    def create_actor(self, data: st.DataObject, restarts: int, detached: bool, shape: int) -> None:
        if requesters := self.requesters():
            self.actors += 1
            self.feed(
                ev.ActorRequested(
                    data.draw(st.sampled_from(requesters)),
                    kinds_spec(self.actors, max_restarts=restarts, detached=detached, resources=SHAPES[shape]),
                    b"creation",
                )
            )

    @rule(data=st.data(), how=st.sampled_from(["created", "failed", "drop", "kill", "restart", "watch"]))
    def act_on_actor(self, data: st.DataObject, how: str) -> None:
        if not self.actors:
            return
        actor = self.rig.state.actors.find(actor_id(data.draw(st.integers(1, self.actors))))
        if actor is None:
            return
        if how in ("created", "failed") and actor.worker is not None and actor.stage is Stage.STARTING:
            self.feed(ev.ActorCreated(actor.worker, actor.id, how == "created", b"error"))
        elif how == "drop":
            self.feed(ev.ActorDropped((1, 1), actor.id))
        elif how in ("kill", "restart"):
            self.feed(ev.ActorKillRequested((1, 1), actor.id, how == "kill"))
        elif how == "watch" and (requesters := self.requesters()):
            self.feed(ev.ActorWatched(data.draw(st.sampled_from(requesters)), actor.id))

    @rule(data=st.data(), status=st.sampled_from([-9, -11, 0, 1]))
    def kill_worker(self, data: st.DataObject, status: int) -> None:
        workers = [worker for worker in self.rig.state.workers if worker.binding is not None]
        if workers:
            self.die(data.draw(st.sampled_from(workers)).process, status)

    @rule(data=st.data())
    def driver_leaves(self, data: st.DataObject) -> None:
        if self.rig.state.drivers:
            self.die(data.draw(st.sampled_from(sorted(self.rig.state.drivers))), -9)

    @rule()
    def doomed_die(self) -> None:
        for process in sorted(self.doomed):
            self.die(process, -9)

    @rule()
    def tick(self) -> None:
        self.feed(ev.Ticked())

    # ---- what must hold ----

    @invariant()
    def leases_agree(self) -> None:
        held = {lease: known.holder for lease, known in self.rig.state.leases.by_id.items()}
        for lease, holder in self.leases.items():
            assert held.get(lease) == holder

    @invariant()
    def nobody_leases_itself(self) -> None:
        assert all(lease.holder != lease.worker.process for lease in self.rig.state.leases.by_id.values())

    @invariant()
    def what_fits_is_granted(self) -> None:
        """Nothing waits that could have a worker and its resources now (slots are plenty here)."""
        state = self.rig.state
        assert state.demands.next_fitting(state.resources) is None

    def teardown(self) -> None:
        """Everyone leaves: all resources come back and no worker of theirs remains."""
        for actor in list(self.rig.state.actors.by_id):
            self.feed(ev.ActorKillRequested((0, 0), actor, True))
        for driver in list(self.rig.state.drivers):
            self.die(driver, -9)
        while self.doomed:
            self.doomed_die()
        for worker in list(self.rig.state.workers):
            if worker.place is Place.ENDING:  # it was asked to end by itself
                self.die(worker.process, 0)
        while self.doomed:
            self.doomed_die()
        state = self.rig.state
        assert state.resources.available == state.resources.total
        assert not state.leases.by_id and not state.demands.by_key and not state.jobs
        assert all(worker.place is Place.IDLE and worker.binding is None for worker in state.workers)


def kinds_spec(number: int, **fields: object):  # type: ignore[no-untyped-def]
    from weft.engine.wire.messages import ActorSpec

    return ActorSpec(actor_id(number), "Counter", 7, placement_resources={"CPU": 1.0}, **fields)  # type: ignore[arg-type]


TestNodeMachine = NodeMachine.TestCase
TestNodeMachine.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
