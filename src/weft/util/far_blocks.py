"""Blocks of a device on another machine: a task there brings them to memory of the host, and its results travel as
arrays do.

Runs in drivers and workers, on the thread that reads the value. `weft.devices.reader` finds it by its name.
"""

from __future__ import annotations

from typing import Any

import weft
from weft._native import DeviceLost
from weft.devices import reader
from weft.devices.blocks import Block
from weft.exceptions import ObjectLostError
from weft.util.scheduling_strategies import NodeAffinitySchedulingStrategy


def _stage(address: str, token: bytes, mark: list[weft.ObjectRef[Any]]) -> list[tuple[str, Any]]:
    return [(block.driver, block.keeper) for block in reader.bring_to_host(address, token)]


def fetch(node: str, address: str, token: bytes, mark: weft.ObjectRef[Any]) -> list[Block]:
    """In memory of the host. ObjectLostError when the holder has ended."""
    there = NodeAffinitySchedulingStrategy(node, soft=False)
    stage = weft.remote(_stage).options(num_cpus=0, scheduling_strategy=there)
    try:
        brought = weft.get(stage.remote(address, token, [mark]))
    except DeviceLost as error:
        why = f"a tensor on a device of node {node[:8]} is gone: {error} From another node it is not made again."
        raise ObjectLostError(call_site=why) from error
    return [Block(driver, "", array.ctypes.data, array.nbytes, array) for driver, array in brought]
