"""Placement groups in real sessions: what runs in them, what they leave, who is told."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import weft
from waiting import comes_true, wait_until
from weft.exceptions import (
    ActorDiedError,
    ActorPlacementGroupRemoved,
    ActorUnschedulableError,
    GetTimeoutError,
    OwnerDiedError,
    TaskPlacementGroupRemoved,
    TaskUnschedulableError,
)
from weft.util.placement_group import (
    PlacementGroup,
    get_current_placement_group,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from weft.util.scheduling_strategies import (
    In,
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
    NotIn,
    PlacementGroupSchedulingStrategy,
)


@weft.remote
def where() -> tuple[dict[str, float], str | None]:
    context = weft.get_runtime_context()
    return context.get_assigned_resources(), context.get_placement_group_id()


@weft.remote(max_retries=0)
def sleep(seconds: float) -> None:
    time.sleep(seconds)


@weft.remote(num_cpus=1)
class Counter:
    def __init__(self) -> None:
        self.count = 0

    def add(self) -> int:
        self.count += 1
        return self.count

    def group(self) -> str | None:
        return weft.get_runtime_context().get_placement_group_id()


def free_cpus() -> float:
    return weft.available_resources().get("CPU", 0)


def test_a_group_takes_resources_and_gives_them_back(weft_session: ModuleType) -> None:
    group = placement_group([{"CPU": 1}, {"CPU": 0.5}])
    assert weft.get(group.ready(), timeout=60) == group
    assert group.wait(0)
    assert free_cpus() == 0.5
    table = placement_group_table(group)
    assert (table["state"], table["strategy"]) == ("CREATED", "PACK")
    assert set(table["bundles_to_node_id"].values()) == {weft.get_runtime_context().get_node_id()}
    remove_placement_group(group)
    assert placement_group_table(group)["state"] == "REMOVED"
    assert free_cpus() == 2
    remove_placement_group(group)
    assert not group.wait(1)


def test_tasks_and_actors_run_in_their_bundles(weft_session: ModuleType) -> None:
    group = placement_group([{"CPU": 1}, {"CPU": 1}])
    strategy = PlacementGroupSchedulingStrategy(group, 1)
    assert weft.get(where.options(scheduling_strategy=strategy).remote()) == ({"CPU": 1}, group.id.hex())
    assert weft.get(where.options(placement_group=group).remote()) == ({"CPU": 1}, group.id.hex())
    counter = Counter.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, 0)).remote()
    assert weft.get(counter.add.remote()) == 1
    assert weft.get(counter.group.remote()) == group.id.hex()
    blocked = where.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, 0)).remote()
    assert weft.wait([blocked], timeout=0.2)[1] == [blocked]
    weft.kill(counter)
    assert weft.get(blocked, timeout=60)[1] == group.id.hex()


def test_a_group_waits_for_tasks_and_its_own_tasks_wait_for_it(weft_session: ModuleType) -> None:
    busy = [sleep.remote(0.5) for _ in range(2)]
    group = placement_group([{"CPU": 2}])
    result = where.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group)).remote()
    assert not group.wait(0.05)
    assert weft.get(result, timeout=60)[1] == group.id.hex()
    weft.get(busy)


def test_a_group_is_placed_beside_a_stream_of_tasks(weft_session: ModuleType) -> None:
    refs = [sleep.remote(0.01) for _ in range(400)]
    group = placement_group([{"CPU": 2}])
    assert group.wait(3)
    assert len(weft.wait(refs, num_returns=len(refs), timeout=0)[0]) < len(refs)
    remove_placement_group(group)
    weft.get(refs)


def test_what_can_not_be_placed_stays_pending(weft_session: ModuleType) -> None:
    group = placement_group([{"nowhere": 1}], name="large")
    assert weft.wait([group.ready()], timeout=0.1)[0] == []
    with pytest.raises(GetTimeoutError):
        weft.get(group.ready(), timeout=0.1)
    table = placement_group_table(group)
    assert (table["state"], table["bundles_to_node_id"]) == ("PENDING", {0: ""})
    ref = group.ready()
    remove_placement_group(group)
    with pytest.raises(TaskPlacementGroupRemoved):
        weft.get(ref, timeout=60)
    with pytest.raises(TaskPlacementGroupRemoved):
        weft.get(group.ready(), timeout=60)


def test_removing_ends_what_runs_in_it(weft_session: ModuleType, tmp_path: Path) -> None:
    started = tmp_path / "started"

    @weft.remote(max_retries=0)
    def hold() -> None:
        started.touch()
        time.sleep(100)

    group = placement_group([{"CPU": 2}])
    strategy = PlacementGroupSchedulingStrategy(group)
    counter = Counter.options(scheduling_strategy=strategy, max_restarts=-1).remote()
    running = hold.options(scheduling_strategy=strategy).remote()
    retried = hold.options(scheduling_strategy=strategy, max_retries=3).remote()
    waiting = Counter.options(scheduling_strategy=strategy).remote()
    assert weft.get(counter.add.remote()) == 1
    wait_until(started.exists)
    remove_placement_group(group)
    for ref in (running, retried, where.options(scheduling_strategy=strategy).remote()):
        with pytest.raises(TaskPlacementGroupRemoved, match="was removed"):
            weft.get(ref, timeout=60)
    for actor in (counter, waiting):
        with pytest.raises(ActorPlacementGroupRemoved, match="was removed") as raised:
            weft.get(actor.add.remote(), timeout=60)
        assert isinstance(raised.value, ActorDiedError)
    assert comes_true(lambda: free_cpus() == 2)


def test_child_tasks_are_captured_on_demand(weft_session: ModuleType) -> None:
    @weft.remote
    def parent(**options: object) -> tuple[object, object]:
        child = Counter.options(num_cpus=0, **options).remote()
        return weft.get(where.options(**options).remote())[1], weft.get(child.group.remote())

    group = placement_group([{"CPU": 2}])
    capturing = PlacementGroupSchedulingStrategy(group, placement_group_capture_child_tasks=True)
    mine = group.id.hex()
    assert weft.get(parent.options(scheduling_strategy=capturing).remote()) == (mine, mine)
    remove_placement_group(group)
    small = placement_group([{"CPU": 1}])
    capturing = PlacementGroupSchedulingStrategy(small, placement_group_capture_child_tasks=True)
    outside = parent.options(scheduling_strategy=capturing).remote(placement_group=None)
    assert weft.get(outside, timeout=60) == (None, None)
    no_group = parent.options(scheduling_strategy=capturing).remote(
        scheduling_strategy=PlacementGroupSchedulingStrategy(None)
    )
    assert weft.get(no_group, timeout=60) == (None, None)
    alone = parent.options(scheduling_strategy=PlacementGroupSchedulingStrategy(small)).remote()
    assert weft.get(alone, timeout=60) == (None, None)


def test_the_current_group(weft_session: ModuleType) -> None:
    @weft.remote
    def current() -> PlacementGroup | None:
        return get_current_placement_group()

    group = placement_group([{"CPU": 1}])
    assert get_current_placement_group() is None
    assert weft.get(current.remote()) is None
    found = weft.get(current.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group)).remote())
    assert found == group
    assert found.bundle_specs == [{"CPU": 1.0}]


def test_handles_are_values(weft_session: ModuleType) -> None:
    group = placement_group([{"CPU": 1}, {"CPU": 0.5}])
    for twin in (copy.copy(group), pickle.loads(pickle.dumps(group)), weft.get(weft.put(group))):
        assert twin == group
        assert twin in {group}
    assert group.bundle_specs == [{"CPU": 1}, {"CPU": 0.5}]
    assert group.bundle_count == 2
    assert not group.is_empty
    assert PlacementGroup.empty().is_empty
    assert group != placement_group([{"CPU": 0.1}])


def test_names(weft_session: ModuleType) -> None:
    group = placement_group([{"CPU": 1}], name="mine")
    assert get_placement_group("mine") == group
    with pytest.raises(ValueError, match="'mine' is already taken"):
        placement_group([{"CPU": 1}], name="mine")
    remove_placement_group(group)
    with pytest.raises(ValueError, match="Failed to look up placement group with name: mine"):
        get_placement_group("mine")
    assert placement_group([{"CPU": 1}], name="mine").wait(5)


@pytest.mark.parametrize(
    ("bundles", "options", "words"),
    [
        ("CPU", {}, "must be a list"),
        ([], {}, "non-empty list"),
        ([{}], {}, "only 0 values"),
        ([{"CPU": 0}], {}, "only 0 values"),
        ([{"CPU": -1}], {}, "zero or more, but got -1"),
        ([{"CPU": "1"}], {}, "resource dictionaries"),
        ([{"bundle": 1}], {}, "reserved"),
        ([{"CPU": 1}], {"strategy": "TIGHT"}, "Invalid placement group strategy TIGHT"),
        ([{"CPU": 1}], {"lifetime": "long"}, "lifetime"),
        ([{"CPU": 1}], {"bundle_label_selector": [{"a": "b"}, {}]}, "length"),
    ],
)
def test_what_can_not_be_meant(bundles: object, options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        placement_group(bundles, **options)  # type: ignore[arg-type]


def test_what_does_not_fit_is_an_error_of_the_line(weft_session: ModuleType) -> None:
    group = placement_group([{"CPU": 1}])
    for wrong in ({"num_cpus": 2}, {"num_cpus": 0, "resources": {"disk": 1}}):
        with pytest.raises(ValueError, match="cannot fit into any bundles"):
            where.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group), **wrong)
        with pytest.raises(ValueError, match="cannot fit into any bundles"):
            Counter.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group), **wrong)
    with pytest.raises(ValueError, match="index 1 is invalid"):
        where.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, 1))
    with pytest.raises(ValueError, match="index must be -1"):
        where.options(placement_group_bundle_index=1)


def test_a_pending_ref_dies_with_its_owner(weft_session: ModuleType) -> None:
    @weft.remote
    class Creator:
        def pending(self) -> object:
            return [placement_group([{"nowhere": 1}]).ready()]

    creator = Creator.remote()
    (ref,) = weft.get(creator.pending.remote())
    weft.kill(creator)
    with pytest.raises(OwnerDiedError):
        weft.get(ref, timeout=60)


def test_another_process_sees_the_same_group(weft_session: ModuleType) -> None:
    @weft.remote(num_cpus=0)
    def wait_for(group: PlacementGroup) -> bool:
        return group.wait(10)

    @weft.remote(num_cpus=0)
    def remove(group: PlacementGroup) -> None:
        remove_placement_group(group)

    busy = sleep.remote(0.3)
    group = placement_group([{"CPU": 2}])
    assert weft.get(wait_for.remote(group), timeout=60)
    weft.get(busy)
    weft.get(remove.remote(group))
    assert comes_true(lambda: not group.wait(0))  # the news may come after the task's answer
    with pytest.raises(TaskPlacementGroupRemoved):
        weft.get(group.ready(), timeout=60)


def test_groups_end_with_their_driver_unless_detached(weft_session: ModuleType) -> None:
    script = (
        "import sys, weft; from weft.util import placement_group; weft.init(address=sys.argv[1], namespace='n');"
        "groups = [placement_group([{'CPU': 0.5}]), placement_group([{'CPU': 0.5}], name='kept', lifetime='detached')];"
        "print(all(group.wait(10) for group in groups))"
    )
    address = weft.get_runtime_context().gcs_address
    done = subprocess.run([sys.executable, "-c", script, address], capture_output=True, text=True, timeout=280)
    assert done.stdout == "True\n", done.stderr
    assert comes_true(lambda: free_cpus() == 1.5)
    states = {row["name"]: row["state"] for row in placement_group_table().values()}
    assert states == {"": "REMOVED", "kept": "CREATED"}


def test_a_hard_affinity_to_a_node_that_is_not_there(weft_session: ModuleType) -> None:
    here = weft.get_runtime_context().get_node_id()
    for node, soft in ((here, False), ("ab" * 16, True)):
        strategy = NodeAffinitySchedulingStrategy(node, soft=soft)
        assert weft.get(where.options(scheduling_strategy=strategy).remote())[0] == {"CPU": 1}
    nowhere = NodeAffinitySchedulingStrategy("ab" * 16, soft=False)
    with pytest.raises(TaskUnschedulableError, match="abab"):
        weft.get(where.options(scheduling_strategy=nowhere).remote(), timeout=60)
    with pytest.raises(ActorUnschedulableError, match="abab"):
        weft.get(Counter.options(scheduling_strategy=nowhere).remote().add.remote(), timeout=60)


def test_labels_choose_nodes() -> None:
    weft.init(num_cpus=1, labels={"zone": "x"})
    try:
        assert weft.get(where.options(label_selector={"zone": "in(x, y)"}).remote())[0] == {"CPU": 1}
        with pytest.raises(TaskUnschedulableError, match="zone"):
            weft.get(where.options(label_selector={"zone": "!x"}).remote(), timeout=60)
    finally:
        weft.shutdown()


def test_the_higher_priority_runs_first(weft_session: ModuleType) -> None:
    @weft.remote
    class Log:
        def __init__(self) -> None:
            self.lines: list[str] = []

        def write(self, line: str) -> None:
            self.lines.append(line)

        def read(self) -> list[str]:
            return self.lines

    log = Log.options(num_cpus=0).remote()

    @weft.remote
    def work(name: str) -> None:
        time.sleep(0.02)
        weft.get(log.write.remote(name))

    low = [work.remote("low") for _ in range(30)]
    wait_until(lambda: weft.get(log.read.remote()))
    high = [work.options(priority=10).remote("high") for _ in range(10)]
    weft.get(high + low)
    lines = weft.get(log.read.remote())
    last_high = max(index for index, line in enumerate(lines) if line == "high")
    assert last_high < 25, lines


def test_a_group_that_waits_says_whether_the_nodes_could_ever_hold_it(weft_session: ModuleType) -> None:
    def state(group: PlacementGroup) -> str:
        return str(placement_group_table(group)["stats"]["scheduling_state"])

    holds = placement_group([{"CPU": 2}])
    assert holds.wait(60) and state(holds) == "FINISHED"
    waits = placement_group([{"CPU": 1}])
    never = placement_group([{"CPU": 2}, {"CPU": 1}], strategy="STRICT_PACK")
    apart = placement_group([{"CPU": 1}, {"CPU": 1}], strategy="STRICT_SPREAD")
    other = placement_group([{"CPU": 1, "wings": 1}])
    assert [state(group) for group in (waits, never, apart, other)] == ["NO_RESOURCES", *["INFEASIBLE"] * 3]
    for group in (holds, waits, never, apart, other):
        remove_placement_group(group)
        assert comes_true(lambda: state(group) == "REMOVED")  # noqa: B023


ANY: Any = {"values": 123, "conditions": ["a"], "condition": "b", "key": 1}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: In(), "The variadic parameter of the In operator must be a non-empty tuple"),
        (lambda: NotIn("a", ANY["values"]), "Type of value in position 1 for the NotIn operator must be str"),
        (lambda: NodeLabelSchedulingStrategy({}), "cannot both be empty"),
        (lambda: NodeLabelSchedulingStrategy({"a": ANY["condition"]}), "must be one of the `In`, `NotIn`, `Exists` or"),
        (lambda: NodeLabelSchedulingStrategy({ANY["key"]: In("b")}), "map key of the hard parameter must be of type"),
        (lambda: NodeLabelSchedulingStrategy({}, soft=ANY["conditions"]), "The soft parameter must be a map"),
    ],
)
def test_conditions_on_labels_are_checked_where_they_are_made(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
