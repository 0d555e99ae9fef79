"""What a long queue leaves behind in the process that had it."""

from __future__ import annotations

import gc
import time
from pathlib import Path

import weft
from waiting import comes_true

COUNT = 60_000


@weft.remote
def same(value: int) -> int:
    return value


@weft.remote
def hold() -> None:
    time.sleep(1000)


def _bytes() -> int:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("Anonymous"))


def test_the_memory_of_a_long_queue_goes_back_to_the_system_when_the_queue_is_gone() -> None:
    with weft.init(num_cpus=1):
        holder = hold.remote()
        weft.wait([same.remote(0)], timeout=0)
        before = _bytes()
        refs = [same.remote(number) for number in range(COUNT)]
        peak = _bytes()
        assert (peak - before) / COUNT < 900, "bytes for each task that waits"
        weft.cancel(holder, force=True)
        assert sum(weft.get(refs)) == COUNT * (COUNT - 1) // 2
        del refs
        gc.collect()

        def is_given_back() -> bool:
            return weft.get(same.remote(1)) == 1 and _bytes() - before < (peak - before) / 2

        assert comes_true(is_given_back)
