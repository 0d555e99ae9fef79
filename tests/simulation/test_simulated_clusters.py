"""Simulated clusters: many seeds, every workload, and bugs that must be found. `make simulate SEEDS=n` runs more."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from weft.testing.simulate import Plan, Simulation, __main__, bugs, seeds
from weft.testing.simulate.costs import Machine
from weft.testing.simulate.report import summary
from weft.testing.simulate.workloads import WORKLOADS, Scale

CHUNK = 75
FOUND = {
    163: "a daemon raised: the wishes of a job's processes on other nodes outlived the job",
    1145: "leases were asked for where there was no link, and taken for asked when there was one again",
    1725: "a node that could not be reached while another joined was never linked to it",
    41096: "who had won as the next head, and then lost most of the store, waited for it for ever",
    20711: "the head let one of two nodes go that had lost each other, and forgot what the other had told of it",
}
"""Seeds that once broke an invariant, and what was wrong."""


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


def test_what_was_once_found_is_mended() -> None:
    broken = {choice.plan.seed: str(made.broken[0]) for choice, made in seeds.run_many(FOUND) if made.broken}
    assert not broken, "\n".join(f"seed {seed} ({FOUND[seed]}): {text}" for seed, text in broken.items())


@pytest.mark.parametrize("bug", [*bugs.BUGS, *bugs.MODELLED])
def test_a_bug_put_in_on_purpose_is_found(bug: str) -> None:
    numbers = [*range(320, 330), *range(200)]
    assert any(simulation.broken for _, simulation in seeds.run_many(numbers, bug)), bug


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
    simulation.run(lambda made: WORKLOADS["fan-out"](made, Scale(2000)))
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
