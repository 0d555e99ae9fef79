"""Figure 9: what one client writes into the object store, by size, with several threads.

Bytes a second for large values, operations a second for small ones.
"""

from __future__ import annotations

import threading
import time

from reproduction import Outcome, Row, run

SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000)
THREADS = (1, 2, 4)


def puts_a_second(size: int, threads: int, seconds: float) -> float:
    """The mean over the seconds; each thread drops a value before it puts the next."""
    import numpy

    import weft

    values = [numpy.ones(size, numpy.uint8) for _ in range(threads)]
    counts = [0] * threads
    end = 0.0

    def put(index: int) -> None:
        while time.perf_counter() < end:
            weft.put(values[index])
            counts[index] += 1

    weft.put(values[0])
    began = time.perf_counter()
    end = began + seconds
    running = [threading.Thread(target=put, args=(index,)) for index in range(threads)]
    for one in running:
        one.start()
    for one in running:
        one.join()
    return sum(counts) / (time.perf_counter() - began)


def measure(short: bool) -> Outcome:
    import weft
    from weft.demos import chart

    sizes = SIZES[:-1] if short else SIZES
    weft.init(object_store_memory=6 << 30)
    try:
        rates = {
            threads: [(size, puts_a_second(size, threads, 0.3 if short else 2.0)) for size in sizes]
            for threads in THREADS
        }
    finally:
        weft.shutdown()
    best = {threads: max(rate * size for size, rate in found) / 1e9 for threads, found in rates.items()}
    small = {threads: found[0][1] for threads, found in rates.items()}
    rows = [
        Row("large values, one client", "more than 15 GB/s (8 threads copy)", f"{best[1]:.1f} GB/s"),
        Row("values of 1 KB, one client", "18,000 a second", f"{small[1]:,.0f} a second"),
    ]
    for threads in THREADS[1:]:
        rows.append(
            Row(f"{threads} threads put", "curves only", f"{best[threads]:.1f} GB/s, {small[threads]:,.0f} a second")
        )
    names = {threads: f"{threads} thread{'s' * (threads > 1)}" for threads in THREADS}
    throughput = {names[threads]: [(size, rate * size / 1e9) for size, rate in rates[threads]] for threads in THREADS}
    operations = {names[threads]: rates[threads] for threads in THREADS}
    return Outcome(
        "Figure 9",
        "Object store: throughput and operations",
        rows,
        "the paper: a 16-core m4.4xlarge, one client, 8 threads that copy values above 0.5 MB; here: 2 cores, and the "
        "threads are threads of the client that put at the same time. Values up to 64 KiB stay in the owner's memory.",
        [
            chart.lines(throughput, "Bytes put a second", "bytes of a value", "GB/s", log_x=True, log_y=True),
            chart.lines(operations, "Values put a second", "bytes of a value", "values/s", log_x=True, log_y=True),
        ],
    )


if __name__ == "__main__":
    run("objects", measure)
