"""Copies of a value that lies on devices, one a device: who has it open already lends it to the others there.

`weft.train.Weights` decides who makes which copy; here is what that takes of the engine.
Runs in drivers and workers, on the thread that publishes or reads.
"""

from __future__ import annotations

import pickle
import sys
from dataclasses import dataclass
from typing import Any

import weft
from weft import _native
from weft.devices import blocks, hooks, machine_id, whereabouts
from weft.devices import driver as drivers
from weft.exceptions import ObjectLostError
from weft.util.scheduling_strategies import NodeAffinitySchedulingStrategy

__all__ = [
    "Place",
    "Where",
    "can_open",
    "fail",
    "give",
    "in_host_memory",
    "place_of_this_process",
    "promise",
    "where_of",
]

Place = tuple[str, str]
"""(machine, device); the device is "" for memory of the host, which all devices of the machine's processes share."""


@dataclass(frozen=True)
class Where:
    """The devices that a value's blocks lie on, and whose they are."""

    driver: str
    machine: str
    node: str
    devices: tuple[str, ...]


def where_of(ref: weft.ObjectRef[Any]) -> Where | None:
    """Of what this process has put; None for a value in memory of the host."""
    if hooks.server is None:  # nothing of this process lies on a device
        return None
    found = whereabouts.seek(lambda: _native.get(ref))
    if found is None:
        return None
    row = whereabouts.ask(found)
    return Where(row["drivers"][0], found.machine, found.node, tuple(row["devices"]))


def can_open(where: Where) -> bool:
    """Whether this process reads the blocks where they lie."""
    return where.machine == machine_id.of() and set(where.devices) <= set(drivers.find(where.driver).devices())


def place_of_this_process(where: Where) -> Place:
    """Where this process wants its copy."""
    return machine_id.of(), next(iter(drivers.find(where.driver).devices()), "")


def in_host_memory(ref: weft.ObjectRef[Any], where: Where) -> weft.ObjectRef[Any]:
    """A copy in the object memory of the node whose devices have it; from there it travels as all objects do."""
    strategy = NodeAffinitySchedulingStrategy(where.node, soft=False)
    return weft.remote(_read).options(num_cpus=0, scheduling_strategy=strategy).remote([ref])


def _read(refs: list[Any]) -> Any:
    """In a worker that was given no device: what it reads comes to memory of the host."""
    return weft.get(refs[0])


def promise() -> weft.ObjectRef[Any]:
    """The ref of a copy that this process is going to give."""
    return _native.promise()


def give(ref: weft.ObjectRef[Any], value: Any) -> None:
    """Keep the promise, on the first device of this process."""
    device = "cuda:0" if "torch" in sys.modules and sys.modules["torch"].cuda.is_available() else None
    if device is None:
        _native.keep_promise(ref, value, b"")
        return
    with blocks.placing(device):
        _native.keep_promise(ref, value, b"")


def fail(ref: weft.ObjectRef[Any], error: BaseException) -> None:
    """Let those that wait for it know that it will not come."""
    why = f"who was to copy it to this device could not: {type(error).__name__}: {error}"
    _native.keep_promise(ref, None, b"E" + pickle.dumps(ObjectLostError(ref.hex(), None, why), protocol=5))
