"""Streams: a windowed word count of a million events, with and without three kills, and the latency at a tenth of the
wanted rate.

    python benchmarks/data_streams.py [--events 1000000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import weft
from weft import data

WORDS = 5_000
WANTED_EVENTS_PER_S = 200_000
WINDOW_S = 10.0


def words(count: int) -> Callable[[], Iterator[tuple[float, str]]]:
    """(time, word), 10,000 per second of event time."""
    return lambda: ((number / 10_000, f"word{number * 7919 % WORDS}") for number in range(count))


def counting(count: int) -> data.Stream:
    keyed = data.stream_from(words(count)).timestamps(lambda event: event[0]).key_by(lambda event: event[1])
    return keyed.window(data.Tumbling(WINDOW_S)).count()


def expected(count: int) -> Counter[Any]:
    return Counter((word, time - time % WINDOW_S) for time, word in words(count)())


def throughput(count: int) -> float:
    begun = time.perf_counter()
    results = counting(count).run()
    took = time.perf_counter() - begun
    assert sum(result.value for result in results) == count
    return count / took


def killed(count: int, seed: int) -> tuple[bool, int, float]:
    """Whether the results are exact after three random kills, the restarts, and events a second."""
    chosen = random.Random(seed)
    results: list[data.WindowResult] = []
    begun = time.perf_counter()
    stream = counting(count)
    with stream.start(checkpoint_every_s=0.1, sink=lambda number, outputs: results.extend(outputs)) as job:
        for kill in range(3):
            before = job.checkpoints_completed
            while job.checkpoints_completed == before and not job.has_ended:
                job.wait(0.005)
            if job.has_ended:
                break
            os.kill(chosen.choice(job.pids()), signal.SIGKILL)
            while job.restarts == kill and not job.has_ended:
                job.wait(0.005)
        job.wait()
        restarts = job.restarts
    found = Counter({(result.key, result.window.start): result.value for result in results})
    exact = found == expected(count) and len(results) == len(found)
    return exact, restarts, count / (time.perf_counter() - begun)


def latency(events_per_s: float, seconds: float) -> list[float]:
    """Of each event from when it was due to when a keyed running count of it has come out, in ms."""
    count = int(events_per_s * seconds)
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "latencies")

        def note(pair: tuple[Any, Any]) -> None:
            due = pair[1][0]
            with open(f"{file}-{os.getpid()}", "a") as out:
                out.write(f"{1000 * (time.time() - due)}\n")

        stream = data.stream_paced(lambda: (word for _, word in words(count)()), events_per_s)
        counted = stream.key_by(lambda event: event[1]).reduce(lambda left, right: right)
        sampled = counted.filter(lambda pair: hash(pair[1][0]) % 50 == 0).for_each(note)
        with sampled.start() as job:
            job.wait()
        found = [float(line) for path in Path(folder).iterdir() for line in path.read_text().splitlines()]
    return sorted(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    weft.init(num_cpus=2)
    rates = [throughput(options.events) for _ in range(options.rounds)]
    print(f"windowed word count: best {max(rates):,.0f}, median {statistics.median(rates):,.0f} events/s")
    for seed in range(options.rounds):
        exact, restarts, rate = killed(options.events, seed)
        print(f"{restarts} kills: {'exact' if exact else 'WRONG'}, {rate:,.0f} events/s with the recoveries")
    found = latency(WANTED_EVENTS_PER_S / 10, 5)
    at = {part: found[int(part * (len(found) - 1))] for part in (0.5, 0.9, 0.99)}
    print(
        f"latency at {WANTED_EVENTS_PER_S // 10:,} events/s: "
        + ", ".join(f"p{int(100 * k)} {v:.1f} ms" for k, v in at.items())
    )
    weft.shutdown()


if __name__ == "__main__":
    main()
