"""weft.serve's figures: states served by handle and over HTTP, and a no-op beside bare uvicorn.

    python benchmarks/serve.py [--seconds 3] [--rounds 5] [--skip-http] [--ray-python PYTHON_WITH_RAY_SERVE]

The embedded cases are those of Table 3 of the Ray paper: clients send batches of 64 states, of 4 KB to a model that
takes 10 ms and of 100 KB to one that takes 5 ms; the bound is what the model alone could do. Beside each, states of 4
bytes: what they reach is what the machine lets any call reach while it has other work. HTTP needs `wrk`; weft.serve and
bare uvicorn take turns, and the medians of all rounds are shown, with the CPU time of each process a request.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import re
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import psutil

import weft
from weft import serve

BATCH = 64
CLIENTS = 2
BARE = """
async def app(scope, receive, send):
    await receive()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok"})
import sys, uvicorn
uvicorn.run(app, port=int(sys.argv[1]), log_level="warning", access_log=False, lifespan="off")
"""

RAY = """
import sys
from ray import serve
@serve.deployment
class Nothing:
    async def __call__(self, request): return "ok"
serve.start(http_options={"port": int(sys.argv[1])})
serve.run(Nothing.bind())
print("serving", flush=True)
sys.stdin.read()
serve.shutdown()
"""


@serve.deployment
class Model:
    """Takes as long as it is told, and no CPU."""

    def __init__(self, duration_s: float) -> None:
        self.duration_s = duration_s

    def __call__(self, states: Any) -> int:
        count = len(states)
        time.sleep(self.duration_s)
        return count


@serve.deployment
async def nothing() -> str:
    return "ok"


def rate(ask: Callable[[], Any], seconds: float) -> float:
    """Calls a second of `CLIENTS` threads, each with one call under way."""
    ask()
    end = time.perf_counter() + seconds
    counts = [0] * CLIENTS

    def run(index: int) -> None:
        while time.perf_counter() < end:
            ask()
            counts[index] += 1

    began = time.perf_counter()
    threads = [threading.Thread(target=run, args=(index,)) for index in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - began)


def embedded(seconds: float, rounds: int, address: str | None) -> None:
    for label, state_bytes, duration_s in (("4 KB", 4096, 0.010), ("100 KB", 102_400, 0.005)):
        handle = serve.run(Model.bind(duration_s), name="model", route_prefix="/model")
        states = np.random.default_rng(0).random((BATCH, state_bytes // 4), dtype=np.float32)
        tiny = states[:, :1].copy()
        bound = BATCH / duration_s
        reached: dict[str, list[float]] = {label: [], "4 bytes": []}
        for _ in range(rounds):
            for name, given in ((label, states), ("4 bytes", tiny)):
                reached[name].append(BATCH * rate(lambda: handle.remote(given).result(), seconds / 2))  # noqa: B023
        by_handle, by_tiny = (statistics.median(one) for one in reached.values())
        print(
            f"{label:>7} states, {duration_s * 1000:.0f} ms: {by_handle:8.0f}/s by handle, "
            f"{by_handle / bound:.0%} of {bound:.0f}/s (best {max(reached[label]) / bound:.0%}); "
            f"states of 4 bytes {by_tiny / bound:.0%} (best {max(reached['4 bytes']) / bound:.0%})"
        )
        if address is not None:
            body = json.dumps(states.tolist()).encode()
            by_http = BATCH * rate(lambda: post(address, body), seconds)  # noqa: B023
            print(f"{'':>22} {by_http:8.0f}/s over our HTTP/JSON; by handle {by_handle / by_http:.1f} times that")
    serve.delete("model")


def post(address: str, body: bytes) -> None:
    connection = http.client.HTTPConnection(urlsplit(address).netloc)
    connection.request("POST", "/model", body, {"content-type": "application/json"})
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    answer.read()
    connection.close()


class Measured(NamedTuple):
    per_second: float
    median_s: float
    p99_s: float


def wrk(address: str, connections: int, seconds: float) -> Measured:
    command = ["wrk", "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "--latency", address]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "Non-2xx" not in text, text
    per_second, median, worst = (
        re.search(pattern, text) for pattern in (r"Requests/sec:\s+([\d.]+)", r" 50%\s+(\S+)", r" 99%\s+(\S+)")
    )
    assert per_second and median and worst, text
    return Measured(float(per_second.group(1)), in_seconds(median.group(1)), in_seconds(worst.group(1)))


def in_seconds(text: str) -> float:
    """
    >>> in_seconds("1.50ms")
    0.0015
    """
    unit = re.sub(r"[\d.]", "", text)
    return float(text.removesuffix(unit)) * {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}[unit]


def shown(name: str, rounds: list[Measured]) -> str:
    rate, median, worst = (statistics.median(column) for column in zip(*rounds, strict=True))
    return f"{name} {rate:7.0f}/s (median {median * 1e3:.2f} ms, p99 {worst * 1e3:.1f} ms)"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def ray_serving(python: str) -> Iterator[str]:
    """Ray Serve with a no-op, and its address."""
    port = free_port()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([python, "-c", RAY, str(port)], text=True, **pipes)
    assert process.stdout is not None
    while "serving" not in process.stdout.readline():
        assert process.poll() is None, "Ray Serve did not start"
    try:
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.communicate("")


def ray_serve(python: str, seconds: float) -> None:
    with ray_serving(python) as address:
        for connections in (1, 32):
            measured = wrk(address, connections, seconds)
            print(f"no-op, {connections:3} connections: {shown('Ray Serve', [measured])}")


def bare_uvicorn() -> tuple[subprocess.Popen[bytes], str]:
    port = free_port()
    process = subprocess.Popen([sys.executable, "-c", BARE, str(port)])
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return process, f"http://127.0.0.1:{port}"
        except ConnectionRefusedError:
            time.sleep(0.05)


def cpu_s() -> dict[int, float]:
    """What each process of this program has used."""
    processes = psutil.Process().children(recursive=True)
    return {one.pid: sum(one.cpu_times()[:2]) for one in processes if one.is_running()}


def http_no_op(address: str, seconds: float, rounds: int) -> None:
    serve.run(nothing.bind(), name="nothing", route_prefix="/")
    process, bare = bare_uvicorn()
    try:
        for connections in (1, 32, 256):
            ours: list[Measured] = []
            theirs: list[Measured] = []
            used: dict[int, float] = {}
            for _ in range(rounds):
                before = cpu_s()
                ours.append(wrk(address, connections, seconds))
                theirs.append(wrk(bare, connections, seconds))
                used = {pid: used.get(pid, 0.0) + now - before.get(pid, 0.0) for pid, now in cpu_s().items()}
            ratios = [one.per_second / other.per_second for one, other in zip(ours, theirs, strict=True)]
            bare_us = used.pop(process.pid) / sum(one.per_second * seconds for one in theirs) * 1e6
            front_us, replica_us = (
                one / sum(one.per_second * seconds for one in ours) * 1e6 for one in sorted(used.values())[:-3:-1]
            )
            print(
                f"no-op, {connections:3} connections: {shown('weft.serve', ours)}, {shown('bare uvicorn', theirs)}: "
                f"{statistics.median(ratios):.0%} (from {min(ratios):.0%} to {max(ratios):.0%}); CPU a request: "
                f"front {front_us:.0f} us, replica {replica_us:.0f} us, uvicorn {bare_us:.0f} us"
            )
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--skip-http", action="store_true")
    parser.add_argument("--ray-python")
    options = parser.parse_args()
    weft.init()
    address = None if options.skip_http else serve.start(http_options=serve.HTTPOptions(port=0, max_body_bytes=1 << 30))
    embedded(options.seconds, options.rounds, address)
    handle = serve.run(nothing.bind(), name="nothing", route_prefix="/")
    print(f"no-op by handle, {CLIENTS} threads: {rate(lambda: handle.remote().result(), options.seconds):.0f}/s")
    if address is not None and shutil.which("wrk"):
        http_no_op(address, options.seconds, options.rounds)
    serve.shutdown()
    weft.shutdown()
    if options.ray_python:
        ray_serve(options.ray_python, options.seconds)


if __name__ == "__main__":
    main()
