"""What one more costs as their number grows: each column should stay as it is from the first row to the last.

    python benchmarks/growth.py [--cases tasks,cancels] [--most 1000000] [--most-actors 1000] [--nodes 5,10,20,40]

The number grows tenfold from row to row. The first rows are dearer for what is set up once.
"""

from __future__ import annotations

import argparse
import gc
import os
import time
from collections.abc import Callable
from pathlib import Path

import psutil

import weft
from weft.cluster_utils import Cluster
from weft.engine.process.session import rpc

Figures = dict[str, float]
SETTLE_S = 8.0
IDLE_S = 20.0
GONE_S = 120.0
POWERS = (100, 1_000, 10_000, 100_000, 1_000_000)


@weft.remote
def same(value: object = None) -> object:
    return value


@weft.remote
def hold() -> None:
    time.sleep(3600)


class Small:
    def same(self, value: object = None) -> object:
        return value

    def hold(self) -> None:
        time.sleep(3600)


SmallActor = weft.remote(num_cpus=0)(Small)


def _memory_bytes() -> int:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("Anonymous"))


def _each_us(begin_s: float, count: int) -> float:
    return (time.perf_counter() - begin_s) / count * 1e6


def _memory_left(before: int) -> float:
    """MB, once what can be given back has been."""
    gc.collect()
    until = time.perf_counter() + 2
    while time.perf_counter() < until:
        weft.get(same.remote())
        time.sleep(0.05)
    return (_memory_bytes() - before) / 1e6


def tasks(count: int) -> Figures:
    """Queued behind one that holds the only CPU, then run."""
    before = _memory_bytes()
    holder = hold.remote()
    begin = time.perf_counter()
    refs = [same.remote(number) for number in range(count)]
    submit_us = _each_us(begin, count)
    size = (_memory_bytes() - before) / count
    weft.cancel(holder, force=True)
    begin = time.perf_counter()
    weft.get(refs)
    run_us = _each_us(begin, count)
    del refs
    left = _memory_left(before)
    return {"submit (us)": submit_us, "run and get (us)": run_us, "memory (B)": size, "left (MB)": left}


def cancels(count: int) -> Figures:
    """Of what is queued, the last first; of what waits for an argument; of calls in an actor's inbox."""
    holder = hold.remote()

    def cancelled(refs: list[weft.ObjectRef[object]]) -> float:
        begin = time.perf_counter()
        for ref in reversed(refs):
            weft.cancel(ref)
        weft.wait(refs, num_returns=len(refs))
        return _each_us(begin, count)

    queued = cancelled([same.remote() for _ in range(count)])
    waiting = cancelled([same.remote(holder) for _ in range(count)])
    actor = SmallActor.remote()
    actor.hold.remote()
    calls = cancelled([actor.same.remote() for _ in range(count)])
    weft.cancel(holder, force=True)
    weft.kill(actor)
    return {"queued (us)": queued, "waiting for an argument (us)": waiting, "calls of an actor (us)": calls}


def actors(count: int) -> Figures:
    before = sum(_daemon_cpu_s().values())
    begin = time.perf_counter()
    made = [SmallActor.remote() for _ in range(count)]
    weft.get([actor.same.remote() for actor in made])
    created = (time.perf_counter() - begin) / count * 1e3
    daemon = (sum(_daemon_cpu_s().values()) - before) / count * 1e3
    begin = time.perf_counter()
    del made
    gc.collect()
    while rpc.request("statistics")["actors_alive"] and time.perf_counter() - begin < GONE_S:
        time.sleep(0.01)
    ended = (time.perf_counter() - begin) / count * 1e3
    return {"created and called (ms)": created, "of the daemon's CPU (ms)": daemon, "ended (ms)": ended}


def shapes(count: int) -> Figures:
    """Tasks that each ask for another amount, all at once."""
    before = sum(_daemon_cpu_s().values())
    begin = time.perf_counter()
    refs = [same.options(num_cpus=(number + 1) / 10_000).remote() for number in range(count)]
    submit_us = _each_us(begin, count)
    begin = time.perf_counter()
    weft.get(refs)
    run_us = _each_us(begin, count)
    daemon = (sum(_daemon_cpu_s().values()) - before) / count * 1e6
    return {"submit (us)": submit_us, "run and get (us)": run_us, "of the daemon's CPU (us)": daemon}


def refs(count: int) -> Figures:
    before = _memory_bytes()
    begin = time.perf_counter()
    held = [weft.put(number) for number in range(count)]
    put_us = _each_us(begin, count)
    size = (_memory_bytes() - before) / count
    begin = time.perf_counter()
    weft.wait(held, num_returns=count)
    wait_us = _each_us(begin, count)
    begin = time.perf_counter()
    weft.get(held)
    get_us = _each_us(begin, count)
    begin = time.perf_counter()
    del held
    drop_us = _each_us(begin, count)
    return {"put (us)": put_us, "wait (us)": wait_us, "get (us)": get_us, "drop (us)": drop_us, "memory (B)": size}


def _daemon_cpu_s() -> dict[int, float]:
    found = {}
    for process in psutil.Process().children(recursive=True):
        if process.name() == "weft-node":
            times = process.cpu_times()
            found[process.pid] = times.user + times.system
    return found


def nodes(count: int) -> Figures:
    cluster = Cluster()
    try:
        for _ in range(count):
            cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
        time.sleep(SETTLE_S)
        before = _daemon_cpu_s()
        time.sleep(IDLE_S)
        used = [cpu_s - before[pid] for pid, cpu_s in _daemon_cpu_s().items() if pid in before]
    finally:
        cluster.shutdown()
    return {"of a core each (%)": 100 * sum(used) / len(used) / IDLE_S, "the head (%)": 100 * max(used) / IDLE_S}


IN_A_SESSION: dict[str, Callable[[int], Figures]] = {
    "tasks": tasks,
    "cancels": cancels,
    "refs": refs,
    "actors": actors,
    "shapes": shapes,
}
ROWS = {"actors": (30, 100, 300, 1_000), "shapes": (100, 500, 1_500, 4_500)}
"""Of the cases that a machine holds fewer of."""


def table(title: str, rows: dict[int, Figures]) -> str:
    names = list(next(iter(rows.values())))
    lines = [f"| {title} | {' | '.join(names)} |", "|---:|" + "---:|" * len(names)]
    lines += [f"| {count:,} | {' | '.join(f'{row[name]:,.2f}' for name in names)} |" for count, row in rows.items()]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="tasks,cancels,refs,actors,shapes,nodes")
    parser.add_argument("--most", type=int, default=1_000_000)
    parser.add_argument("--most-actors", type=int, default=1_000)
    parser.add_argument("--nodes", default="5,10,20,40")
    given = parser.parse_args()
    os.environ.setdefault("WEFT_EVENTS", "0")
    for case in given.cases.split(","):
        rows: dict[int, Figures] = {}
        if case == "nodes":
            rows = {int(count): nodes(int(count)) for count in given.nodes.split(",")}
        else:
            most = given.most_actors if case == "actors" else given.most
            counts = [count for count in ROWS.get(case, POWERS) if count <= most]
            weft.init(num_cpus=1, log_to_driver=False)
            IN_A_SESSION[case](30)
            for count in counts:
                rows[count] = IN_A_SESSION[case](count)
            weft.shutdown()
        print(table(case, rows), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
