"""All-reduce inside one node: `weft.train.Group` beside PyTorch's gloo, in one run, turn by turn.

    python benchmarks/train_collectives.py --torch-python PATH [--members 2,4,8] [--sizes 4K,4M,100M,400M] [--rounds 3]

PATH is a Python with PyTorch (CPU) and NumPy; gloo's processes are started by it, so that neither pays for the other's
imports. Each operation's time is the slowest member's; the table shows the best and the median over all rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

UNITS = {"K": 1 << 10, "M": 1 << 20}
GLOO_MEMBER = Path(__file__).with_name("gloo_member.py")
MPI_MEMBER = Path(__file__).with_name("mpi_member.py")


def repetitions(size_bytes: int) -> int:
    return max(3, min(200, (64 << 20) // size_bytes))


def in_weft(members: int, sizes: list[int]) -> dict[int, list[float]]:
    """Seconds of each operation, the slowest member's."""
    import weft
    from weft import train

    @weft.remote(num_cpus=0)
    class Member:
        def __init__(self, meeting: train.Meeting, rank: int) -> None:
            self.meeting, self.rank = meeting, rank

        def times(self, sizes: list[int]) -> dict[int, list[float]]:
            with self.meeting.join(self.rank) as group:
                return {size: self._times(group, size) for size in sizes}

        def _times(self, group: train.Group, size: int) -> list[float]:
            array = np.ones(size // 4, np.float32)
            group.all_reduce(array, "max")
            taken = []
            for _ in range(repetitions(size)):
                group.barrier()
                started = time.perf_counter()
                group.all_reduce(array)
                taken.append(time.perf_counter() - started)
                array[:] = 1.0
            return taken

    weft.init(num_cpus=members)
    try:
        meeting = train.Meeting(members)
        actors = [Member.remote(meeting, rank) for rank in range(members)]
        answers = weft.get([actor.times.remote(sizes) for actor in actors])
    finally:
        weft.shutdown()
    return slowest(answers, sizes)


def in_gloo(python: str, members: int, sizes: list[int]) -> dict[int, list[float]]:
    return in_processes([python, str(GLOO_MEMBER), str(members)], sizes)


def in_mpi(python: str, members: int, sizes: list[int]) -> dict[int, list[float]]:
    """With the mpiexec beside that interpreter."""
    return in_processes([str(Path(python).with_name("mpiexec")), "-n", str(members), python, str(MPI_MEMBER)], sizes)


def in_processes(command: list[str], sizes: list[int]) -> dict[int, list[float]]:
    plan = {str(size): repetitions(size) for size in sizes}
    done = subprocess.run([*command, json.dumps(plan)], check=True, stdout=subprocess.PIPE, text=True)
    answers = [{int(size): times for size, times in line.items()} for line in map(json.loads, done.stdout.splitlines())]
    return slowest(answers, sizes)


def slowest(answers: list[dict[int, list[float]]], sizes: list[int]) -> dict[int, list[float]]:
    return {size: [max(times) for times in zip(*(answer[size] for answer in answers), strict=True)] for size in sizes}


def parse_size(text: str) -> int:
    return int(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else int(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch-python", required=True)
    parser.add_argument("--members", default="2,4,8")
    parser.add_argument("--sizes", default="4K,4M,100M,400M")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    names = options.sizes.split(",")
    sizes = [parse_size(name) for name in names]
    print("| members | size | Weft best / median, ms | gloo best / median, ms | times faster, best / median |")
    print("|---|---|---|---|---|")
    for members in map(int, options.members.split(",")):
        times: dict[str, dict[int, list[float]]] = {"weft": {}, "gloo": {}}
        for _ in range(options.rounds):
            for system, found in (
                ("weft", in_weft(members, sizes)),
                ("gloo", in_gloo(options.torch_python, members, sizes)),
            ):
                for size in sizes:
                    times[system].setdefault(size, []).extend(found[size])
        for name, size in zip(names, sizes, strict=True):
            print_row(members, name, times["weft"][size], times["gloo"][size])


def print_row(members: int, name: str, weft_times: list[float], gloo_times: list[float]) -> None:
    def figures(times: list[float]) -> tuple[float, float]:
        return min(times) * 1e3, statistics.median(times) * 1e3

    ours, theirs = figures(weft_times), figures(gloo_times)
    cells: list[Any] = [
        members,
        name,
        "{:.3g} / {:.3g}".format(*ours),
        "{:.3g} / {:.3g}".format(*theirs),
        f"{theirs[0] / ours[0]:.1f} / {theirs[1] / ours[1]:.1f}",
    ]
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
