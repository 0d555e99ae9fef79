"""`make chaos`, or python tests/chaos --seconds 120 --seed 7: prints what was done and what came of it. The exit
status is 0 when every program ended with the right answers.

Where it may (root, iproute2) the nodes are machines with cables; `--processes` has them linked over loopback instead.
"""

from __future__ import annotations

import argparse
import os
import random
import sys

from cables import CableChaos
from chaos_programs import PROGRAMS
from harm import Chaos, Report

from weft.testing.network import is_available

CLUSTER_S = 600.0
"""A longer run is of several clusters, one after another: once the drivers' node, which is spared, is the oldest it is
the next head, and no head is killed any more."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--every", type=float, default=3.0, help="seconds between two faults, on average")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--processes", action="store_true", help="nodes of this machine, with no network between them")
    given = parser.parse_args()
    kind = Chaos if given.processes or not is_available() else CableChaos
    report = Report()
    for number in range(max(1, round(given.seconds / CLUSTER_S))):
        seed, seconds = given.seed + 100 * number, min(given.seconds, CLUSTER_S)
        print(f"{kind.__name__}, seed {seed}, {seconds:g} s, load {os.getloadavg()[0]:.0f}", flush=True)
        report.add(kind(seed, seconds, given.programs.split(","), given.every).run())
        print(report, flush=True)
    return 1 if report.losses else 0


if __name__ == "__main__":
    sys.exit(main())
