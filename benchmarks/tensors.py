"""`put` and `get` of tensors, JAX arrays and Polars frames beside NumPy's, in one run.

    python benchmarks/tensors.py
    python benchmarks/tensors.py --mib 256 --rounds 7

All values have the same number of bytes. They take turns, each round another first; a figure is the least of the
rounds, since whatever else the machine does can only add to it. Libraries that are not installed are left out. "one
element" is `get` and a write to one element, of NumPy with `writable=True`. "state dict" is 500 tensors, put and then
read by four actors; beside it stands the copy of as many bytes, which is NumPy's `put`.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import weft

TENSORS = 500
ACTORS = 4


def makers(count: int) -> dict[str, Callable[[], Any]]:
    """A value of `count` floats of 4 bytes, of each library that is here."""
    made: dict[str, Callable[[], Any]] = {"numpy": lambda: np.ones(count, np.float32)}
    if importlib.util.find_spec("torch"):
        import torch

        made["torch"] = lambda: torch.ones(count)
    if importlib.util.find_spec("jax"):
        import jax.numpy as jnp

        made["jax"] = lambda: jnp.ones(count, jnp.float32)
    if importlib.util.find_spec("polars"):
        import polars as pl

        made["polars"] = lambda: pl.DataFrame({"x": np.ones(count, np.float32)})
    return made


@weft.remote
class Reader:
    def read(self, refs: list[Any]) -> int:
        return len(weft.get(refs[0]))


def write_one(ref: Any, is_tensor: bool) -> None:
    value = weft.get(ref) if is_tensor else weft.get(ref, writable=True)
    value[7] = 2


def seconds(run: Callable[[], object]) -> tuple[float, Any]:
    began_s = time.perf_counter()
    result = run()
    return time.perf_counter() - began_s, result


def measure(values: dict[str, Any], states: dict[str, Any], rounds: int) -> dict[tuple[str, str], float]:
    readers = [Reader.remote() for _ in range(ACTORS)]
    weft.get([reader.read.remote([weft.put(states)]) for reader in readers])  # imports torch
    best: dict[tuple[str, str], float] = {}

    def note(what: str, name: str, run: Callable[[], object]) -> Any:
        took_s, result = seconds(run)
        best[what, name] = min(best.get((what, name), took_s), took_s)
        return result

    def fill(dtype: Any) -> None:
        array = weft.empty(len(values["numpy"]), dtype)
        array[:] = 1
        note("put of empty", "torch" if type(dtype).__module__ == "torch" else "numpy", lambda: weft.put(array))

    def pass_on() -> None:
        ref = weft.put(states)
        weft.get([reader.read.remote([ref]) for reader in readers])

    names = list(values)
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            value = values[name]
            ref = note("put", name, lambda value=value: weft.put(value))
            note("get", name, lambda ref=ref: weft.get(ref))
            if name in ("numpy", "torch"):
                note("one element", name, lambda ref=ref, name=name: write_one(ref, name == "torch"))
            del ref
        fill(np.float32)
        if states:
            import torch

            fill(torch.float32)
            note("state dict", "torch", pass_on)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mib", type=int, default=1024, help="size of each value")
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    count = asked.mib * 2**20 // 4
    values = {name: make() for name, make in makers(count).items()}
    states = {}
    if "torch" in values:
        import torch

        states = {f"layer{number}": torch.ones(count // TENSORS) for number in range(TENSORS)}
    with weft.init(num_cpus=2, object_store_memory=asked.mib * 2**20 * 4):
        best = measure(values, states, asked.rounds)
    print(f"{asked.mib} MiB a value, least of {asked.rounds} rounds")
    for (what, name), took_s in best.items():
        copy_s = best["put", "numpy"]
        beside = f"  {copy_s / took_s:6.0%} of numpy's rate" if what == "put" else ""
        if what == "state dict":
            beside = f"  numpy's put + {(took_s - copy_s) * 1e3:.1f} ms"
        print(f"{what:14} {name:8} {took_s * 1e3:10.3f} ms{beside}")


if __name__ == "__main__":
    main()
