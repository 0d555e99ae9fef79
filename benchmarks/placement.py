"""Placement groups, Weft and Ray side by side: 1,000 groups of one bundle created, waited for and removed.

    python benchmarks/placement.py
    python benchmarks/placement.py --peer .venv-ray/bin/python

Both sides run the same code, each in its own process and session, in turn; the best of the rounds counts. "at once":
all groups are made, then all are waited for, then all are removed. "in turn": each group is made, waited for and
removed before the next. The clock stops when the resources are back.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import Any


def measure(package: str, groups: int, rounds: int) -> dict[str, float]:
    """Seconds by case, in this process."""
    if package == "weft":
        import weft as engine
    else:
        import ray as engine  # type: ignore[import-not-found,no-redef]
    from importlib import import_module

    api: Any = import_module(f"{package}.util.placement_group")
    engine.init(num_cpus=2)
    bundle = {"CPU": 1 / 1024}
    total = engine.cluster_resources()["CPU"]

    def settle() -> None:
        while engine.available_resources().get("CPU") != total:
            time.sleep(0.0005)

    def at_once() -> None:
        made = [api.placement_group([bundle]) for _ in range(groups)]
        assert all(group.wait(60) for group in made)
        for group in made:
            api.remove_placement_group(group)
        settle()

    def in_turn() -> None:
        for _ in range(groups):
            group = api.placement_group([bundle])
            assert group.wait(60)
            api.remove_placement_group(group)
        settle()

    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, case in (("at once", at_once), ("in turn", in_turn)):
            began = time.perf_counter()
            case()
            best[name] = min(best.get(name, 1e9), time.perf_counter() - began)
    engine.shutdown()
    return best


def run(python: str, package: str, groups: int, rounds: int) -> dict[str, float]:
    command = [python, __file__, "--measure", package, "--groups", str(groups), "--rounds", str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{package} failed:\n{done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help="a Python that has Ray")
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", choices=("weft", "ray"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args.measure, args.groups, args.rounds)))
        return
    ours = run(sys.executable, "weft", args.groups, args.rounds)
    theirs = run(args.peer, "ray", args.groups, 1) if args.peer else {}
    print(f"{args.groups:,} placement groups, created and removed: groups a second")
    print(f"{'':12}{'Ray':>12}{'Weft':>12}{'ratio':>9}")
    for name, ours_s in ours.items():
        peer_s = theirs.get(name)
        peer = f"{args.groups / peer_s:>12,.0f}" if peer_s else f"{'':12}"
        ratio = f"{peer_s / ours_s:>8.1f}×" if peer_s else ""
        print(f"{name:12}{peer}{args.groups / ours_s:>12,.0f}{ratio}")


if __name__ == "__main__":
    main()
