"""Weft beside Ray between nodes: real node daemons on this machine, in one run.

    python benchmarks/cluster.py --ray-python .venv-ray/bin/python       both, interleaved, with ratios and targets
    python benchmarks/cluster.py                                         Weft alone
    python benchmarks/cluster.py --cases tasks,transfer --rounds 3       some cases, the best of three runs

Every node has an object store of its own, and what crosses between two nodes crosses a socket: Weft's nodes of one user
on one machine are linked by Unix sockets, Ray's by TCP on loopback. Beside the transfer stands what a bare socket moves
between two processes of this machine in the same run. Rates are more, seconds (`_s`) are less is better; a ratio above
1 always means that Weft is ahead.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import multiprocessing
import os
import platform
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

STORE_BYTES = 3 << 30
TRANSFER_BYTES = 1 << 30
BROADCAST_BYTES = 100 << 20
BROADCAST_NODES = 4
BATCH = 2000
ROUND_S = 1.0
ROUNDS = 5
PEER_TIMEOUT_S = 600
MARK = "figures: "
TARGETS = {"tasks": 30.0, "actor_calls": None, "tasks_5_nodes": None, "transfer_gib": 2.0, "broadcast_s": 3.0}
"""What the ratio to Ray should be at least."""
BARE_SHARE = 0.6
CASES = tuple(TARGETS)


# ---- one side, in a process of its own -------------------------------------------------------------


class Side:
    """One package's clusters and workloads."""

    def __init__(self, package: str) -> None:
        self.rt: Any = importlib.import_module(package)
        self.cluster_type: Any = importlib.import_module(f"{package}.cluster_utils").Cluster
        self.options = {"include_dashboard": False, "logging_level": "error"} if package == "ray" else {}

    @contextlib.contextmanager
    def cluster(self, others: int) -> Iterator[None]:
        """A head with no CPUs, to which the driver is attached, and so many nodes that do the work."""
        cluster = self.cluster_type(
            initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": STORE_BYTES}
        )
        for number in range(others):
            resources = {f"n{number}": 100}
            cluster.add_node(num_cpus=1, resources=resources, object_store_memory=STORE_BYTES)
        cluster.wait_for_nodes()
        try:
            self.rt.init(address=cluster.address, **self.options)
            yield
        finally:
            self.rt.shutdown()
            cluster.shutdown()

    def on(self, number: int) -> dict[str, Any]:
        """Options of work that only that node can do."""
        return {"num_cpus": 1, "resources": {f"n{number}": 1}}

    def tasks(self) -> float:
        rt = self.rt

        @rt.remote
        def nothing() -> bytes:
            return b"ok"

        with self.cluster(1):
            far = nothing.options(**self.on(0))
            return rate_of(lambda: rt.get([far.remote() for _ in range(BATCH)]), BATCH)

    def actor_calls(self) -> float:
        rt = self.rt

        @rt.remote
        class Listener:
            def nothing(self) -> bytes:
                return b"ok"

        with self.cluster(1):
            far = Listener.options(**self.on(0)).remote()
            return rate_of(lambda: rt.get([far.nothing.remote() for _ in range(BATCH)]), BATCH)

    def tasks_5_nodes(self) -> float:
        rt = self.rt

        @rt.remote
        def nothing() -> bytes:
            return b"ok"

        with self.cluster(BROADCAST_NODES):
            return rate_of(lambda: rt.get([nothing.remote() for _ in range(BATCH)]), BATCH)

    def transfer_gib(self) -> float:
        rt = self.rt

        @rt.remote
        def make(count: int) -> Any:
            import numpy

            return numpy.ones(count // 8)

        with self.cluster(1):
            best = 0.0
            for _ in range(ROUNDS):
                ref = make.options(**self.on(0)).remote(TRANSFER_BYTES)
                rt.wait([ref], fetch_local=False)
                began = time.perf_counter()
                array = rt.get(ref)
                best = max(best, 1 / (time.perf_counter() - began))
                assert array.nbytes == TRANSFER_BYTES and array[-1] == 1
                del array, ref
                time.sleep(1)  # until both nodes have their memory back
            return best

    def broadcast_s(self) -> float:
        rt = self.rt
        import numpy

        @rt.remote
        def size_of(array: Any) -> int:
            return int(array.nbytes)

        with self.cluster(BROADCAST_NODES):
            on_each = [size_of.options(**self.on(number)) for number in range(BROADCAST_NODES)]
            rt.get([task.remote(numpy.ones(8)) for task in on_each])
            spent = []
            for _ in range(ROUNDS):
                ref = rt.put(numpy.ones(BROADCAST_BYTES // 8))
                began = time.perf_counter()
                sizes = rt.get([task.remote(ref) for task in on_each])
                spent.append(time.perf_counter() - began)
                assert sizes == [BROADCAST_BYTES] * BROADCAST_NODES
                del ref
                time.sleep(0.5)
            return statistics.median(spent)


def rate_of(action: Callable[[], object], amount: float) -> float:
    """`amount` times calls per second: the best of some rounds, after calls to warm up."""
    for _ in range(3):
        action()
    best = 0.0
    for _ in range(ROUNDS):
        calls, began = 0, time.perf_counter()
        while (spent := time.perf_counter() - began) < ROUND_S:
            action()
            calls += 1
        best = max(best, calls * amount / spent)
    return best


def measure(package: str, wanted: set[str]) -> dict[str, float]:
    side = Side(package)
    figures = {}
    for case in CASES:
        if not wanted or case in wanted:
            try:
                figures[case] = getattr(side, case)()
            except Exception as error:
                print(f"{package}: {case} failed: {error!r}", file=sys.stderr, flush=True)
    return figures


# ---- the machine itself ----------------------------------------------------------------------------


def bare_socket_gib() -> float:
    """GiB a second over one loopback connection, from memory and into memory that was touched before."""
    listener = socket.create_server(("127.0.0.1", 0))
    sender = multiprocessing.Process(target=_send_bare, args=(listener.getsockname(),))
    sender.start()
    best = 0.0
    with listener, listener.accept()[0] as connection:
        view = memoryview(bytearray(TRANSFER_BYTES))
        for _ in range(ROUNDS):
            connection.sendall(b"g")
            began = time.perf_counter()
            received = 0
            while received < TRANSFER_BYTES:
                received += connection.recv_into(view[received:])
            best = max(best, 1 / (time.perf_counter() - began))
    sender.join()
    return best


def _send_bare(address: tuple[str, int]) -> None:
    data = bytearray(TRANSFER_BYTES)
    data[::4096] = b"x" * len(data[::4096])
    with socket.create_connection(address) as connection:
        while connection.recv(1):
            connection.sendall(data)


# ---- both sides ------------------------------------------------------------------------------------


def measure_elsewhere(package: str, python: str, cases: str) -> dict[str, float]:
    command = [python, __file__, "--measure", package, "--cases", cases]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as child:
        try:
            output, _ = child.communicate(timeout=PEER_TIMEOUT_S)
        except BaseException:
            os.killpg(child.pid, signal.SIGKILL)
            raise
    for line in reversed(output.splitlines()):
        if line.startswith(MARK):
            return dict(json.loads(line.removeprefix(MARK)))
    raise SystemExit(f"{package} gave no figures (exit status {child.returncode}):\n{output[-4000:]}")


def merge(best: dict[str, float], figures: dict[str, float]) -> None:
    for case, figure in figures.items():
        better = min if case.endswith("_s") else max
        best[case] = better(best.get(case, figure), figure)


def table(weft: dict[str, float], ray: dict[str, float]) -> str:
    lines = [f"{'case':16}{'weft':>14}{'ray':>14}{'ratio':>10}{'at least':>10}"]
    for case in CASES:
        if case not in weft:
            continue
        theirs = f"{ray[case]:14,.4g}" if case in ray else f"{'–':>14}"
        ratio, least = "", TARGETS[case]
        if case in ray:
            value = ray[case] / weft[case] if case.endswith("_s") else weft[case] / ray[case]
            ratio = f"{value:.1f}×"
        lines.append(f"{case:16}{weft[case]:14,.4g}{theirs}{ratio:>10}{f'{least:g}×' if least else '':>10}".rstrip())
    return "\n".join(lines)


def compare(args: argparse.Namespace) -> None:
    machine = f"{platform.platform()}, {os.cpu_count()} CPUs, Python {platform.python_version()}"
    print(f"{machine}, load {os.getloadavg()[0]}")
    weft: dict[str, float] = {}
    ray: dict[str, float] = {}
    bare: list[float] = []
    for _ in range(args.rounds):
        if args.ray_python:
            merge(ray, measure_elsewhere("ray", args.ray_python, args.cases))
        merge(weft, measure_elsewhere("weft", sys.executable, args.cases))
        if not args.cases or "transfer" in args.cases:
            bare.append(bare_socket_gib())
    print(table(weft, ray))
    if bare and "transfer_gib" in weft:
        share = weft["transfer_gib"] / max(bare)
        print(f"transfer_gib is {share:.0%} of a bare socket, {max(bare):.2f} GiB/s (at least {BARE_SHARE:.0%})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ray-python", default="", help="an interpreter that has Ray; without it Weft runs alone")
    parser.add_argument("--cases", default="", help=f"some of {', '.join(CASES)}; all when empty")
    parser.add_argument("--rounds", type=int, default=1, help="interleaved runs of each side; the best counts")
    parser.add_argument("--measure", default="", metavar="PACKAGE", help="one side, here; prints its figures as JSON")
    args = parser.parse_args()
    wanted = {case for case in args.cases.split(",") if case}
    if unknown := wanted - set(CASES):
        parser.error(f"unknown cases {sorted(unknown)}")
    if args.measure:
        print(MARK + json.dumps(measure(args.measure, wanted)))
    else:
        compare(args)


if __name__ == "__main__":
    main()
