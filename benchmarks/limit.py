"""How many remote calls per second this machine allows at the very most.

Two processes, one ring each way in shared memory, pickled arguments and results, nothing else: no ids, no
references, no scheduling, no failures. `limit.c` is built with the C compiler when this runs.

    python benchmarks/limit.py
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sysconfig
import tempfile
import time
from pathlib import Path
from types import ModuleType

CALLS = 200_000


def build_ring(folder: Path) -> ModuleType:
    library = folder / "limit_ring.so"
    source = Path(__file__).with_name("limit.c")
    include = sysconfig.get_path("include")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", f"-I{include}", str(source), "-o", str(library)], check=True)
    spec = importlib.util.spec_from_file_location("limit_ring", library)
    assert spec
    assert spec.loader
    return importlib.util.module_from_spec(spec)


def answer(*_: object) -> bytes:
    return b"ok"


def measure(rounds: int = 3) -> dict[str, float]:
    """Calls per second, the best of `rounds`: many under way at once, and one at a time."""
    with tempfile.TemporaryDirectory() as folder:
        ring = build_ring(Path(folder))
    child = os.fork()
    if child == 0:
        ring.serve(answer)
        os._exit(1)
    pipelined = one_at_a_time = 0.0
    try:
        for _ in range(rounds):
            began = time.perf_counter()
            for _ in range(CALLS):
                ring.call(1)
            for _ in range(CALLS):
                ring.result()
            pipelined = max(pipelined, CALLS / (time.perf_counter() - began))
            began = time.perf_counter()
            for _ in range(CALLS // 10):
                ring.call(1)
                ring.result()
            one_at_a_time = max(one_at_a_time, CALLS / 10 / (time.perf_counter() - began))
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return {"pipelined": pipelined, "one_at_a_time": one_at_a_time}


if __name__ == "__main__":
    limit = measure()
    print(f"ring limit: {limit['pipelined']:,.0f} calls/s pipelined, {limit['one_at_a_time']:,.0f} one at a time")
