"""Weft beside Ray on the same small workloads, in one run on one machine.

    python benchmarks/engine.py --ray-python .venv-ray/bin/python       both, interleaved, with ratios and targets
    python benchmarks/engine.py                                         Weft alone
    python benchmarks/engine.py --cases tasks_sync,put_gib --rounds 3   some cases, the best of three runs

A case is a rate, where more is better, or seconds, where its name ends in `_s` and less is better. A ratio above 1
always means that Weft is ahead. Each side runs in processes of its own, one side at a time. A figure means something
only beside the others of its own run: machines differ, and so do hours of the day.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROUND_S = 1.0
"""How long a round of a rate takes; `--round-s` says it anew."""
ROUNDS_A_CASE = 3
PEER_TIMEOUT_S = 900
ARRAY_BYTES = 100 << 20
MIXED_DURATIONS_S = [0.1, 0.01, 0.001, 0.001] * 20
MARK = "figures: "


@dataclass(frozen=True)
class Target:
    """What the ratio to Ray should be at least, and what it aims at."""

    least: float
    aim: float | None = None


TARGETS = {
    "start_s": Target(6, 12),
    "tasks_sync": Target(60, 200),
    "tasks_async": Target(80, 200),
    "tasks_nested": Target(80, 200),
    "chain_100": Target(60, 200),
    "tree_128": Target(60, 200),
    "actor_sync": Target(40, 100),
    "actor_async": Target(40, 100),
    "actor_1_to_4": Target(40, 100),
    "actors_20_created_s": Target(20, 50),
    "put_small": Target(40),
    "get_small": Target(20),
    "put_gib": Target(2),
    "wait_drain_10k_s": Target(60, 200),
}
"""`start_s` is import_s + init_s, what a program waits for before its first line of work."""


# ---- one side, in a process of its own -------------------------------------------------------------


def seconds_of(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def rate_of(action: Callable[[], object], amount: float) -> float:
    """`amount` times calls per second: the best of some rounds, after one call to warm up."""
    action()
    best = 0.0
    for _ in range(ROUNDS_A_CASE):
        calls, began = 0, time.perf_counter()
        while (spent := time.perf_counter() - began) < ROUND_S:
            action()
            calls += 1
        best = max(best, calls * amount / spent)
    return best


class Workloads:
    """The cases, over any package with Ray's core API. A session must be running."""

    def __init__(self, runtime: Any) -> None:
        import numpy

        self.rt = rt = runtime
        self.array = numpy.ones(ARRAY_BYTES // 8)
        self.copy_target = numpy.zeros_like(self.array)

        @rt.remote
        def nothing() -> bytes:
            return b"ok"

        @rt.remote
        def first_of(value: Any, *_: Any) -> Any:
            return value

        @rt.remote
        def count_bytes(array: Any) -> int:
            return array.nbytes

        @rt.remote
        def sleep(duration_s: float) -> None:
            time.sleep(duration_s)

        @rt.remote
        def spread(width: int) -> int:
            return len(rt.get([nothing.remote() for _ in range(width)]))

        @rt.remote
        class Listener:
            def nothing(self) -> bytes:
                return b"ok"

        self.nothing, self.first_of, self.count_bytes = nothing, first_of, count_bytes
        self.sleep, self.spread, self.Listener = sleep, spread, Listener

    def prepare(self) -> None:
        """What several cases share, and workers that are up."""
        rt = self.rt
        rt.get([self.nothing.remote() for _ in range(100)])
        self.small_ref, self.big_ref = rt.put(0), rt.put(self.array)
        self.actor = self.Listener.remote()
        rt.get(self.actor.nothing.remote())

    def first_task_s(self) -> float:
        return seconds_of(lambda: self.rt.get(self.nothing.remote()))

    def tasks_sync(self) -> float:
        return rate_of(lambda: self.rt.get(self.nothing.remote()), 1)

    def tasks_async(self) -> float:
        return rate_of(lambda: self.rt.get([self.nothing.remote() for _ in range(1000)]), 1000)

    def tasks_nested(self) -> float:
        return rate_of(lambda: self.rt.get([self.spread.remote(100) for _ in range(4)]), 4 * 101)

    def chain_100(self) -> float:
        def chain() -> None:
            link = self.first_of.remote(0)
            for _ in range(99):
                link = self.first_of.remote(link)
            self.rt.get(link)

        return rate_of(chain, 100)

    def tree_128(self) -> float:
        def tree() -> None:
            row = [self.first_of.remote(leaf) for leaf in range(128)]
            while len(row) > 1:
                row = [self.first_of.remote(row[i], row[i + 1]) for i in range(0, len(row), 2)]
            self.rt.get(row[0])

        return rate_of(tree, 255)

    def actor_sync(self) -> float:
        return rate_of(lambda: self.rt.get(self.actor.nothing.remote()), 1)

    def actor_async(self) -> float:
        return rate_of(lambda: self.rt.get([self.actor.nothing.remote() for _ in range(1000)]), 1000)

    def actor_1_to_4(self) -> float:
        actors = [self.Listener.options(num_cpus=0).remote() for _ in range(4)]
        return rate_of(lambda: self.rt.get([a.nothing.remote() for a in actors for _ in range(250)]), 1000)

    def actors_20_created_s(self) -> float:
        def create_use_and_kill() -> None:
            actors = [self.Listener.options(num_cpus=0).remote() for _ in range(20)]
            self.rt.get([actor.nothing.remote() for actor in actors])
            for actor in actors:
                self.rt.kill(actor)

        return seconds_of(create_use_and_kill)

    def put_small(self) -> float:
        return rate_of(lambda: self.rt.put(0), 1)

    def get_small(self) -> float:
        return rate_of(lambda: self.rt.get(self.small_ref), 1)

    def put_gib(self) -> float:
        return rate_of(lambda: self.rt.put(self.array), ARRAY_BYTES / 2**30)

    def memcpy_gib(self) -> float:
        """The same bytes copied into memory that was touched before, with no runtime involved."""
        import numpy

        return rate_of(lambda: numpy.copyto(self.copy_target, self.array), ARRAY_BYTES / 2**30)

    def get_100mb(self) -> float:
        return rate_of(lambda: self.rt.get(self.big_ref), 1)

    def pass_100mb(self) -> float:
        return rate_of(lambda: self.rt.get(self.count_bytes.remote(self.big_ref)), 1)

    def wait_drain(self, count: int) -> float:
        def drain() -> None:
            pending = [self.nothing.remote() for _ in range(count)]
            while pending:
                _, pending = self.rt.wait(pending, num_returns=1)

        return seconds_of(drain)

    def wait_drain_1k_s(self) -> float:
        return self.wait_drain(1_000)

    def wait_drain_10k_s(self) -> float:
        return self.wait_drain(10_000)

    def mixed_durations_s(self) -> float:
        return seconds_of(lambda: self.rt.get([self.sleep.remote(duration) for duration in MIXED_DURATIONS_S]))


CASES = (
    "tasks_sync tasks_async tasks_nested chain_100 tree_128 actor_sync actor_async actor_1_to_4 actors_20_created_s "
    "put_small get_small put_gib memcpy_gib get_100mb pass_100mb wait_drain_1k_s wait_drain_10k_s mixed_durations_s"
).split()
ALWAYS = ("import_s", "init_s", "first_task_s", "shutdown_s")


def measure(package: str, wanted: set[str], cpus: int) -> dict[str, float]:
    """All figures of one side. A case that fails is reported and left out."""
    began = time.perf_counter()
    runtime = importlib.import_module(package)
    figures = {"import_s": time.perf_counter() - began}
    options: dict[str, Any] = {"num_cpus": cpus, "object_store_memory": 4 << 30}
    if package == "ray":
        options.update(include_dashboard=False, logging_level="error")
    figures["init_s"] = seconds_of(lambda: runtime.init(**options))
    workloads = Workloads(runtime)
    figures["first_task_s"] = workloads.first_task_s()
    workloads.prepare()
    for name in CASES:
        if not wanted or name in wanted or (name == "memcpy_gib" and "put_gib" in wanted):
            try:
                figures[name] = getattr(workloads, name)()
            except Exception as error:
                print(f"{package}: {name} failed: {error!r}", file=sys.stderr, flush=True)
    figures["shutdown_s"] = seconds_of(runtime.shutdown)
    return figures


# ---- both sides ------------------------------------------------------------------------------------


def measure_elsewhere(package: str, python: str, cases: str, cpus: int) -> dict[str, float]:
    """`measure` in a fresh interpreter of its own; everything it started is ended with it."""
    command = [python, __file__, "--measure", package, "--cases", cases, "--cpus", str(cpus), "--round-s", str(ROUND_S)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as child:
        try:
            output, _ = child.communicate(timeout=PEER_TIMEOUT_S)
        except BaseException:
            os.killpg(child.pid, signal.SIGKILL)
            raise
    for line in reversed(output.splitlines()):
        if line.startswith(MARK):
            return json.loads(line.removeprefix(MARK))
    raise SystemExit(f"{package} gave no figures (exit status {child.returncode}):\n{output[-4000:]}")


def is_time(case: str) -> bool:
    return case.endswith("_s")


def merge(best: dict[str, float], figures: dict[str, float]) -> None:
    for case, figure in figures.items():
        better = min if is_time(case) else max
        best[case] = better(best.get(case, figure), figure)


def ratio_of(case: str, weft: float, ray: float) -> float:
    return ray / weft if is_time(case) else weft / ray


def add_start(figures: dict[str, float]) -> None:
    figures["start_s"] = figures["import_s"] + figures["init_s"]


def table(weft: dict[str, float], ray: dict[str, float]) -> str:
    order = ("import_s", "init_s", "start_s", "first_task_s", *CASES, "shutdown_s")
    lines = [f"{'case':22}{'weft':>14}{'ray':>14}{'ratio':>10}{'at least':>10}{'aim':>7}"]
    for case in order:
        if case == "memcpy_gib" or (case not in weft and case not in ray):
            continue
        ours = f"{weft[case]:14,.4g}" if case in weft else f"{'failed':>14}"
        theirs = f"{ray[case]:14,.4g}" if case in ray else f"{'–':>14}"
        ratio = f"{ratio_of(case, weft[case], ray[case]):9.1f}×" if case in weft and case in ray else ""
        target = TARGETS.get(case)
        least = f"{target.least:.0f}×" if target else ""
        aim = f"{target.aim:.0f}×" if target and target.aim else ""
        is_short = target and ratio and ratio_of(case, weft[case], ray[case]) < target.least
        lines.append(f"{case:22}{ours}{theirs}{ratio:>10}{least:>10}{aim:>7}{'  short' if is_short else ''}".rstrip())
    return "\n".join(lines)


def against_the_machine(weft: dict[str, float], limit: dict[str, float] | None, cpus: int) -> list[str]:
    """Weft's figures beside what the machine itself allows."""
    lines = []
    if "put_gib" in weft and "memcpy_gib" in weft:
        share = weft["put_gib"] / weft["memcpy_gib"]
        lines.append(f"put_gib is {share:.0%} of a warm memcpy, {weft['memcpy_gib']:.2f} GiB/s (at least 70%, aim 90%)")
    if "mixed_durations_s" in weft:
        ideal = sum(MIXED_DURATIONS_S) / cpus
        over = weft["mixed_durations_s"] / ideal - 1
        lines.append(f"mixed_durations_s is {over:+.1%} on the ideal {ideal:.3f} s (within 10%, aim 3%)")
    if limit:
        lines.append(
            f"ring limit: {limit['pipelined']:,.0f} calls/s pipelined, {limit['one_at_a_time']:,.0f} one at a time"
        )
        for case, kind in (
            ("tasks_async", "pipelined"),
            ("tasks_nested", "pipelined"),
            ("tasks_sync", "one_at_a_time"),
        ):
            if case in weft:
                aim = " (aim 40%)" if kind == "pipelined" else ""
                lines.append(f"{case} is {weft[case] / limit[kind]:.0%} of it{aim}")
    return lines


def ring_limit() -> dict[str, float] | None:
    try:
        return importlib.import_module("limit").measure()
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"no ring limit: {error}", file=sys.stderr)
        return None


def compare(args: argparse.Namespace) -> None:
    print(f"{platform.platform()}, {args.cpus} CPUs, Python {platform.python_version()}, load {os.getloadavg()[0]:.2f}")
    weft: dict[str, float] = {}
    ray: dict[str, float] = {}
    for _ in range(args.rounds):
        if args.ray_python:
            merge(ray, measure_elsewhere("ray", args.ray_python, args.cases, args.cpus))
        merge(weft, measure_elsewhere("weft", sys.executable, args.cases, args.cpus))
    limit = None if args.no_limit else ring_limit()
    for figures in filter(None, (weft, ray)):
        add_start(figures)
    print(table(weft, ray))
    print("\n".join(against_the_machine(weft, limit, args.cpus)))
    if args.json:
        ratios = {case: ratio_of(case, weft[case], ray[case]) for case in weft if case in ray}
        Path(args.json).write_text(json.dumps({"weft": weft, "ray": ray, "ratio": ratios, "limit": limit}, indent=2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ray-python", default="", help="an interpreter that has Ray; without it Weft runs alone")
    parser.add_argument("--cases", default="", help=f"some of {', '.join(CASES)}; all when empty")
    parser.add_argument("--rounds", type=int, default=1, help="interleaved runs of each side; the best counts")
    parser.add_argument("--cpus", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--round-s", type=float, default=ROUND_S, help="seconds of each round of a rate")
    parser.add_argument("--no-limit", action="store_true", help="leave the ring limit out")
    parser.add_argument("--json", default="", help="also write the figures to this file")
    parser.add_argument("--measure", default="", metavar="PACKAGE", help="one side, here; prints its figures as JSON")
    args = parser.parse_args()
    wanted = {case for case in args.cases.split(",") if case}
    if unknown := wanted - set(CASES):
        parser.error(
            f"unknown cases {sorted(unknown)}; import_s, init_s, first_task_s and shutdown_s are always measured"
        )
    globals()["ROUND_S"] = args.round_s
    if args.measure:
        print(MARK + json.dumps(measure(args.measure, wanted, args.cpus)))
    else:
        compare(args)


if __name__ == "__main__":
    main()
