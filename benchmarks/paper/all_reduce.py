"""Figure 12: all-reduce beside a peer, and a ring of tasks when each step is scheduled late on purpose.

12a: `weft.train.Group` beside PyTorch's gloo (the cases of benchmarks/train_collectives.py). 12b: the paper's own
way, a ring of actor calls that pass refs to each other, with 0 to 10 ms added before each step.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

import numpy as np
from reproduction import Outcome, Row, run

MEMBERS = 4
DELAYS_MS = (0, 1, 5, 10)
PAPER = {100_000_000: "about 200 ms on 16 machines, OpenMPI 1.5 times that"}
PAPER_LATE = {5: "nearly twice the time"}


def ring_class(weft: Any) -> Any:
    @weft.remote(num_cpus=0)
    class Member:
        """Holds its array in as many chunks as there are members."""

        def __init__(self, rank: int, floats: int) -> None:
            self.rank = rank
            self.chunks = np.array_split(np.full(floats, rank + 1.0, np.float32), MEMBERS)

        def send(self, chunk: int) -> np.ndarray:
            return self.chunks[chunk]

        def add(self, chunk: int, other: np.ndarray, late_s: float) -> None:
            time.sleep(late_s)
            self.chunks[chunk] = self.chunks[chunk] + other

        def take(self, chunk: int, other: np.ndarray, late_s: float) -> None:
            time.sleep(late_s)
            self.chunks[chunk] = other

        def first(self) -> float:
            return float(self.chunks[0][0])

    return Member


def ring(weft: Any, floats: int, late_s: float) -> float:
    """Seconds of one all-reduce in 2 × (members - 1) rounds."""
    members = [ring_class(weft).remote(rank, floats) for rank in range(MEMBERS)]
    weft.get([member.first.remote() for member in members])
    began = time.perf_counter()
    for phase in ("add", "take"):
        for turn in range(MEMBERS - 1):
            offset = 0 if phase == "add" else 1
            chunks = [(rank + offset - turn) % MEMBERS for rank in range(MEMBERS)]
            sent = [members[rank].send.remote(chunks[rank]) for rank in range(MEMBERS)]
            for rank in range(MEMBERS):
                getattr(members[(rank + 1) % MEMBERS], phase).remote(chunks[rank], sent[rank], late_s)
    values = weft.get([member.first.remote() for member in members])
    taken = time.perf_counter() - began
    assert values == [sum(range(1, MEMBERS + 1))] * MEMBERS, values
    for member in members:
        weft.kill(member)
    return taken


def beside_gloo(sizes: list[int], rounds: int) -> dict[str, list[tuple[float, float]]]:
    """(bytes, median milliseconds) of each side, in turns."""
    import train_collectives

    taken: dict[str, dict[int, list[float]]] = {"Weft": {}, "gloo": {}}
    for _ in range(rounds):
        for name, times in (
            ("Weft", train_collectives.in_weft(MEMBERS, sizes)),
            ("gloo", train_collectives.in_gloo(sys.executable, MEMBERS, sizes)),
        ):
            for size in sizes:
                taken[name].setdefault(size, []).extend(times[size])
    return {name: [(size, statistics.median(times[size]) * 1e3) for size in sizes] for name, times in taken.items()}


def late_rings(floats: int, rounds: int) -> list[tuple[float, float]]:
    """(milliseconds late at each step, median milliseconds)."""
    import weft

    weft.init(num_cpus=2)
    try:
        ring(weft, floats, 0.0)  # warm
        return [(ms, statistics.median(ring(weft, floats, ms / 1e3) for _ in range(rounds)) * 1e3) for ms in DELAYS_MS]
    finally:
        weft.shutdown()


def measure(short: bool) -> Outcome:
    from weft.demos import chart

    sizes = [1_000_000, 10_000_000] if short else [10_000, 1_000_000, 10_000_000, 100_000_000]
    medians = beside_gloo(sizes, 1 if short else 3)
    ring_bytes = sizes[0] if short else sizes[-1]
    late = late_rings(ring_bytes // 4, 3 if short else 7)
    rows = [
        Row(
            f"{size / 1e6:g} MB",
            PAPER.get(int(size), "curve only"),
            f"{ours:.2f} ms; gloo {theirs:.2f} ms, {theirs / ours:.1f} times ours",
        )
        for (size, ours), (_, theirs) in zip(medians["Weft"], medians["gloo"], strict=True)
    ]
    rows += [
        Row(
            f"ring of calls, {ms} ms late at each step",
            PAPER_LATE.get(int(ms), "curve only"),
            f"{taken:.0f} ms, {taken / late[0][1]:.1f} times",
        )
        for ms, taken in late
    ]
    return Outcome(
        "Figure 12",
        "All-reduce, and what scheduling late costs it",
        rows,
        f"the paper: 16 machines with 25 Gbit/s, OpenMPI 1.10 as the peer; here: {MEMBERS} members of one machine "
        f"through shared memory, gloo as the peer; the ring moves {ring_bytes / 1e6:g} MB in {2 * (MEMBERS - 1)} "
        "rounds.",
        [
            chart.lines(medians, "All-reduce, median", "bytes", "milliseconds", log_x=True, log_y=True),
            chart.lines(
                {"ring of calls": late}, "A ring that is scheduled late", "ms late at each step", "milliseconds"
            ),
        ],
    )


if __name__ == "__main__":
    run("all_reduce", measure)
