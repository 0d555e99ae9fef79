"""Blocks of a device on another machine: a task there brings them to memory of the host, and its results travel as
arrays do. Another asks their holder where they are.

Runs in drivers and workers, on the thread that reads the value. `weft.devices.reader` finds it by its name.
"""

from __future__ import annotations

from typing import Any

import weft
from weft._native import DeviceLost
from weft.devices import reader, whereabouts
from weft.devices.blocks import Block
from weft.exceptions import WeftError
from weft.util.scheduling_strategies import NodeAffinitySchedulingStrategy


def _stage(address: str, token: bytes, mark: list[weft.ObjectRef[Any]]) -> list[tuple[str, Any]]:
    return [(block.driver, block.keeper) for block in reader.bring_to_host(address, token)]


def fetch(node: str, address: str, token: bytes, mark: weft.ObjectRef[Any]) -> list[Block]:
    """In memory of the host. DeviceLost when the holder has ended, or its node."""
    try:
        brought = weft.get(_there(_stage, node).remote(address, token, [mark]))
    except DeviceLost as error:
        raise DeviceLost(reader.GONE) from error
    except WeftError as error:
        if any(one["NodeID"] == node and one["Alive"] for one in weft.nodes()):
            raise
        raise DeviceLost(reader.GONE) from error
    return [Block(driver, "", array.ctypes.data, array.nbytes, array) for driver, array in brought]


def ask(node: str, address: str, token: bytes, timeout_s: float) -> dict[str, Any]:
    """What `whereabouts.ask_here` answers there."""
    answer: dict[str, Any] = weft.get(_there(whereabouts.ask_here, node).remote(address, token), timeout=timeout_s)
    return answer


def _there(function: Any, node: str) -> Any:
    strategy = NodeAffinitySchedulingStrategy(node, soft=False)
    return weft.remote(function).options(num_cpus=0, scheduling_strategy=strategy)
