"""Placement groups: where bundles go, who may draw from them, and that nothing of them is left."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from node_rig import DRIVER, Rig, actor_id, grants, killed, sent, two_cpus

from weft.engine.state import events as ev
from weft.engine.state import instructions as do
from weft.engine.state.cluster import NodeView
from weft.engine.state.placement import STRATEGIES, Group, GroupState, GroupTable, choose_nodes
from weft.engine.state.resources import total_of
from weft.engine.state.workers import Place
from weft.engine.wire.kinds import ErrorCode
from weft.engine.wire.messages import ActorSpec, CreateGroup, DefineShape, GroupChanged, Warn

Bundles = list[dict[str, float]]


def group_id(number: int) -> bytes:
    return number.to_bytes(18, "big")


def make_group(bundles: Bundles, strategy: str = "PACK", **fields: object) -> Group:
    return Group(CreateGroup(group_id(1), bundles, strategy, **fields), DRIVER, 1, b"")  # type: ignore[arg-type]


def make_nodes(*totals: dict[str, float], **labels: str) -> list[NodeView]:
    return [
        NodeView(number, f"n{number}", labels, {name: round(amount * 10_000) for name, amount in total.items()})
        for number, total in enumerate(totals)
    ]


# ---- which node gets which bundle ------------------------------------------------------------------

amounts = st.dictionaries(st.sampled_from(["CPU", "GPU", "disk"]), st.integers(0, 4), min_size=1)
some_bundles = st.lists(amounts.filter(lambda one: any(one.values())), min_size=1, max_size=5)


@settings(max_examples=300, deadline=None)
@given(some_bundles, st.lists(amounts, max_size=5), st.sampled_from(STRATEGIES))
def test_what_is_chosen_fits_and_keeps_the_strict_rules(bundles: Bundles, totals: Bundles, strategy: str) -> None:
    group = make_group(bundles, strategy)
    nodes = make_nodes(*totals)
    chosen = choose_nodes(group, nodes)
    if chosen is None:
        return
    assert len(chosen) == len(bundles)
    for node in nodes:
        mine = [group.bundles[index] for index, number in enumerate(chosen) if number == node.number]
        assert all(node.available.get(name, 0) >= amount for name, amount in total_of(mine))
    if strategy == "STRICT_PACK":
        assert len(set(chosen)) == 1
    if strategy == "STRICT_SPREAD":
        assert len(set(chosen)) == len(chosen)


@settings(max_examples=200, deadline=None)
@given(some_bundles, st.lists(amounts, max_size=4))
def test_strict_strategies_find_a_place_whenever_there_is_one(bundles: Bundles, totals: Bundles) -> None:
    import itertools

    nodes = make_nodes(*totals)
    group = make_group(bundles, "STRICT_SPREAD")
    could = any(
        all(dict(nodes[n].total).get(name, 0) >= a for b, n in zip(group.bundles, order, strict=False) for name, a in b)
        for order in itertools.permutations(range(len(nodes)), len(bundles))
    )
    assert (choose_nodes(group, nodes) is not None) == could
    group = make_group(bundles, "STRICT_PACK")
    could = any(all(node.total.get(name, 0) >= a for name, a in total_of(group.bundles)) for node in nodes)
    assert (choose_nodes(group, nodes) is not None) == could


def test_pack_uses_few_nodes_and_spread_many() -> None:
    nodes = make_nodes({"CPU": 2}, {"CPU": 4}, {"CPU": 4})
    assert choose_nodes(make_group([{"CPU": 1}] * 4, "PACK"), nodes) == [1, 1, 1, 1]
    assert set(choose_nodes(make_group([{"CPU": 1}] * 3, "SPREAD"), nodes) or []) == {0, 1, 2}


def test_bundles_follow_labels() -> None:
    nodes = [NodeView(0, "a", {"zone": "x"}, {"CPU": 10_000}), NodeView(1, "b", {"zone": "y"}, {"CPU": 90_000})]
    assert choose_nodes(make_group([{"CPU": 1}], labels=[{"zone": "x"}]), nodes) == [0]
    assert choose_nodes(make_group([{"CPU": 1}], labels=[{"zone": "z"}]), nodes) is None
    assert choose_nodes(make_group([{"CPU": 1}, {"CPU": 1}], same_label="zone"), nodes) == [1, 1]
    assert choose_nodes(make_group([{"CPU": 5}, {"CPU": 5}], same_label="zone"), nodes) is None


def test_what_a_dead_node_held_is_placed_again_and_the_rest_stays() -> None:
    table = GroupTable()
    group = table.create(CreateGroup(group_id(1), [{"CPU": 1}, {"CPU": 1}], "STRICT_SPREAD"), DRIVER, 1)
    assert group is not None
    nodes = make_nodes({"CPU": 1}, {"CPU": 1}, {"CPU": 1})
    out: list[do.Instruction] = []
    table.placed(group, [0, 1], out)
    assert table.node_died(0, out) == [group]
    assert group.state is GroupState.RESCHEDULING
    nodes[0].is_alive = False
    assert choose_nodes(group, nodes) == [2, 1]
    table.placed(group, [2, 1], out)
    table.check()
    told = [one.message.state for one in out if isinstance(one, do.SendMessage)]  # type: ignore[attr-defined]
    assert told == ["CREATED", "RESCHEDULING", "CREATED"]


# ---- on one node -----------------------------------------------------------------------------------


def create(rig: Rig, number: int, bundles: Bundles, strategy: str = "PACK", **fields: object) -> list[do.Instruction]:
    spec = CreateGroup(group_id(number), bundles, strategy, **fields)  # type: ignore[arg-type]
    return rig.feed(ev.GroupRequested(fields.pop("process", DRIVER), spec))  # type: ignore[arg-type]


def remove(rig: Rig, number: int) -> list[do.Instruction]:
    return rig.feed(ev.GroupRemovalRequested(DRIVER, group_id(number)))


def define_in(rig: Rig, shape: int, number: int, bundle: int = -1, **resources: float) -> None:
    strategy: dict[str, str | int | bool] = {
        "kind": "placement_group", "group": group_id(number).hex(), "bundle": bundle, "capture_child_tasks": False,
    }  # fmt: skip
    rig.feed(ev.ShapeDefined(DRIVER, DefineShape(shape, resources, strategy=strategy, name="f")))


def changes(instructions: list[do.Instruction]) -> list[str]:
    return [
        one.message.state
        for one in instructions
        if isinstance(one, do.SendMessage) and isinstance(one.message, GroupChanged)
    ]


def test_bundles_take_from_the_node_and_come_back() -> None:
    rig = two_cpus()
    assert changes(create(rig, 1, [{"CPU": 1}, {"CPU": 0.5}])) == ["CREATED"]
    assert rig.free()["CPU"] == 0.5
    remove(rig, 1)
    assert rig.free()["CPU"] == 2
    assert rig.state.groups.by_id[group_id(1)].state is GroupState.REMOVED


def test_tasks_draw_from_their_bundle_alone() -> None:
    rig = two_cpus()
    create(rig, 1, [{"CPU": 1}])
    define_in(rig, 5, 1, CPU=1)
    assert len(rig.want(3, shape=5)) == 1
    assert rig.free()["CPU"] == 1
    assert len(rig.want(3)) == 1


def test_the_next_task_draws_once_the_first_gives_back() -> None:
    rig = two_cpus()
    create(rig, 1, [{"CPU": 1}])
    define_in(rig, 5, 1, 0, CPU=1)
    (lease, worker), *rest = rig.want(2, shape=5)
    assert not rest
    assert [granted[1] for granted in grants(rig.give_back(lease))] == [worker]


def test_a_blocked_task_lends_its_cpu_to_its_own_bundle() -> None:
    rig = two_cpus()
    create(rig, 1, [{"CPU": 1}])
    define_in(rig, 5, 1, CPU=1)
    ((_, worker),) = rig.want(2, shape=5)
    assert len(grants(rig.feed(ev.WorkerBlocked(worker)))) == 1
    assert rig.free()["CPU"] == 1
    rig.feed(ev.WorkerUnblocked(worker))


def test_a_task_may_come_before_its_group() -> None:
    rig = two_cpus()
    define_in(rig, 5, 1, CPU=1)
    assert not rig.want(1, shape=5)
    assert len(grants(create(rig, 1, [{"CPU": 1}]))) == 1


def test_a_group_that_never_comes_is_refused() -> None:
    rig = two_cpus()
    define_in(rig, 5, 1, CPU=1)
    rig.want(1, shape=5)
    refused = [one for _ in range(12) for one in sent(rig.feed(ev.Ticked()), do.RefuseShape)]
    assert len(refused) == 1
    assert "no placement group" in refused[0].fault.text


def test_removing_ends_tasks_and_actors_with_the_reason() -> None:
    rig = two_cpus()
    create(rig, 1, [{"CPU": 2}])
    define_in(rig, 5, 1, CPU=1)
    ((_, worker),) = rig.want(1, shape=5)
    strategy = {"kind": "placement_group", "group": group_id(1).hex(), "bundle": 0}
    rig.create(7, strategy=strategy, resources={"CPU": 1}, placement_resources={"CPU": 1})
    actor = rig.state.actors.by_id[actor_id(7)]
    assert actor.worker is not None
    living = actor.worker
    done = remove(rig, 1)
    assert killed(done) == {worker, living}
    (refused,) = sent(done, do.RefuseShape)
    assert refused.fault.code == ErrorCode.GROUP_REMOVED
    assert rig.free()["CPU"] == 0
    down = sent(rig.die(living), do.TellActorDown)
    assert isinstance(down[0].cause, do.Fault) and down[0].cause.code == ErrorCode.ACTOR_GROUP_REMOVED
    assert rig.free()["CPU"] == 0  # the bundle is still drawn from
    rig.die(worker)
    assert rig.free()["CPU"] == 2
    (refused,) = sent(rig.feed(ev.LeaseRequested(DRIVER, 5, 1)), do.RefuseShape)
    assert refused.fault.code == ErrorCode.GROUP_REMOVED


def test_a_waiting_group_is_placed_when_room_comes_and_leases_are_asked_back_for_it() -> None:
    rig = two_cpus()
    leases = rig.want(2)
    done = create(rig, 1, [{"CPU": 1}, {"CPU": 1}], "STRICT_PACK")
    assert changes(done) == []
    assert len(sent(done, do.RevokeLease)) == 2
    rig.give_back(leases[0][0])
    assert changes(rig.give_back(leases[1][0])) == ["CREATED"]


def test_groups_wait_in_turn() -> None:
    rig = two_cpus()
    create(rig, 1, [{"CPU": 2}])
    for number in (2, 3, 4):
        assert changes(create(rig, number, [{"CPU": 1}])) == []
    rig.feed(ev.GroupRemovalRequested(DRIVER, group_id(1)))
    states = [rig.state.groups.by_id[group_id(number)].state for number in (2, 3, 4)]
    assert states == [GroupState.CREATED, GroupState.CREATED, GroupState.PENDING]


@pytest.mark.parametrize(
    ("bundles", "strategy", "words"),
    [([{"GPU": 1}], "PACK", "1 GPU"), ([{"CPU": 1}] * 2, "STRICT_SPREAD", "2 bundles must be on as many nodes")],
)
def test_what_can_not_be_placed_stays_pending_and_says_so(bundles: Bundles, strategy: str, words: str) -> None:
    rig = two_cpus()
    done = create(rig, 1, bundles, strategy)
    assert rig.state.groups.by_id[group_id(1)].state is GroupState.PENDING
    warnings = [one.message.text for one in done if isinstance(one, do.SendMessage) and isinstance(one.message, Warn)]
    assert len(warnings) == 1
    assert words in warnings[0]


def test_what_fits_no_bundle_is_refused() -> None:
    rig = two_cpus()
    create(rig, 1, [{"CPU": 1}])
    for bundle in (-1, 0, 3):
        define_in(rig, 5 + bundle, 1, bundle, CPU=2)
        (refused,) = sent(rig.feed(ev.LeaseRequested(DRIVER, 5 + bundle, 1)), do.RefuseShape)
        assert refused.fault.code == ErrorCode.UNSCHEDULABLE


def test_a_group_ends_with_its_driver_unless_it_is_detached() -> None:
    rig = two_cpus()
    rig.join((2, 1), job=2)
    create(rig, 1, [{"CPU": 0.5}])
    create(rig, 2, [{"CPU": 0.5}], detached=True)
    rig.die(DRIVER)
    assert set(rig.state.groups.living) == {group_id(2)}
    assert rig.free()["CPU"] == 1.5


def test_gpus_of_a_bundle_are_the_bundles_own() -> None:
    rig = Rig({"CPU": 2, "GPU": 2}, gpu_ids=(0, 1), prestart=2)
    rig.feed(ev.NodeStarted())
    rig.join()
    create(rig, 1, [{"GPU": 1}, {"GPU": 0.5}])
    define_in(rig, 5, 1, 1, GPU=0.5)
    ((_, worker),) = rig.want(1, shape=5)
    binding = rig.state.workers.by_process[worker].binding
    assert binding is not None and binding.gpu_ids == (1,)


def test_others_are_told_what_becomes_of_a_group_and_the_remover_is_not() -> None:
    rig = two_cpus()
    rig.join((2, 1), job=2)
    rig.feed(ev.GroupWatched((2, 1), group_id(1)))
    done = create(rig, 1, [{"CPU": 1}]) + remove(rig, 1)
    told = [(one.process, one.message.state) for one in done if isinstance(one, do.SendMessage)
            and isinstance(one.message, GroupChanged)]  # fmt: skip
    assert told == [(DRIVER, "CREATED"), ((2, 1), "CREATED"), ((2, 1), "REMOVED")]
    assert changes(rig.feed(ev.GroupWatched((2, 1), group_id(1)))) == ["REMOVED"]


# ---- priorities, affinity, labels ------------------------------------------------------------------


def prioritise(rig: Rig, shape: int, priority: int) -> None:
    rig.feed(ev.ShapeDefined(DRIVER, DefineShape(shape, {"CPU": 1}, strategy={"priority": priority}, name="f")))


def test_the_higher_priority_goes_first_and_gets_all_it_wants() -> None:
    rig = two_cpus()
    prioritise(rig, 2, 5)
    low = rig.want(4)
    assert len(low) == 2
    done = rig.feed(ev.LeaseRequested(DRIVER, 2, 4))
    assert len(sent(done, do.RevokeLease)) == 2
    given = grants(rig.give_back(low[0][0])) + grants(rig.give_back(low[1][0]))
    held = [rig.state.leases.by_id[lease].group for lease, _ in given]
    assert held == [(DRIVER, 2), (DRIVER, 2)]


def test_the_lower_priority_does_not_starve() -> None:
    rig = two_cpus()
    prioritise(rig, 2, 5)
    high = [lease for lease, _ in rig.want(4, shape=2)]
    rig.want(2)
    asked = [one for _ in range(25) for one in sent(rig.feed(ev.Ticked()), do.RevokeLease)]
    assert len(asked) == 1
    rig.feed(ev.LeaseRequested(DRIVER, 2, 4))
    given = grants(rig.give_back(high[-1]))
    assert [rig.state.leases.by_id[lease].group for lease, _ in given] == [(DRIVER, 1)]


def test_only_the_node_that_is_meant() -> None:
    rig = two_cpus()
    rig.state.standing.own.name("ab", {"zone": "x"})
    wanted: list[tuple[dict[str, str | int | bool], bool]] = [
        ({"kind": "node_affinity", "node_id": "ab", "soft": False}, True),
        ({"kind": "node_affinity", "node_id": "cd", "soft": False}, False),
        ({"kind": "node_affinity", "node_id": "cd", "soft": True}, True),
        ({"labels": '{"zone": "in(x, y)"}'}, True),
        ({"labels": '{"zone": "!x"}'}, False),
        ({"kind": "node_label", "hard": '{"zone": ["exists", []]}', "soft_labels": "{}"}, True),
        ({"kind": "node_label", "hard": '{"gpu": ["exists", []]}', "soft_labels": "{}"}, False),
    ]
    for shape, (strategy, fits) in enumerate(wanted, 10):
        rig.feed(ev.ShapeDefined(DRIVER, DefineShape(shape, {}, strategy=strategy, name="f")))
        done = rig.feed(ev.LeaseRequested(DRIVER, shape, 1))
        assert bool(grants(done)) == fits, strategy
        assert bool(sent(done, do.RefuseShape)) != fits, strategy


def test_who_is_not_to_wait_is_refused_when_there_is_no_room() -> None:
    rig = two_cpus()
    rig.state.standing.own.name("ab", {})
    rig.want(2)
    strategy = {"kind": "node_affinity", "node_id": "ab", "soft": False, "fail_on_unavailable": True}
    down = sent(rig.create(7, strategy=strategy), do.TellActorDown)
    assert isinstance(down[0].cause, do.Fault) and down[0].cause.code == ErrorCode.ACTOR_UNSCHEDULABLE


# ---- random lives ----------------------------------------------------------------------------------

SHAPES = [{"CPU": 1}, {"CPU": 0.5}, {"GPU": 0.5}, {}]
GROUPS: list[Bundles] = [[{"CPU": 1}], [{"CPU": 1}, {"GPU": 1}], [{"GPU": 0.5}] * 3, [{"CPU": 9}]]


class GroupMachine(RuleBasedStateMachine):
    """Groups come and go under tasks and actors that are in them or not; workers and drivers die at any moment."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig({"CPU": 3, "GPU": 2}, gpu_ids=(0, 1), prestart=2, start_limit=4)
        self.rig.feed(ev.NodeStarted())
        self.rig.join()
        self.groups = self.actors = self.shapes = 0
        self.leases: dict[int, tuple[int, int]] = {}
        self.doomed: set[tuple[int, int]] = set()

    def feed(self, event: ev.Event) -> None:
        for one in self.rig.feed(event):
            if isinstance(one, do.KillWorker):
                self.doomed.add(one.process)
            elif isinstance(one, do.GrantLease):
                self.leases[one.lease] = one.process

    def strategy(self, number: int, bundle: int) -> dict[str, str | int | bool]:
        if not number:
            return {}
        return {"kind": "placement_group", "group": group_id(number).hex(), "bundle": bundle}

    @rule(which=st.integers(0, len(GROUPS) - 1), strategy=st.sampled_from(STRATEGIES), detached=st.booleans())
    def create(self, which: int, strategy: str, detached: bool) -> None:
        self.groups += 1
        spec = CreateGroup(group_id(self.groups), GROUPS[which], strategy, detached=detached)
        self.feed(ev.GroupRequested(DRIVER, spec))

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        if self.groups:
            number = data.draw(st.integers(1, self.groups))
            self.feed(ev.GroupRemovalRequested(DRIVER, group_id(number)))

    @rule(data=st.data(), shape=st.sampled_from(SHAPES), bundle=st.integers(-1, 2), wanted=st.integers(0, 3))
    def request(self, data: st.DataObject, shape: dict[str, float], bundle: int, wanted: int) -> None:
        self.shapes += 1
        strategy = self.strategy(data.draw(st.integers(0, self.groups + 1)), bundle)
        self.feed(ev.ShapeDefined(DRIVER, DefineShape(self.shapes, shape, strategy=strategy)))
        self.feed(ev.LeaseRequested(DRIVER, self.shapes, wanted))

    @rule(data=st.data(), shape=st.sampled_from(SHAPES), bundle=st.integers(-1, 2), restarts=st.integers(0, 2))
    def create_actor(self, data: st.DataObject, shape: dict[str, float], bundle: int, restarts: int) -> None:
        self.actors += 1
        strategy = self.strategy(data.draw(st.integers(0, self.groups)), bundle)
        spec = ActorSpec(actor_id(self.actors), "A", 7, shape, shape, max_restarts=restarts, strategy=strategy)
        self.feed(ev.ActorRequested(DRIVER, spec, b"creation"))

    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        living = [lease for lease in self.leases if lease in self.rig.state.leases.by_id]
        if living:
            self.feed(ev.LeaseReturned(DRIVER, data.draw(st.sampled_from(living))))

    @rule(data=st.data(), blocked=st.booleans())
    def block_or_go_on(self, data: st.DataObject, blocked: bool) -> None:
        busy = [worker.process for worker in self.rig.state.workers if worker.place in (Place.LEASED, Place.ACTOR)]
        if busy:
            worker = data.draw(st.sampled_from(busy))
            self.feed(ev.WorkerBlocked(worker) if blocked else ev.WorkerUnblocked(worker))

    def die(self, process: tuple[int, int]) -> None:
        self.doomed.discard(process)
        self.feed(ev.ProcessDied(process, "killed by SIGKILL (pid 1)"))

    @rule(data=st.data())
    def kill_worker(self, data: st.DataObject) -> None:
        bound = [worker.process for worker in self.rig.state.workers if worker.binding is not None]
        if bound:
            self.die(data.draw(st.sampled_from(bound)))

    @rule()
    def doomed_die(self) -> None:
        for process in sorted(self.doomed):
            self.die(process)

    @rule()
    def tick(self) -> None:
        self.feed(ev.Ticked())

    @invariant()
    def what_fits_is_granted(self) -> None:
        assert self.rig.state.demands.next_fitting(self.rig.state.resources) is None

    @invariant()
    def strict_spread_is_never_placed_together(self) -> None:
        for group in self.rig.state.groups.living.values():
            if group.spec.strategy == "STRICT_SPREAD" and len(group.bundles) > 1:
                assert group.state is GroupState.PENDING

    def teardown(self) -> None:
        for number in range(1, self.groups + 1):
            if self.rig.state.groups.by_id[group_id(number)].spec.detached:
                self.feed(ev.GroupRemovalRequested(DRIVER, group_id(number)))
        self.die(DRIVER)
        while self.doomed:
            self.doomed_die()
        for worker in list(self.rig.state.workers):
            if worker.place is Place.ENDING:
                self.die(worker.process)
        while self.doomed:
            self.doomed_die()
        state = self.rig.state
        assert state.resources.available == state.resources.total
        assert not state.groups.living and not state.demands.by_key and not state.bundles.holdings()


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
