"""Simulated clusters: many seeds, every workload, and bugs that must be found. `make simulate SEEDS=n` runs more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from unittest import mock

import pytest

from weft.engine.state.grouping import Grouping
from weft.engine.state.hearing import SILENCE_S
from weft.engine.state.instructions import Instruction
from weft.testing.simulate import Plan, Simulation, __main__, bugs, network, seeds
from weft.testing.simulate.at_once import AT_ONCE
from weft.testing.simulate.costs import Machine
from weft.testing.simulate.faults import FOUND_AGAIN_S, TROUBLES
from weft.testing.simulate.process import Process
from weft.testing.simulate.program import CreateGroup, Program
from weft.testing.simulate.report import summary
from weft.testing.simulate.workloads import WORKLOADS, Scale

CHUNK = 40
FOUND = {
    163: "a daemon raised: the wishes of a job's processes on other nodes outlived the job",
    1145: "leases were asked for where there was no link, and taken for asked when there was one again",
    1725: "a node that could not be reached while another joined was never linked to it",
    41096: "who had won as the next head, and then lost most of the store, waited for it for ever",
    1_104_210: "half of the nodes, without the store, kept their actors while the others started them again",
    3_201_372: "a ref that was passed on while its owner's node ended was taken for lost where there was no row of it",
    3_100_724: "what an heir took over was not asked for where its owner had died before",
    1_001_136: "who took over did not know one that had joined at the head before, and had linked itself to it",
    1_102_455: "a group outlived its driver: the job was known to who took over, for a worker that was about to end",
    2_000_028: "a head that could not be heard wrote that all others were dead, and who took over believed it",
    2_000_853: "a head that had stood still, and had no lease, told the others that the winner was dead",
    2_001_006: "the same, and nodes to which nobody said that they were taken for dead claimed one epoch after another",
    3_060_995: "a ref of an owner that nobody else knew came late to another node, and made its reader a second heir",
    4_900_839: "the same, where the heir's node had taken over meanwhile",
    2_701_356: "a ping to a dead worker made the head forget the one it had chosen since: an actor was made twice",
    5_060_061: "a node whose cable was out while it joined for the first time was taken for one that is to come back",
    60435: "two slow CPUs that were left had not done all tasks when the time was over",
    20711: "the head let one of two nodes go that had lost each other, and forgot what the other had told of it",
}
"""Seeds that once broke an invariant, and what was wrong."""
FORCED = 2_205_261
"""The head is cut off and killed before another node has a server of the store."""
SPREADING = {
    "every-end-is-the-clusters": ("stop", 0, 8.0),
    "left-behind-for-good": ("unplug", 0, 12.0),
    "claims-without-asking": ("unplug", 2, 6.6),
    "claims-without-calm": ("unplug", 2, 6.6),
}
"""Trouble that finds a bug put in on purpose: its kind, whose it is (0: the head's), how long it lasts."""


@pytest.mark.parametrize("first", range(0, 4 * CHUNK, CHUNK))
def test_all_invariants_hold_for_these_seeds(first: int) -> None:
    broken = [
        f"{simulation.broken[0]}; replay with: {choice.replay}"
        for choice, simulation in seeds.run_many(range(first, first + CHUNK))
        if simulation.broken
    ]
    assert not broken, "\n".join(broken)


def test_all_invariants_hold_when_the_head_is_lost_and_another_takes_over() -> None:
    broken, epochs = [], []
    for choice, simulation in seeds.run_many(range(seeds.HEAD_SEEDS, seeds.HEAD_SEEDS + 40)):
        epochs.append(max(node.shell.heading.state.epoch for node in simulation.nodes))
        if simulation.broken:
            broken.append(f"{simulation.broken[0]}; replay with: {choice.replay}")
    assert not broken, "\n".join(broken)
    assert epochs.count(1) < len(epochs) / 2, epochs


def test_one_nodes_trouble_is_no_other_nodes() -> None:
    broken, faults = [], set[str]()
    for choice, simulation in seeds.run_many(range(seeds.TROUBLE_SEEDS, seeds.TROUBLE_SEEDS + 25)):
        faults.update(choice.faults)
        assert simulation.troubled, choice.replay
        if simulation.broken:
            broken.append(f"{simulation.broken[0]}; replay with: {choice.replay}")
    assert not broken, "\n".join(broken)
    assert faults == set(TROUBLES)


def test_two_nodes_troubles_at_once_are_no_other_nodes() -> None:
    broken, faults = [], set[str]()
    for choice, simulation in seeds.run_many(range(seeds.AT_ONCE_SEEDS, seeds.AT_ONCE_SEEDS + 25)):
        faults.update(choice.faults)
        assert simulation.troubled, choice.replay
        if simulation.broken:
            broken.append(f"{simulation.broken[0]}; replay with: {choice.replay}")
    assert not broken, "\n".join(broken)
    assert faults == set(AT_ONCE)


@pytest.mark.parametrize("first", [seeds.LENDING_SEEDS, seeds.LENDING_HEAD_SEEDS])
def test_what_the_dead_had_lent_has_one_heir_and_no_row_of_it_is_left(first: int) -> None:
    broken, kills = [], 0
    for choice, simulation in seeds.run_many(range(first, first + 30)):
        assert simulation.lending is not None
        kills += simulation.lending.kills
        if simulation.broken:
            broken.append(f"{simulation.broken[0]}; replay with: {choice.replay}")
    assert not broken, "\n".join(broken)
    assert kills > 30


@pytest.mark.parametrize("bug", bugs.INHERITANCE_BUGS)
def test_a_bug_by_which_objects_are_lost_or_owned_twice_is_found(bug: str) -> None:
    numbers = [seeds.LENDING_SEEDS + 159, *range(seeds.LENDING_SEEDS, seeds.LENDING_SEEDS + 300)]
    found = seeds.run_many(numbers, bug)
    assert any(simulation.broken for _, simulation in found), bug


def trouble(kind: str, victim: int, length_s: float, nodes: int = 3, seed: int = 1) -> Simulation:
    """Something is done to one node while a small program runs."""
    simulation = Simulation(Plan(nodes=nodes, seed=seed, left_behind_return=True))

    def begin(made: Simulation) -> None:
        made.has_faults, made.faults_end = True, 45.0
        node = made.nodes[victim]
        made.troubled, made.most_epoch = [node], 2 if victim == 0 else 1
        strike = {
            "unplug": lambda: made.network.partition({node.address: 1}),
            "mute": lambda: made.network.mute(node.address),
            "stop": lambda: node.stand_still(length_s),
        }[kind]
        made.clock.after(5.0, strike)
        made.clock.after(5.0 + length_s, made.network.heal, FOUND_AGAIN_S)

    simulation.run(lambda made: WORKLOADS["actors"](made, Scale(20)), [begin])
    return simulation


@pytest.mark.parametrize("kind", ["unplug", "mute", "stop"])
@pytest.mark.parametrize("victim", [0, 2])
def test_nobody_else_ends_however_long_a_node_is_cut_off_or_stands_still(kind: str, victim: int) -> None:
    for tenths in (*range(5, 55, 10), *range(55, 125, 2), 150, 200):
        found = trouble(kind, victim, tenths / 10, seed=tenths).broken
        assert not found, f"{tenths / 10} s: {found[0]}"


@pytest.mark.parametrize("kind", ["unplug", "stop"])
def test_a_head_in_whose_place_another_acts_comes_back_as_a_node(kind: str) -> None:
    simulation = trouble(kind, 0, 15.0)
    assert not simulation.broken, simulation.broken[0]
    before, *others, back = simulation.nodes
    assert not before.is_up and back.index == before.index and back.number == 3
    assert back.shell.members.head in (1, 2) and back.shell.heading.state.epoch == 2
    assert all(back.number in other.shell.members.links for other in others)


@pytest.mark.parametrize("bug", bugs.TROUBLE_BUGS)
def test_a_bug_that_spreads_one_nodes_trouble_is_found(bug: str) -> None:
    kind, victim, length_s = SPREADING[bug]
    with bugs.planted(bug):
        assert any(trouble(kind, victim, length_s, seed=seed).broken for seed in range(8)), bug


def test_what_was_once_found_is_mended() -> None:
    broken = {choice.plan.seed: str(made.broken[0]) for choice, made in seeds.run_many(FOUND) if made.broken}
    assert not broken, "\n".join(f"seed {seed} ({FOUND[seed]}): {text}" for seed, text in broken.items())


def test_who_cannot_follow_a_head_whose_store_had_no_other_server_ends_and_says_so() -> None:
    ((_, simulation),) = seeds.run_many([FORCED])
    assert simulation.is_end_forced and not simulation.broken, simulation.broken[0]
    assert all("too little of the control store is left" in node.daemon.error for node in simulation.nodes[1:])


def test_nodes_that_nobody_told_of_their_death_do_not_take_over_in_turns() -> None:
    with mock.patch.object(network, "RESET", 1.0):  # no end of a link hears why the other closed it
        ((_, simulation),) = seeds.run_many([1_001_865])
    assert not simulation.broken and simulation.epoch <= 2


def test_nodes_that_lost_each_other_and_are_linked_again_before_one_takes_over_all_stay() -> None:
    simulation = Simulation(Plan(nodes=5, seed=1))

    def begin(made: Simulation) -> None:
        made.has_faults, made.faults_end = True, 60.0
        one, two, three = (node.address for node in made.nodes[1:4])
        for pair in ((one, two), (two, three)):
            made.clock.after(5.0, made.network.cut, *pair)
        made.clock.after(5.0 + SILENCE_S + 2.0, made.nodes[0].crash)  # they have told it that they lost each other
        made.clock.after(5.0 + SILENCE_S + 2.1, made.network.heal)

    simulation.run(lambda made: WORKLOADS["actors"](made, Scale(20)), [begin])
    assert not simulation.broken, simulation.broken[0]
    assert [node.index for node in simulation.nodes if not node.is_up] == [0] and simulation.epoch == 2
    assert not any(node.shell.inheritance.lost.unsettled for node in simulation.up())


HEAD_SEEDS = {
    "heads-without-lease-believed": (2_000_853, "SIM-11"),
    "linked-stay-unknown": (1_000_000, "SIM-7"),
    "groups-outlive-drivers": (1_100_033, "SIM-6"),
    "leases-not-renewed": (1_000_000, "SIM-14"),
    "chosen-workers-forgotten": (2_701_356, "SIM-5"),
}
"""The first that finds a bug, and what it breaks."""


@pytest.mark.parametrize("bug", bugs.HEAD_BUGS)
def test_a_bug_of_a_head_that_takes_over_or_is_taken_over_from_is_found(bug: str) -> None:
    seed, invariant = HEAD_SEEDS[bug]
    found = seeds.run_many(range(seed, seed + 10), bug)
    assert any(one.name == invariant for _, simulation in found for one in simulation.broken), bug


def test_a_node_that_is_not_heard_comes_back_though_nobody_could_tell_it_that_it_was_let_go() -> None:
    with mock.patch.object(network, "RESET", 1.0):
        ((_, simulation),) = seeds.run_many([2_100_520])
    assert not simulation.broken, simulation.broken[0]


@pytest.mark.parametrize("bug", [*bugs.BUGS, *bugs.MODELLED])
def test_a_bug_put_in_on_purpose_is_found(bug: str) -> None:
    numbers = [12, 15, 33, *range(320, 330), *range(200)]  # who finds one first, so that the others are not run
    assert any(simulation.broken for _, simulation in seeds.run_many(numbers, bug)), bug


SHARED_SEEDS = """
from types import SimpleNamespace

from weft.testing.simulate import __main__, seeds

def found(numbers):
    for seed in numbers:
        yield seeds.choose(seed), SimpleNamespace(broken=["SIM-1"] if seed % 7 == 0 else [])

seeds.run_many = found  # which the processes inherit
raise SystemExit(__main__._run_seeds("0:95", 3))
"""


def test_processes_share_the_seeds_and_tell_what_each_has_found() -> None:
    # In a process of its own: the seeds' processes are forked, and other tests leave threads in this one.
    ran = subprocess.run([sys.executable, "-c", SHARED_SEEDS], capture_output=True, text=True)
    assert ran.returncode == 1 and not ran.stderr
    assert "95 seeds in" in ran.stdout and "14 of them with a broken invariant" in ran.stdout
    replays = [f"replay with: python -m weft.testing.simulate --seeds {seed}\n" for seed in range(0, 95, 7)]
    assert all(ran.stdout.count(replay) == 1 for replay in replays)


@pytest.mark.parametrize("workload", sorted(WORKLOADS))
def test_a_workload_ends_well_on_a_few_nodes(workload: str) -> None:
    simulation = Simulation(Plan(nodes=4, seed=7))
    simulation.run(lambda made: WORKLOADS[workload](made, Scale(200)))
    found = summary(simulation, workload)
    assert not simulation.broken
    assert found["tasks"] > 0 and found["failed"] == 0
    assert 0 < found["latency_s"]["p50"] <= found["latency_s"]["max"]


def test_a_large_cluster_without_faults_shares_what_it_knows() -> None:
    simulation = Simulation(Plan(nodes=250, seed=7))
    simulation.run(lambda made: WORKLOADS["fan-out"](made, Scale(2000, 0.7)))  # longer than between heartbeats
    assert simulation.crowd is not None and not simulation.broken
    busy = [node.executed for node in simulation.nodes if node.executed]
    assert len(busy) > 200, f"only {len(busy)} of 250 nodes ran anything"


def test_a_slow_node_gets_less() -> None:
    simulation = Simulation(Plan(nodes=3, seed=1, machines={2: Machine(speed=0.1)}))
    simulation.run(lambda made: WORKLOADS["fan-out"](made, Scale(300)))
    assert not simulation.broken
    assert simulation.nodes[2].executed * 3 < simulation.nodes[1].executed


@pytest.mark.parametrize("head_stays", [True, False])
def test_the_side_with_most_of_the_store_goes_on_though_it_has_fewer_nodes(head_stays: bool) -> None:
    """Three of eight nodes, with three of the store's five servers; the rest is never served by a head of its own."""
    simulation = Simulation(Plan(nodes=8, seed=3))
    began = 10.0
    few: set[int] = set()

    def cut(made: Simulation) -> None:
        made.has_faults, made.faults_end = True, began + 60.0

        def part() -> None:
            servers = sorted(made.store.servers, key=lambda node: node.shell.is_head, reverse=head_stays)
            assert len(servers) == 5
            made.network.partition({node.address: 1 for node in servers[:3]})
            few.update(node.number for node in servers[:3])

        made.clock.after(began, part)

    simulation.run(lambda made: WORKLOADS["actors"](made, Scale(50)), [cut])
    assert not simulation.broken, simulation.broken[0]
    assert {node.number for node in simulation.up()} == few
    (head,) = [node for node in simulation.up() if node.shell.heading.is_serving]
    assert head.shell.heading.state.epoch == (1 if head_stays else 2)


def run_in_process(hash_seed: str) -> dict[str, object]:
    command = [sys.executable, "-m", "weft.testing.simulate", "--nodes", "4", "--seed", "5", "--workload", "groups"]
    command += ["--faults", "kill-workers,cut", "--loss", "0.02", "--json"]
    done = subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": hash_seed}, capture_output=True, check=True)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_a_seed_gives_the_same_run_in_every_process() -> None:
    one, other = run_in_process("1"), run_in_process("2")
    del one["wall_s"], other["wall_s"]
    assert one == other


def test_a_broken_invariant_is_told_with_how_to_replay_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["simulate", "--seeds", "5:20"])
    with bugs.planted("leases-of-the-dead-kept"):
        assert __main__.main() == 1
    said = capsys.readouterr().out
    assert "SIM-5" in said and "replay with: python -m weft.testing.simulate --seeds " in said


@pytest.mark.parametrize("seed", range(4))
def test_a_head_that_lets_one_of_two_nodes_go_stays_head(seed: int) -> None:
    """They have lost each other for good, and both reach the head: the one that goes does not claim its place."""
    simulation = Simulation(Plan(nodes=3, seed=seed))

    def cut(made: Simulation) -> None:
        made.has_faults, made.faults_end = True, 60.0
        one, other = (node.address for node in made.nodes[1:])
        made.clock.after(10.0, made.network.cut, one, other)

    simulation.run(lambda made: WORKLOADS["actors"](made, Scale(50)), [cut])
    assert not simulation.broken, simulation.broken[0]
    head, stays = simulation.up()
    assert (head.number, stays.number) == (0, 1)
    assert head.shell.heading.is_serving and head.shell.heading.state.epoch == 1
    (gone,) = (node for node in simulation.nodes if not node.is_up)
    assert gone.shell.error.startswith("the head of the cluster ")


def test_a_node_without_room_for_another_process_says_so() -> None:
    simulation = Simulation(Plan(nodes=1, seed=1, machine=Machine(processes=6), limit_s=5.0))
    simulation.run(lambda made: WORKLOADS["many-actors"](made, Scale(10)))
    assert "no room for another process: 6 slots" in str(simulation.broken[0])
    assert simulation.nodes[0].port.most_used == 6
    with pytest.raises(RuntimeError, match="no room for another process: 6 are attached"):
        simulation.nodes[0].port.reserve_slot()


def test_slots_of_the_dead_are_used_again() -> None:
    simulation = Simulation(Plan(nodes=3, seed=1, machine=Machine(processes=9)))
    simulation.run(lambda made: WORKLOADS["jobs"](made, Scale(100)))
    assert not simulation.broken
    assert any(node.port.most_used <= 9 < node.port.reserved for node in simulation.nodes), [
        (node.port.most_used, node.port.reserved) for node in simulation.nodes
    ]


def test_processes_that_find_no_ring_go_through_the_relay_and_lose_nothing() -> None:
    took = {}
    for rings in (8192, 2):
        simulation = Simulation(Plan(nodes=2, seed=3, machine=Machine(cpus=4, rings=rings)))
        simulation.run(lambda made: WORKLOADS["empty"](made, Scale(2000)))
        assert not simulation.broken
        took[rings] = summary(simulation, "empty")
    assert took[8192]["limits"]["relayed"] == 0 < took[2]["limits"]["relayed"]
    assert took[2]["limits"]["most_rings"] == 2
    assert took[2]["tasks"] == took[8192]["tasks"] and took[2]["virtual_s"] > took[8192]["virtual_s"]


def test_a_process_may_know_more_processes_of_other_nodes_than_its_node_has_slots() -> None:
    machine = Machine(cpus=20, processes=64)
    simulation = Simulation(Plan(nodes=25, seed=1, machine=machine))
    simulation.run(lambda made: WORKLOADS["fan-out"](made, Scale(500, 1.0)))
    assert not simulation.broken
    assert simulation.nodes[0].port.most_known > 200
    assert all(node.port.most_used <= 64 for node in simulation.nodes)


def test_actors_that_a_full_node_has_no_process_for_are_placed_where_there_is_room() -> None:
    simulation = Simulation(Plan(nodes=5, seed=1, machine=Machine(processes=64), limit_s=60.0))
    simulation.run(lambda made: WORKLOADS["many-actors"](made, Scale(200)))
    assert not simulation.broken, simulation.broken[0]
    assert simulation.nodes[0].port.most_used == 64


def test_one_process_knows_as_many_of_others_as_the_cluster_has() -> None:
    """`WEFT_SIMULATED_PROCESSES=20000` is the long form: minutes."""
    count = int(os.environ.get("WEFT_SIMULATED_PROCESSES", "400"))
    most = max(32, count // 20)  # of a node: fewer than the share that the head would keep for itself
    simulation = Simulation(Plan(nodes=25, seed=1, machine=Machine(processes=most), limit_s=600.0))
    simulation.run(lambda made: WORKLOADS["many-actors"](made, Scale(count)))
    assert not simulation.broken, simulation.broken[0]
    assert max(node.port.most_known for node in simulation.nodes) > count
    assert max(node.port.most_used for node in simulation.nodes) == most


def test_a_group_that_fits_nowhere_leaves_its_cluster_at_rest() -> None:
    simulation = Simulation(Plan(nodes=3, seed=1, limit_s=60.0))
    planned = 0
    original = Grouping.plan

    def counted(self: Grouping, out: list[Instruction]) -> None:
        nonlocal planned
        planned += 1
        original(self, out)

    def program(me: Process) -> Program:
        yield CreateGroup([{"CPU": 1000.0}])

    with mock.patch.object(Grouping, "plan", counted):
        simulation.run(lambda made: made.drive(made.up()[0], program))
    assert planned < 1000, "the head plans again because it has planned"
