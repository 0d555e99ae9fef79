"""Placement groups over several nodes: their states linked by the test, with messages in flight and nodes that die."""

from __future__ import annotations

from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from node_rig import DRIVER, Rig

from weft.engine.state import events as ev
from weft.engine.state import instructions as do
from weft.engine.state.cluster import ClusterView, NodeView
from weft.engine.state.demands import PATIENCE_TICKS
from weft.engine.state.placement import STRATEGIES, GroupState
from weft.engine.wire.messages import CreateGroup, DefineShape

HEAD = 0
Bundles = list[dict[str, float]]


def group_id(number: int) -> bytes:
    return number.to_bytes(18, "big")


class Nodes:
    """Rigs that are one cluster. Messages wait until they are delivered, in order for each pair."""

    def __init__(self, *cpus: float) -> None:
        self.rigs: dict[int, Rig] = {}
        self.mail: dict[tuple[int, int], deque[ev.Event]] = {}
        self._last = -1
        for count in cpus:
            self.join(count)
        self.rigs[HEAD].join()

    def join(self, cpus: float) -> int:
        self._last += 1
        rig = self.rigs[self._last] = Rig({"CPU": cpus}, prestart=1)
        rig.state.cluster = ClusterView(self.view(self._last, rig))
        rig.state.standing.is_head = self._last == HEAD
        rig.feed(ev.NodeStarted())
        for number, other in self.rigs.items():
            if number != self._last:
                other.state.cluster.nodes[self._last] = self.view(self._last, rig)  # type: ignore[union-attr]
                rig.state.cluster.nodes[number] = self.view(number, other)
        for group in self.rigs[HEAD].state.groups.living.values() if self._last else ():
            self.post(HEAD, self._last, ev.GroupLearnt(group.spec, group.state.value, list(group.nodes)))
        return self._last

    def view(self, number: int, rig: Rig) -> NodeView:
        return NodeView(number, f"n{number}", {}, rig.state.resources.total)

    def post(self, sender: int, to: int, event: ev.Event) -> None:
        self.mail.setdefault((sender, to), deque()).append(event)

    def feed(self, number: int, event: ev.Event) -> None:
        for one in self.rigs[number].feed(event):
            if isinstance(one, do.ReserveBundles):
                self.post(number, one.node, ev.BundlesAsked(one.group, one.bundles, one.attempt, one.waits))
            elif isinstance(one, do.ReleaseBundles):
                self.post(number, one.node, ev.BundlesDropped(one.group, one.bundles))
            elif isinstance(one, do.AnswerBundles):
                self.post(number, HEAD, ev.BundlesAnswered(number, one.group, one.ok, one.attempt))
            elif isinstance(one, do.PublishGroup):
                for other in self.rigs:
                    if other != HEAD:
                        self.post(HEAD, other, ev.GroupLearnt(one.spec, one.state, one.nodes))

    def deliver(self, pair: tuple[int, int]) -> None:
        event = self.mail[pair].popleft()
        if not self.mail[pair]:
            del self.mail[pair]
        self.feed(pair[1], event)

    def report(self) -> None:
        head = self.rigs[HEAD].state
        assert head.cluster is not None
        for number, rig in self.rigs.items():
            head.cluster.nodes[number].available = dict(rig.state.resources.available)
        self.feed(HEAD, ev.NodesChanged())

    def settle(self) -> None:
        for _ in range(3):
            while self.mail:
                self.deliver(next(iter(self.mail)))
            self.report()

    def die(self, number: int) -> None:
        del self.rigs[number]
        self.mail = {pair: mail for pair, mail in self.mail.items() if number not in pair}
        for rig_number, rig in self.rigs.items():
            rig.state.cluster.nodes.pop(number)  # type: ignore[union-attr]
            self.feed(rig_number, ev.NodeLeft(number))

    def create(self, number: int, bundles: Bundles, strategy: str = "PACK") -> None:
        self.feed(HEAD, ev.GroupRequested(DRIVER, CreateGroup(group_id(number), bundles, strategy)))

    def remove(self, number: int) -> None:
        self.feed(HEAD, ev.GroupRemovalRequested(DRIVER, group_id(number)))

    def state(self, number: int) -> GroupState:
        return self.rigs[HEAD].state.groups.by_id[group_id(number)].state

    def free(self) -> list[float]:
        return [rig.free()["CPU"] for rig in self.rigs.values()]


def test_bundles_are_set_aside_on_their_nodes_and_come_back() -> None:
    nodes = Nodes(1, 2)
    nodes.create(1, [{"CPU": 1}, {"CPU": 1}], "STRICT_SPREAD")
    assert nodes.state(1) is GroupState.PENDING
    nodes.settle()
    assert nodes.state(1) is GroupState.CREATED
    assert nodes.free() == [0, 1]
    nodes.remove(1)
    nodes.settle()
    assert nodes.free() == [1, 2]
    assert nodes.rigs[1].state.groups.by_id[group_id(1)].state is GroupState.REMOVED


def test_a_death_on_a_node_does_not_end_the_groups_that_it_has_learnt_of() -> None:
    nodes = Nodes(1, 1)
    nodes.create(1, [{"CPU": 1}, {"CPU": 1}], "STRICT_SPREAD")
    nodes.settle()
    nodes.rigs[1].join(job=7)
    nodes.rigs[1].die(DRIVER)
    nodes.settle()
    assert nodes.rigs[1].state.groups.by_id[group_id(1)].state is GroupState.CREATED
    assert nodes.free() == [0, 0]


def test_a_group_waits_for_a_node_that_can_hold_it() -> None:
    nodes = Nodes(1)
    nodes.create(1, [{"CPU": 4}])
    nodes.settle()
    assert nodes.state(1) is GroupState.PENDING
    nodes.join(4)
    nodes.settle()
    assert nodes.state(1) is GroupState.CREATED


def test_a_node_that_dies_while_it_is_asked_is_replaced() -> None:
    nodes = Nodes(1, 1, 1)
    nodes.create(1, [{"CPU": 1}, {"CPU": 1}], "STRICT_SPREAD")
    asked = [to for _, to in nodes.mail if any(isinstance(one, ev.BundlesAsked) for one in nodes.mail[_, to])]
    nodes.die(asked[0])
    nodes.settle()
    assert nodes.state(1) is GroupState.CREATED
    assert nodes.free() == [0, 0]


def test_bundles_of_a_dead_node_move() -> None:
    nodes = Nodes(1, 1)
    nodes.create(1, [{"CPU": 1}, {"CPU": 1}], "STRICT_SPREAD")
    nodes.settle()
    nodes.die(1)
    assert nodes.state(1) is GroupState.RESCHEDULING
    nodes.join(1)
    nodes.settle()
    assert nodes.state(1) is GroupState.CREATED
    assert nodes.free() == [0, 0]


def test_a_bundle_does_not_queue_where_its_own_group_leaves_no_room() -> None:
    nodes = Nodes(0.5, 2, 1)
    nodes.create(1, [{"CPU": 2}, {"CPU": 1}])
    nodes.settle()
    nodes.die(2)
    nodes.feed(HEAD, ev.Ticked())
    nodes.join(1)
    nodes.settle()
    assert nodes.state(1) is GroupState.CREATED
    assert nodes.free() == [0.5, 0, 0]


def test_a_group_that_queues_in_vain_goes_to_a_node_that_has_joined() -> None:
    nodes = Nodes(1, 2)
    nodes.rigs[1].join((5, 1), job=7)
    nodes.rigs[1].define(1, process=(5, 1), CPU=1)
    nodes.rigs[1].want(4, process=(5, 1))
    nodes.create(1, [{"CPU": 2}])
    nodes.feed(HEAD, ev.Ticked())
    nodes.settle()
    nodes.join(2)
    for _ in range(PATIENCE_TICKS + 2):
        nodes.feed(HEAD, ev.Ticked())
        nodes.settle()
    assert nodes.state(1) is GroupState.CREATED
    assert nodes.free() == [1, 0, 0]


def test_a_group_queues_where_tasks_stream() -> None:
    nodes = Nodes(1, 2)
    other = nodes.rigs[1]
    other.join((5, 1), job=7)
    other.define(1, process=(5, 1), CPU=1)
    leases = other.want(4, process=(5, 1))
    nodes.create(1, [{"CPU": 2}])
    nodes.settle()
    assert nodes.state(1) is GroupState.PENDING
    nodes.feed(HEAD, ev.Ticked())
    nodes.settle()
    for lease, _ in leases:  # it insists: what comes back is kept for it
        nodes.feed(1, ev.LeaseReturned((5, 1), lease))
    nodes.settle()
    assert nodes.state(1) is GroupState.CREATED


class ClusterMachine(RuleBasedStateMachine):
    """Groups and tasks on nodes that come and go, with messages delivered in any order that links allow."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = Nodes(2, 2)
        self.groups = 0

    @rule(
        bundles=st.lists(st.sampled_from([{"CPU": 1}, {"CPU": 0.5}, {"CPU": 2}]), min_size=1, max_size=3),
        strategy=st.sampled_from(STRATEGIES),
    )
    def create(self, bundles: Bundles, strategy: str) -> None:
        self.groups += 1
        self.nodes.create(self.groups, bundles, strategy)

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        if self.groups:
            self.nodes.remove(data.draw(st.integers(1, self.groups)))

    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        if self.nodes.mail:
            self.nodes.deliver(data.draw(st.sampled_from(sorted(self.nodes.mail))))

    @rule(data=st.data(), wanted=st.integers(0, 3))
    def request(self, data: st.DataObject, wanted: int) -> None:
        strategy: dict[str, str | int | bool] = {}
        if self.groups and data.draw(st.booleans()):
            number = data.draw(st.integers(1, self.groups))
            strategy = {"kind": "placement_group", "group": group_id(number).hex(), "bundle": -1}
        shape = data.draw(st.integers(1, 50))
        self.nodes.feed(HEAD, ev.ShapeDefined(DRIVER, DefineShape(shape, {"CPU": 1}, strategy=strategy)))
        self.nodes.feed(HEAD, ev.LeaseRequested(DRIVER, shape, wanted))

    @rule()
    def give_back_all(self) -> None:
        for lease in list(self.nodes.rigs[HEAD].state.leases.by_id):
            self.nodes.feed(HEAD, ev.LeaseReturned(DRIVER, lease))

    @rule()
    def report(self) -> None:
        self.nodes.report()

    @rule()
    def tick(self) -> None:
        for number in list(self.nodes.rigs):
            self.nodes.feed(number, ev.Ticked())

    @rule(cpus=st.sampled_from([1, 2]))
    def join(self, cpus: float) -> None:
        if len(self.nodes.rigs) < 4:
            self.nodes.join(cpus)

    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        if others := [number for number in self.nodes.rigs if number != HEAD]:
            self.nodes.die(data.draw(st.sampled_from(others)))

    @invariant()
    def what_is_created_is_set_aside(self) -> None:
        for group in self.nodes.rigs[HEAD].state.groups.living.values():
            if group.state is not GroupState.CREATED:
                continue
            for node in set(group.nodes):
                assert node is not None and node in self.nodes.rigs
                held = self.nodes.rigs[node].state.bundles.list_of(group.id, -1)
                assert len(held) == group.nodes.count(node)

    def teardown(self) -> None:
        for number in range(1, self.groups + 1):
            self.nodes.remove(number)
        head = self.nodes.rigs[HEAD]
        self.nodes.feed(HEAD, ev.ProcessDied(DRIVER, "gone"))
        for worker in list(head.state.workers):
            self.nodes.feed(HEAD, ev.ProcessDied(worker.process, "gone"))
        self.nodes.settle()
        for rig in self.nodes.rigs.values():
            assert rig.state.resources.available == rig.state.resources.total
            assert not rig.state.bundles.holdings() and not rig.state.demands.by_key


TestClusterMachine = ClusterMachine.TestCase
TestClusterMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
