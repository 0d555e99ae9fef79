"""Tensors passed a million times: does any process's memory grow, or the node's?

    python benchmarks/passes.py                                  # a million, some minutes
    python benchmarks/passes.py --passes 100000 --kib 256
    python benchmarks/passes.py --device                         # CUDA tensors

Each pass puts a tensor, an actor reads it, and its answer, another one, is read here. A row is printed at each tenth;
the run fails if at the end anything is more than `--slack-mib` above what it was after the first tenth, or, of what is
shared, above the node's object memory.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import torch

import weft

ROWS = 10
AT_ONCE = 100
STORE_BYTES = 300_000_000
"""Objects go through all of it before the first place is used again, so that a process comes to share all its pages."""


@weft.remote
class Member:
    def answer(self, tensor: Any) -> Any:
        return tensor + 1

    def held(self) -> dict[str, float]:
        return held()


def held() -> dict[str, float]:
    """Of this process."""
    sizes = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    row = {
        "MiB": int(sizes["RssAnon"].split()[0]) / 2**10,
        "shared MiB": int(sizes["RssShmem"].split()[0]) / 2**10,
        "files": float(len(os.listdir("/proc/self/fd"))),
        "mappings": float(Path("/proc/self/maps").read_bytes().count(b"\n")),
    }
    if torch.cuda.is_available():
        row["device MiB"] = torch.cuda.memory_allocated() / 2**20
    return row


def rows_of(member: Any) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, one in (("driver", held()), ("actor", weft.get(member.held.remote()))):
        found |= {f"{name}, {what}": value for what, value in one.items()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--passes", type=int, default=1_000_000)
    parser.add_argument("--kib", type=int, default=256)
    parser.add_argument("--device", action="store_true")
    parser.add_argument("--slack-mib", type=float, default=16)
    given = parser.parse_args()
    weft.init(num_cpus=2, object_store_memory=STORE_BYTES, num_gpus=1 if given.device else 0)
    member = Member.options(num_gpus=0.1 if given.device else 0).remote()
    tensor = torch.ones(given.kib * 256, device="cuda" if given.device else "cpu")
    began, first, last = time.perf_counter(), {}, {}
    for row in range(ROWS):
        for _ in range(given.passes // ROWS // AT_ONCE):
            answers = weft.get([member.answer.remote(tensor) for _ in range(AT_ONCE)])
            if float(answers[-1][-1]) != 2:
                raise SystemExit("an answer is wrong")
            del answers
        last = rows_of(member)
        first = first or last
        passes = given.passes // ROWS * (row + 1)
        told = "  ".join(f"{name} {value:,.0f}" for name, value in last.items())
        print(f"{passes:>10,} passes, {time.perf_counter() - began:7.0f} s: {told}", flush=True)
    weft.shutdown()
    shared_mib = STORE_BYTES / 2**20
    begun = {name: max(value, shared_mib) if "shared" in name else value for name, value in first.items()}
    grown = {name: last[name] - begun[name] for name in last if last[name] - begun[name] > given.slack_mib}
    if grown:
        raise SystemExit(f"grown by: {grown}")


if __name__ == "__main__":
    main()
