"""Many short runs, each from one number: cluster, machines, network, workload and faults are all the seed's choice."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

import msgspec

from weft.testing.simulate.at_once import AT_ONCE
from weft.testing.simulate.bugs import MODELLED, planted
from weft.testing.simulate.costs import Machine, Wire
from weft.testing.simulate.faults import ALL_FAULTS, FAULTS, HEAD_FAULTS, STORE_UP_S, TROUBLES
from weft.testing.simulate.lending import LENDING_S, Lending
from weft.testing.simulate.simulation import Plan, Simulation
from weft.testing.simulate.workloads import WORKLOADS, Scale

LIMIT_S = 300.0
"""Of virtual time. The longest fault is over after 48, and who was cut off from the head ends 75 later; two slow CPUs
that are left need some 200 for all tasks."""
LARGEST = 6
"""Nodes of a short run."""

HEAD_SEEDS = 1_000_000
"""From here on the head is lost."""
TROUBLE_SEEDS = 2_000_000
"""From here on something is done to one node, and nothing to the others."""
LENDING_SEEDS = 3_000_000
"""From here on refs go from process to process, and owners and their nodes are killed."""
LENDING_HEAD_SEEDS = 4_000_000
"""From here on the head's node is among those."""
AT_ONCE_SEEDS = 5_000_000
"""From here on something is done to several nodes, or to one while another takes over or joins."""
HEAD_LIMIT_S = 400.0
"""Who is cut off with the head ends only when that has given up, and then it."""
TAKE_OVER_S = 60.0
"""Within that another node is head, however many heads in a row are killed."""
HEAD_WORKLOADS = ("actors", "groups", "mixed", "jobs")
"""Those that drive nodes that are not the head."""


class Choice(msgspec.Struct, frozen=True):
    """What a seed stands for."""

    plan: Plan
    workload: str
    scale: Scale
    faults: tuple[str, ...]

    @property
    def replay(self) -> str:
        """The command that runs it again."""
        return f"python -m weft.testing.simulate --seeds {self.plan.seed}"


def choose(seed: int, bug: str = "") -> Choice:
    rng = random.Random(seed)
    workload = rng.choice(sorted(WORKLOADS))
    count = rng.choice((0, 0, 1, 1, 2, 3))
    faults = tuple(sorted(rng.sample(sorted(FAULTS), count)))
    if seed >= HEAD_SEEDS:
        kinds = HEAD_FAULTS if seed < TROUBLE_SEEDS else TROUBLES
        workload, faults = rng.choice(HEAD_WORKLOADS), (rng.choice(sorted(kinds)),)
    if seed >= AT_ONCE_SEEDS:
        faults = (rng.choice(sorted(AT_ONCE)),)
    elif seed >= LENDING_SEEDS:
        workload, faults = "lending", ()
    fewest = 1 if seed < HEAD_SEEDS else 3 if seed < AT_ONCE_SEEDS else 5
    nodes = rng.randint(fewest, LARGEST)
    wire = Wire(
        latency_s=rng.choice((50e-6, 50e-6, 2e-3)),
        jitter_s=rng.choice((0.0, 20e-6, 5e-3)),
        loss=rng.choice((0.0, 0.0, 0.01, 0.1)) if faults else 0.0,
    )
    machines = {
        index: Machine(
            cpus=rng.choice((1, 2, 2, 4)),
            speed=rng.choice((1.0, 1.0, 0.2)),
            clock_rate=rng.choice((1.0, 1.0, 0.98, 1.02)),
            clock_offset_s=rng.random() * 1000,
        )
        for index in range(nodes)
    }
    if workload in ("mixed", "groups"):  # they ask for two CPUs, or one for each bundle, on some node
        machines = {index: msgspec.structs.replace(one, cpus=max(2, one.cpus)) for index, one in machines.items()}
    scale = Scale(rng.choice((30, 100, 300)), rng.choice((0.0, 0.0, 0.003)))
    bugs = frozenset((bug,)) if bug in MODELLED else frozenset[str]()
    limit_s = LIMIT_S if seed < HEAD_SEEDS else HEAD_LIMIT_S
    returns = seed >= HEAD_SEEDS
    plan = Plan(nodes, seed, wire=wire, machines=machines, bugs=bugs, limit_s=limit_s, left_behind_return=returns)
    return Choice(plan, workload, scale, faults)


def run(choice: Choice) -> Simulation:
    simulation = Simulation(choice.plan)

    def work(made: Simulation) -> None:
        """Where the head is to be lost, the control store is up first, as it is in a cluster that has run a while."""
        if choice.workload == "lending":
            kills_heads = choice.plan.seed >= LENDING_HEAD_SEEDS
            made.clock.after(STORE_UP_S, Lending(made, kills_heads).begin)
            made.faults_end = made.clock.now + STORE_UP_S + LENDING_S + (TAKE_OVER_S if kills_heads else 0.0)
        elif choice.plan.seed < HEAD_SEEDS:
            WORKLOADS[choice.workload](made, choice.scale)
        else:
            made.clock.after(STORE_UP_S, WORKLOADS[choice.workload], made, choice.scale)

    simulation.run(work, [{**ALL_FAULTS, **AT_ONCE}[name] for name in choice.faults])
    return simulation


def run_many(seeds: Iterable[int], bug: str = "") -> Iterator[tuple[Choice, Simulation]]:
    """One after another."""
    for seed in seeds:
        choice = choose(seed, bug)
        with planted(bug) if bug else planted(MODELLED[0]):
            yield choice, run(choice)
