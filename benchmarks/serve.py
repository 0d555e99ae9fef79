"""weft.serve's figures: states served by handle and over HTTP, and a no-op beside bare uvicorn.

    python benchmarks/serve.py [--seconds 3] [--skip-http] [--ray-python PYTHON_WITH_RAY_SERVE]

The embedded cases are those of Table 3 of the Ray paper: clients send batches of 64 states, of 4 KB to a model that
takes 10 ms and of 100 KB to one that takes 5 ms; the bound is what the model alone could do. HTTP needs `wrk`.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import numpy as np

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


def embedded(seconds: float, address: str | None) -> None:
    for label, state_bytes, duration_s in (("4 KB", 4096, 0.010), ("100 KB", 102_400, 0.005)):
        handle = serve.run(Model.bind(duration_s), name="model", route_prefix="/model")
        states = np.random.default_rng(0).random((BATCH, state_bytes // 4), dtype=np.float32)
        by_handle = BATCH * rate(lambda: handle.remote(states).result(), seconds)  # noqa: B023
        bound = BATCH / duration_s
        print(
            f"{label:>7} states, {duration_s * 1000:.0f} ms: {by_handle:8.0f}/s by handle, "
            f"{by_handle / bound:.0%} of {bound:.0f}/s"
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


def wrk(address: str, connections: int, seconds: float) -> tuple[float, str, str]:
    """(requests a second, median, 99th percentile)"""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "--latency", address]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "Non-2xx" not in text, text
    found = [re.search(pattern, text) for pattern in (r"Requests/sec:\s+([\d.]+)", r"50%\s+(\S+)", r"99%\s+(\S+)")]
    per_second, median, worst = (one.group(1) for one in found if one)
    return float(per_second), median, worst


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ray_serve(python: str, seconds: float) -> None:
    port = free_port()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([python, "-c", RAY, str(port)], text=True, **pipes)
    assert process.stdout is not None
    while "serving" not in process.stdout.readline():
        assert process.poll() is None, "Ray Serve did not start"
    for connections in (1, 32):
        per_second, median, worst = wrk(f"http://127.0.0.1:{port}/", connections, seconds)
        print(f"no-op, {connections:3} connections: Ray Serve {per_second:7.0f}/s (median {median}, p99 {worst})")
    process.communicate("")


def bare_uvicorn() -> tuple[subprocess.Popen[bytes], str]:
    port = free_port()
    process = subprocess.Popen([sys.executable, "-c", BARE, str(port)])
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return process, f"http://127.0.0.1:{port}"
        except ConnectionRefusedError:
            time.sleep(0.05)


def http_no_op(address: str, seconds: float) -> None:
    serve.run(nothing.bind(), name="nothing", route_prefix="/")
    process, bare = bare_uvicorn()
    try:
        for connections in (1, 32, 256):
            ours = wrk(address, connections, seconds)
            theirs = wrk(bare, connections, seconds)
            print(
                f"no-op, {connections:3} connections: weft.serve {ours[0]:7.0f}/s (median {ours[1]}, p99 {ours[2]}), "
                f"bare uvicorn {theirs[0]:7.0f}/s (median {theirs[1]}, p99 {theirs[2]}): {ours[0] / theirs[0]:.0%}"
            )
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--skip-http", action="store_true")
    parser.add_argument("--ray-python")
    options = parser.parse_args()
    weft.init()
    address = None if options.skip_http else serve.start(http_options=serve.HTTPOptions(port=0, max_body_bytes=1 << 30))
    embedded(options.seconds, address)
    handle = serve.run(nothing.bind(), name="nothing", route_prefix="/")
    print(f"no-op by handle, {CLIENTS} threads: {rate(lambda: handle.remote().result(), options.seconds):.0f}/s")
    if address is not None and shutil.which("wrk"):
        http_no_op(address, options.seconds)
    serve.shutdown()
    weft.shutdown()
    if options.ray_python:
        ray_serve(options.ray_python, options.seconds)


if __name__ == "__main__":
    main()
