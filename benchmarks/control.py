"""The control store, measured on real processes of this machine: throughput, batching, deaths, memory.

    python benchmarks/control.py [--seconds 3] [--kills 10] [--rows 1000000]

Prints a table in Markdown. Servers, clients and the killer share the machine's cores.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import psutil

from weft.store.embedded import EmbeddedStorage
from weft.store.server_process import RunningServer, new_name
from weft.store.server_shell import ServerConfig
from weft.store.state.chain_layout import Chain
from weft.store.state.chain_messages import Entry
from weft.store.state.chain_rows import Put
from weft.store.store_client import BlockingClient

TOKEN = b"benchmark"
VALUE = b"x" * 100
Done = Callable[[object, str], None]
Call = Callable[[int, Done], None]


class Store:
    """Some servers with one shard, and a client."""

    def __init__(self, servers: int) -> None:
        self.servers: dict[str, RunningServer] = {}
        for _ in range(servers):
            self.add_server()
        addresses = [server.wait_up().address for server in self.servers.values()]
        self.client = BlockingClient(new_name(), TOKEN, addresses)
        self.wait_whole(servers)

    def add_server(self) -> None:
        self.take(self.start_server())

    def start_server(self) -> RunningServer:
        """Without waiting until it is up; `take` does."""
        seeds = tuple(server.wait_up().address for server in self.servers.values())
        return RunningServer(ServerConfig(new_name(), seeds=seeds, shards=1), TOKEN, subprocess.DEVNULL)

    def take(self, server: RunningServer) -> None:
        self.servers[server.wait_up().name] = server

    def wait_whole(self, length: int) -> Chain:
        while True:
            current = self.client.client.state.configuration
            if current is not None:
                chain = current.chains[0]
                is_alive = all(place.server in self.servers for place in chain.members)
                if len(chain.members) == length and chain.joining is None and chain.fresh is None and is_alive:
                    return chain
            self.client.run_for(0.01)

    def cpu_s(self) -> list[float]:
        """Of each server: what it can do does not depend on who else uses the machine."""
        times = [psutil.Process(server.process.pid).cpu_times() for server in self.servers.values()]
        return [one.user + one.system for one in times]

    def close(self) -> None:
        self.client.close()
        for server in self.servers.values():
            server.end()


def rate(
    client: BlockingClient, outstanding: int, seconds: float, call: Callable[[int, Callable[..., None]], None]
) -> float:
    """Calls a second with so many outstanding."""
    done = asked = 0

    def finished(result: object, error: str) -> None:
        nonlocal done
        assert not error, error
        done += 1

    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        while asked - done < outstanding:
            call(asked, finished)
            asked += 1
        client.client.flush()
        client.loop.run_once(0.01)
    elapsed = time.perf_counter() - start
    while done < asked:
        client.loop.run_once(0.01)
    return done / elapsed


def measure_rates(seconds: float) -> None:
    print("| replicas | outstanding calls | writes/s | reads/s | writes per second of the busiest replica's CPU |")
    print("|---|---|---|---|---|")
    for replicas in (1, 3):
        store = Store(replicas)
        for outstanding in (1, 10, 100, 1000):
            before = store.cpu_s()
            writes = rate(store.client, outstanding, seconds, functools.partial(write, store.client))
            busiest = max(now - then for now, then in zip(store.cpu_s(), before, strict=True))
            reads = rate(store.client, outstanding, seconds, functools.partial(read, store.client))
            alone = writes * seconds / busiest
            print(f"| {replicas} | {outstanding:,} | {writes:,.0f} | {reads:,.0f} | {alone:,.0f} |", flush=True)
        store.close()


def write(client: BlockingClient, index: int, done: Done) -> None:
    client.client.write([Put("kv", b"%d" % (index % 10_000), VALUE)], done)


def read(client: BlockingClient, index: int, done: Done) -> None:
    client.client.read([("kv", b"%d" % (index % 10_000))], done)


def measure_deaths(kills: int) -> None:
    print("\n| killed with -9 | deaths | median | 99th percentile | longest |\n|---|---|---|---|---|")
    every: list[float] = []
    store = Store(3)
    for which in ("head", "middle", "tail"):
        delays = []
        for _ in range(kills):
            chain = store.wait_whole(3)
            victim = {"head": chain.head, "middle": chain.members[1], "tail": chain.tail}[which].server
            delays.append(one_death(store, victim))
            store.add_server()
        every += delays
        print(row(which, delays), flush=True)
    print(row("any of them", every))
    store.close()


def one_death(store: Store, victim: str) -> float:
    """The longest that a write and a read took around the death."""
    server = store.servers.pop(victim)
    killer = threading.Timer(0.1, server.kill)
    killer.start()
    longest = 0.0
    index = 0
    end = time.perf_counter() + 0.6
    while time.perf_counter() < end:
        start = time.perf_counter()
        store.client.write([Put("kv", b"%d" % (index % 100), VALUE)])
        assert store.client.read([("kv", b"%d" % (index % 100))]) == [VALUE]
        longest = max(longest, time.perf_counter() - start)
        index += 1
    killer.join()
    return longest


def row(name: str, delays: list[float]) -> str:
    ordered = sorted(delays)
    high = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    parts = (statistics.median(ordered), high, ordered[-1])
    return f"| {name} | {len(ordered)} | " + " | ".join(f"{part * 1000:.0f} ms" for part in parts) + " |"


def measure_memory(rows: int) -> None:
    """Objects that come and go, each with an event, which is a row on disk."""
    print("\n| objects that are gone | memory of the storage's process |\n|---|---|")
    storage = EmbeddedStorage()
    seq = 0
    print(f"| 0 | {resident_mib():.0f} MiB |")
    for count in range(0, rows, 1000):
        keys = [b"object-%012d" % index for index in range(count, count + 1000)]
        storage.apply([Entry(seq + 1, [("objects", key, VALUE) for key in keys])])
        gone = [change for key in keys for change in (("objects", key, None), ("events", key, VALUE))]
        storage.apply([Entry(seq + 2, gone)])
        seq += 2
        if (count + 1000) % (rows // 4) == 0:
            print(f"| {count + 1000:,} | {resident_mib():.0f} MiB |", flush=True)
    assert storage.get("events", b"object-%012d" % 0) == VALUE
    storage.close()


def resident_mib() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args()
    measure_rates(options.seconds)
    measure_deaths(options.kills)
    measure_memory(options.rows)


if __name__ == "__main__":
    sys.exit(main())
