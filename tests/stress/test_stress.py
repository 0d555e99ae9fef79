"""Many drivers on one node, doing everything at once, while workers and now and then a driver are killed.

WEFT_STRESS_SECONDS: how long; WEFT_STRESS_SEED: to see a failure again (threads and kills still fall as they fall).
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import IO

import psutil
import pytest

import weft
from waiting import comes_true
from weft import _native
from weft.engine.process.session import rpc

SECONDS = float(os.environ.get("WEFT_STRESS_SECONDS", "8"))
SEED = int(os.environ.get("WEFT_STRESS_SEED") or random.SystemRandom().randrange(1 << 30))
DRIVERS = 3
DRIVER_S = 20.0
"""How long one driver works at most; then another one takes its place."""
HANG_S = 120.0
MOST_GROWTH_BYTES = 16 << 20
BOUNDED_TABLES = ("actors", "events")
"""Dead actors and what happened are remembered, up to a number."""
BYTES_A_DEAD_ACTOR = 4096
"""What the daemon knows about each of the last dead actors."""
PROGRAM = Path(__file__).parent / "stress_driver.py"


@dataclass
class Driver:
    process: subprocess.Popen[str]
    errors: IO[str]
    seed: int
    deadline: float
    was_killed: bool = False

    @classmethod
    def start(cls, address: str, seed: int, seconds: float) -> Driver:
        errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed in `result`)
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), address, str(seed), str(seconds)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        return cls(process, errors, seed, time.monotonic() + seconds + HANG_S)

    def kill(self) -> None:
        self.was_killed = True
        self.process.kill()

    def end(self) -> str:
        """Whatever it does; what it wrote to its standard error."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        with self.process.stdout, self.errors:
            self.errors.seek(0)
            return self.errors.read()[-8000:]

    def result(self) -> dict[str, int]:
        """After its end: how often it did what."""
        assert self.process.stdout is not None
        with self.process.stdout, self.errors:
            output = self.process.stdout.read()
            self.errors.seek(0)
            errors = self.errors.read()[-8000:]
        if self.was_killed and self.process.returncode == -signal.SIGKILL:
            return {"killed": 1}
        assert self.process.returncode == 0, f"driver with seed {self.seed}: {self.process.returncode}\n{errors}"
        counts: dict[str, int] = json.loads(output.splitlines()[-1])
        return counts


class Storm:
    """The drivers and the killing."""

    def __init__(self, address: str, seconds: float) -> None:
        self.address = address
        self.rng = random.Random(SEED)
        self.end = time.monotonic() + seconds
        self.running: list[Driver] = []
        self.counts: collections.Counter[str] = collections.Counter()

    def run(self) -> collections.Counter[str]:
        pause = threading.Event()
        try:
            while self.running or time.monotonic() < self.end:
                self._start()
                self._kill()
                self._collect()
                pause.wait(self.rng.uniform(0.02, 0.6))
        finally:
            for driver in self.running:
                driver.end()
        return self.counts

    def _start(self) -> None:
        left = self.end - time.monotonic()
        while len(self.running) < DRIVERS and left > 0:
            seconds = min(left, self.rng.uniform(1, DRIVER_S))
            self.running.append(Driver.start(self.address, self.rng.randrange(1 << 30), seconds))

    def _kill(self) -> None:
        if time.monotonic() > self.end:
            return  # what retries without end must come to an end
        workers = [worker["pid"] for worker in rpc.request("workers") if worker["pid"] > 0]  # 0: about to be forked
        if workers and self.rng.random() < 0.7:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.rng.choice(workers), signal.SIGKILL)
            self.counts["workers killed"] += 1
        if self.running and self.rng.random() < 0.03:
            self.rng.choice(self.running).kill()

    def _collect(self) -> None:
        for driver in list(self.running):
            if driver.process.poll() is not None:
                self.running.remove(driver)
                self.counts.update(driver.result())
                self.counts["drivers"] += 1
            elif time.monotonic() > driver.deadline:
                driver.process.send_signal(signal.SIGUSR1)  # it shows its stacks
                threading.Event().wait(1)
                self.running.remove(driver)
                raise AssertionError(f"the driver with seed {driver.seed} hangs:\n{driver.end()}")


def exceeds(now: dict[str, int], before: dict[str, int]) -> list[str]:
    """What there is more of than before."""
    return [f"{name}: {before.get(name, 0)} -> {count}" for name, count in now.items() if count > before.get(name, 0)]


DESCRIPTORS = "daemon's descriptors besides two a worker"


def state() -> dict[str, int]:
    """What must not grow. Waiting workers do not count, nor do dead actors: the last are known."""
    node = rpc.request("statistics")
    daemon = psutil.Process(node["daemon_pid"])
    mine = _native.statistics()
    return {
        **{name: node[name] for name in ("used_bytes", "objects", "spilled_objects", "leases", "jobs", "actors_alive")},
        **{name: mine[name] for name in ("objects_owned", "objects_borrowed", "pending_tasks")},
        **{f"rows of {table}": count for table, count in node["rows"].items() if table not in BOUNDED_TABLES},
        "daemon's threads": daemon.num_threads(),
        DESCRIPTORS: daemon.num_fds() - 2 * node["workers"],
        "slots besides one a worker": node["slots_used"] - node["workers"],
        "driver's threads": psutil.Process().num_threads(),
        "driver's descriptors": psutil.Process().num_fds(),
    }


def own_bytes() -> dict[str, int]:
    """Memory that nobody shares, of this process and of the daemon, less what the daemon remembers on purpose."""
    node = rpc.request("statistics")
    daemon = psutil.Process(node["daemon_pid"]).memory_full_info().uss
    remembered = BYTES_A_DEAD_ACTOR * node["rows"].get("actors", 0)
    return {"driver": psutil.Process().memory_full_info().uss, "daemon": daemon - remembered}


@pytest.mark.timeout(SECONDS + 4 * HANG_S)
def test_a_node_comes_back_to_its_baseline_after_a_storm(weft_session: ModuleType) -> None:
    print(f"WEFT_STRESS_SEED={SEED} WEFT_STRESS_SECONDS={SECONDS:g}")
    address = weft.get_runtime_context().gcs_address
    at_rest = state()
    at_rest["driver's threads"] += 1  # one is made at its first need
    at_rest[DESCRIPTORS] += 1  # the file of events is, too
    Storm(address, min(3.0, SECONDS / 4)).run()  # every path has been walked once
    assert comes_true(lambda: not exceeds(state(), at_rest)), exceeds(state(), at_rest)
    before, bytes_before = state() | {DESCRIPTORS: at_rest[DESCRIPTORS]}, own_bytes()
    counts = Storm(address, SECONDS).run()
    print(dict(counts))
    assert comes_true(lambda: not exceeds(state(), before)), exceeds(state(), before)
    assert comes_true(lambda: rpc.request("statistics")["workers"] <= 8), rpc.request("workers")
    growth = {name: now - bytes_before[name] for name, now in own_bytes().items()}
    print("growth of memory:", growth)
    assert max(growth.values()) < MOST_GROWTH_BYTES, growth
