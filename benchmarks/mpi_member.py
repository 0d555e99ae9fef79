"""MPI's all-reduce for train_collectives.py: one rank; rank 0 prints a line of times as JSON for each rank.

mpiexec -n MEMBERS python benchmarks/mpi_member.py '{"4096": 200}'
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
from mpi4py import MPI


def main() -> None:
    world, found = MPI.COMM_WORLD, {}
    for size, repetitions in json.loads(sys.argv[1]).items():
        array = np.ones(int(size) // 4, np.float32)
        world.Allreduce(MPI.IN_PLACE, array, MPI.MAX)
        found[size] = []
        for _ in range(repetitions):
            world.Barrier()
            started = time.perf_counter()
            world.Allreduce(MPI.IN_PLACE, array)
            found[size].append(time.perf_counter() - started)
            array[:] = 1.0
    for line in world.gather(found) or []:
        print(json.dumps(line))


if __name__ == "__main__":
    main()
