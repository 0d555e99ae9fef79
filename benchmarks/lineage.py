"""Memory of a driver whose lineage never ends: python benchmarks/lineage.py [--tasks 1000000].

Eight chains of tasks: each makes an array of 100 kB of the one before it, so the last arrays need every task since the
beginning, should they be lost. Past WEFT_LINEAGE_MEMORY (64 MiB; here 8 MiB) old lineage goes to disk, past
WEFT_LINEAGE_DISK (4 GiB) it is forgotten. Printed: what the driver's own memory is meanwhile, without the arena.
"""

from __future__ import annotations

import argparse
import os
import time

import numpy as np
import psutil

import weft
from weft import _native

CHAINS = 8
MIB = 1 << 20


@weft.remote
def step(before: np.ndarray, note: str) -> np.ndarray:
    return before + len(note)


def own_mib() -> float:
    memory = psutil.Process().memory_info()
    return float(memory.rss - memory.shared) / MIB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=8)
    given = parser.parse_args()
    os.environ.setdefault("WEFT_LINEAGE_MEMORY", str(8 * MIB))
    weft.init(num_cpus=2, log_to_driver=False)
    ends = [step.remote(np.zeros(12_500), "first") for _ in range(CHAINS)]
    note = "what a task is told: " + "x" * 200
    done, began = CHAINS, time.monotonic()
    print("| tasks | lineage in memory, MiB | on disk, MiB | the driver's own memory, MiB | tasks/s |")
    print("|---|---|---|---|---|")
    for row in range(1, given.rows + 1):
        while done < given.tasks * row // given.rows:
            ends = [step.remote(end, note) for end in ends]
            done += CHAINS
            if done % (CHAINS * 50) == 0:
                weft.wait(ends, num_returns=CHAINS, fetch_local=False)
        weft.wait(ends, num_returns=CHAINS, fetch_local=False)
        known = _native.statistics()
        memory, disk = known["lineage_bytes"] / MIB, known["lineage_disk_bytes"] / MIB
        rate = done / (time.monotonic() - began)
        print(f"| {done:,} | {memory:.1f} | {disk:,.0f} | {own_mib():.0f} | {rate:,.0f} |", flush=True)
    steps = (done - CHAINS) // CHAINS
    assert all(weft.get(end)[0] == len("first") + steps * len(note) for end in ends)
    weft.shutdown()


if __name__ == "__main__":
    main()
