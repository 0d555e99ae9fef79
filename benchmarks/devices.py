"""Tensors on a CUDA device between processes: by CUDA IPC, through the host, and what the device and the link can do.

    python benchmarks/devices.py [--mb 1000] [--rounds 20]

Needs a GPU and PyTorch. Prints a table; every figure is the median of the rounds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import weft
from weft import train

ON_GPU: dict[str, Any] = {"num_gpus": 0.1, "num_cpus": 0}


@weft.remote(**ON_GPU)
class Member:
    def __init__(self, variables: dict[str, str] | None = None) -> None:
        os.environ.update(variables or {})
        torch.zeros(1, device="cuda")
        self.kept: Any = None

    def make(self, size: int) -> Any:
        made = torch.ones(size, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        return made

    def make_small(self) -> int:
        return 1

    def many(self, size: int, count: int) -> Any:
        return {
            f"weight{number}": torch.ones(size // count, dtype=torch.uint8, device="cuda") for number in range(count)
        }

    def publish(self, weights: train.Weights, size: int, count: int) -> float:
        """Milliseconds that the learner is held up."""
        if self.kept is None:
            self.kept = self.many(size, count)
        torch.cuda.synchronize()
        start = time.perf_counter()
        weights.publish(self.kept)
        return (time.perf_counter() - start) * 1e3

    def newest(self, weights: train.Weights) -> int:
        return self.last(weights.read()[1])

    def join(self, meeting: train.Meeting) -> None:
        self.kept = meeting.join(0)

    def all_reduce(self, size: int) -> float:
        """Microseconds each, of a group of one: what Weft and NCCL add to nothing."""
        tensor = torch.ones(size // 4, device="cuda")
        return median_ms(50, lambda: self.kept.all_reduce(tensor)) * 1e3

    def last(self, value: Any) -> int:
        if isinstance(value, int):
            return value
        if isinstance(value, dict):
            value = value[next(reversed(value))]
        return int(value[-1].item())


def median_ms(rounds: int, act: Callable[[], Any], prepare: Callable[[], Any] = lambda: None) -> float:
    times = []
    for _ in range(rounds + 2):
        held = prepare()
        torch.cuda.synchronize()
        start = time.perf_counter()
        made = act() if held is None else act(held)  # type: ignore[call-arg]
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3)
        del made, held
    return statistics.median(times[2:])


def ready(ref: Any) -> Any:
    weft.wait([ref])
    return ref


moved_bytes = 0


def show(name: str, ms: float, moves: bool = True) -> None:
    rate = f"{moved_bytes / ms / 1e6:9.1f} GB/s" if moves else ""
    print(f"  {name:66} {ms:10.3f} ms {rate}", flush=True)


def link(size: int, rounds: int) -> None:
    source, target = (
        torch.ones(size, dtype=torch.uint8, device="cuda"),
        torch.empty(size, dtype=torch.uint8, device="cuda"),
    )
    pinned = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    print("the device and its link")
    show("copy within the device", median_ms(rounds, lambda: target.copy_(source)))
    show("device to pinned memory", median_ms(rounds, lambda: pinned.copy_(source, non_blocking=True)))
    show("pinned memory to device", median_ms(rounds, lambda: target.copy_(pinned, non_blocking=True)))
    other = torch.cuda.Stream()
    second = torch.empty(size, dtype=torch.uint8, pin_memory=True)

    def both() -> None:
        pinned.copy_(source, non_blocking=True)
        with torch.cuda.stream(other):
            target.copy_(second, non_blocking=True)

    show("both at once, each way", median_ms(rounds, both))


def puts(size: int, rounds: int, reader: Any) -> None:
    print("put by the driver, a copy within the device")
    mine = torch.ones(size, dtype=torch.uint8, device="cuda")
    show("put", median_ms(rounds, lambda: weft.put(mine)))
    show("put, and read by an actor", median_ms(rounds, lambda: weft.get(reader.last.remote(weft.put(mine)))))


def broadcast(size: int, rounds: int) -> None:
    print("weights of a learner, a state dict of 500 tensors, to 4 actors on its GPU")
    learner, weights = Member.remote(), train.Weights()
    actors = [Member.remote() for _ in range(4)]
    published: list[float] = []

    def publish() -> bool:
        published.append(weft.get(learner.publish.remote(weights, size, 500)))
        return True

    read = median_ms(rounds, lambda _: weft.get([actor.newest.remote(weights) for actor in actors]), publish)  # type: ignore[misc]
    show("publish, a copy within the device", statistics.median(published))
    show("all four have read it", read)
    one = median_ms(rounds, lambda: weft.get(actors[0].newest.remote(weights)))
    show("one reads it", one)
    group = Member.remote()
    weft.get(group.join.remote(train.Meeting(1, backend="nccl")))
    for bytes_ in (4, size):
        us = weft.get(group.all_reduce.remote(bytes_))
        show(f"Group.all_reduce by NCCL, one member, {bytes_} bytes", us / 1e3, moves=False)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mb", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    global moved_bytes
    size, rounds = given.mb * 1_000_000, given.rounds
    moved_bytes = size
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {given.mb} MB, median of {rounds}")

    link(size, rounds)
    torch.cuda.empty_cache()
    weft.init(num_cpus=4, num_gpus=1)
    maker, reader = Member.remote(), Member.remote()
    apart = Member.remote({"WEFT_DEVICE_IPC": "0"})
    weft.get([member.last.remote(1) for member in (maker, reader, apart)])
    print("between processes, by CUDA IPC")
    show(
        "a call of an actor with a number, and back",
        median_ms(rounds, lambda: weft.get(reader.last.remote(1))),
        moves=False,
    )
    show(
        "a tensor that an actor holds, to another actor, which reads its last byte",
        median_ms(rounds, lambda ref: weft.get(reader.last.remote(ref)), lambda: ready(maker.make.remote(size))),  # type: ignore[misc]
    )
    show(
        "the same, to the driver",
        median_ms(rounds, lambda ref: weft.get(ref)[-1].item(), lambda: ready(maker.make.remote(size))),  # type: ignore[misc]
    )
    show(
        "made by one actor and read by another: both calls and the kernel",
        median_ms(rounds, lambda: weft.get(reader.last.remote(maker.make.remote(size)))),
    )
    show(
        "a state dict of 500 tensors that an actor holds, to another actor",
        median_ms(rounds, lambda ref: weft.get(reader.last.remote(ref)), lambda: ready(maker.many.remote(size, 500))),  # type: ignore[misc]
    )
    puts(size, rounds, reader)
    broadcast(size, rounds)
    print("through memory of the host")
    show(
        "device, host, device: an actor that may not open it",
        median_ms(rounds, lambda ref: weft.get(apart.last.remote(ref)), lambda: ready(maker.make.remote(size))),  # type: ignore[misc]
    )
    blind = weft.remote(num_cpus=0)(lambda value: int(value[-1]))
    weft.get(blind.remote(torch.zeros(1)))
    show(
        "device, host: a task that sees no GPU",
        median_ms(rounds, lambda ref: weft.get(blind.remote(ref)), lambda: ready(maker.make.remote(size))),  # type: ignore[misc]
    )
    weft.shutdown()


if __name__ == "__main__":
    main()
