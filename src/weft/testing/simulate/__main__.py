"""`python -m weft.testing.simulate`: one simulated cluster, or many short ones from seeds."""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import sys
import time
from collections.abc import Iterable

from weft.testing.simulate import seeds
from weft.testing.simulate.costs import Costs, Machine, Wire
from weft.testing.simulate.faults import ALL_FAULTS
from weft.testing.simulate.report import summary, text
from weft.testing.simulate.simulation import Plan, Simulation
from weft.testing.simulate.workloads import WORKLOADS, Scale

PART = 10
"""Seeds that a process takes at once."""
BROKEN = "broken:"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m weft.testing.simulate", description=__doc__)
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workload", choices=sorted(WORKLOADS), default="empty")
    parser.add_argument("--tasks", type=int, default=1000, help="on each node, or in all where one driver submits")
    parser.add_argument("--duration", type=float, default=0.0, help="of a task, in seconds; 0: the workload's own")
    parser.add_argument("--cpus", type=int, default=2, help="of each node")
    parser.add_argument("--faults", default="", help=f"some of {','.join(sorted(ALL_FAULTS))}")
    parser.add_argument("--latency", type=float, default=Wire().latency_s, help="of the network, in seconds")
    parser.add_argument("--loss", type=float, default=0.0, help="the share of messages that is lost and sent again")
    parser.add_argument("--slow", type=float, default=0.0, help="the share of nodes that run at a tenth of the speed")
    parser.add_argument("--submit-cost", type=float, default=Costs().submit_s, help="of a task, in seconds of a CPU")
    parser.add_argument("--limit", type=float, default=300.0, help="of virtual time, in seconds")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--seeds", default="", help="run the short clusters of these seeds instead: 7 or 0:1000")
    parser.add_argument("--processes", type=int, default=1, help="that share the seeds")
    return parser


def _found(numbers: range) -> tuple[int, list[str]]:
    """How many seeds were run, and the story of each that broke something (or of the only one)."""
    stories = []
    for choice, simulation in seeds.run_many(numbers):
        if simulation.broken or len(numbers) == 1:
            faults = ",".join(choice.faults) or "no faults"
            lines = [f"seed {choice.plan.seed}: {choice.plan.nodes} nodes, {choice.workload}, {faults}"]
            lines += [f"  {one}" for one in simulation.broken[:5]]
            if simulation.broken:
                lines.append(f"  {BROKEN} replay with: {choice.replay}")
            stories.append("\n".join(lines))
    return len(numbers), stories


def _run_seeds(wanted: str, processes: int) -> int:
    first, _, last = wanted.partition(":")
    numbers = range(int(first), int(last) if last else int(first) + 1)
    began, done, broken = time.perf_counter(), 0, 0
    parts = [numbers[at : at + PART] for at in range(0, len(numbers), PART)]
    with contextlib.ExitStack() as stack:
        found: Iterable[tuple[int, list[str]]] = map(_found, parts)
        if processes > 1:
            pool = stack.enter_context(multiprocessing.get_context("fork").Pool(processes))
            found = pool.imap_unordered(_found, parts)
        for count, stories in found:
            done += count
            broken += sum(BROKEN in story for story in stories)
            for story in stories:
                print(story, flush=True)
    took = f"{time.perf_counter() - began:.1f} s with {processes} process{'es' * (processes != 1)}"
    print(f"{done} seeds in {took}, {broken} of them with a broken invariant")
    return 1 if broken else 0


def main() -> int:
    args = _parser().parse_args()
    if args.seeds:
        return _run_seeds(args.seeds, args.processes)
    machine = Machine(cpus=args.cpus)
    slow = Machine(cpus=args.cpus, speed=0.1)
    every = round(1 / args.slow) if args.slow else 0
    plan = Plan(
        nodes=args.nodes,
        seed=args.seed,
        machine=machine,
        costs=Costs(submit_s=args.submit_cost),
        wire=Wire(latency_s=args.latency, loss=args.loss),
        limit_s=args.limit,
        machines={index: slow for index in range(args.nodes) if every and index % every == every - 1},
    )
    simulation = Simulation(plan)
    scale = Scale(args.tasks, args.duration)
    faults = [ALL_FAULTS[name] for name in args.faults.split(",") if name]
    simulation.run(lambda made: WORKLOADS[args.workload](made, scale), faults)
    found = summary(simulation, args.workload)
    if args.json:
        print(json.dumps(found))
    else:
        print(text(found, "python -m weft.testing.simulate " + " ".join(sys.argv[1:])))
    return 1 if simulation.broken else 0


if __name__ == "__main__":
    sys.exit(main())
