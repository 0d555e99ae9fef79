"""A learner's weights for many readers: each version is published once, and copied once for each device.

>>> import numpy as np, weft
>>> from weft import train
>>> @weft.remote
... def total(weights):
...     version, state = weights.read()
...     return version, float(state["layer"].sum())
>>> weights = train.Weights()
>>> weights.publish({"layer": np.ones(3)})
1
>>> weft.get(total.remote(weights))
(1, 3.0)

Who reads takes the newest version:

1. In memory of the host: in place, by the engine, which brings one copy to each node, along a tree.
2. On the devices that have it: by IPC, without a copy.
3. On another device: the first reader there brings a copy and lends it to the others (WGT-1: one a device, as long as
   that reader lives; WGT-2: when it dies another takes its place). From another machine it comes by way of one copy in
   memory of the host, which travels as in 1.

The board, an actor, has the refs of the newest version alone. An older one goes with its last reader.
"""

from __future__ import annotations

import asyncio
from typing import Any

import weft
from weft.exceptions import GetTimeoutError, ObjectLostError
from weft.util import device_copies
from weft.util.device_copies import Place, Where

__all__ = ["Weights"]


class Weights:
    """Made by anyone, passed as an argument; ends with who has made it. Values are whatever can be put: a state dict of
    PyTorch, a tree of JAX, arrays of NumPy."""

    def __init__(self) -> None:
        self._board: Any = weft.remote(num_cpus=0)(_Board).remote()

    def publish(self, state: Any) -> int:
        """The new version's number, from 1 on. `state` is copied, so train on: on its device if it lies on one.

        It is in this process's memory of the device, and goes with the process."""
        ref = weft.put(state)
        return int(weft.get(self._board.publish.remote([ref], device_copies.where_of(ref))))

    def read(self, newer_than: int = 0, timeout_s: float | None = None) -> tuple[int, Any]:
        """(version, state) of the newest version; waits for one above `newer_than`. GetTimeoutError after `timeout_s`.

        The state is shared with all who read it: tensors of the host and arrays are safe from writes, tensors on a
        device must not be written. `model.load_state_dict(state)` copies them to the model."""
        found = weft.get(self._board.newest.remote(newer_than, timeout_s))
        if found is None:
            raise GetTimeoutError(f"no version of the weights above {newer_than} was published within {timeout_s} s")
        version, refs, where = found
        if where is None or device_copies.can_open(where):
            return version, weft.get(refs[0])
        return version, self._copied(version, refs[0], where)

    def _copied(self, version: int, original: Any, where: Where) -> Any:
        place, lost = device_copies.place_of_this_process(where), ""
        while True:
            own = device_copies.promise()
            refs, is_mine = weft.get(self._board.copy.remote(version, place, [own], lost))
            if not refs:
                return weft.get(original)
            if is_mine:
                return _made(own, refs[0])
            try:
                return weft.get(refs[0])
            except ObjectLostError:
                if not place[1]:
                    raise
                lost = refs[0].hex()


def _made(own: Any, source: Any) -> Any:
    try:
        device_copies.give(own, weft.get(source))
    except BaseException as error:
        device_copies.fail(own, error)
        raise
    return weft.get(own)


class _Board:
    def __init__(self) -> None:
        self._version = 0
        self._original: list[Any] = []
        self._where: Where | None = None
        self._copies: dict[Place, list[Any]] = {}
        self._came = asyncio.Condition()

    async def publish(self, refs: list[Any], where: Where | None) -> int:
        async with self._came:
            self._version += 1
            self._original, self._where, self._copies = refs, where, {}
            self._came.notify_all()
            return self._version

    async def newest(self, newer_than: int, timeout_s: float | None) -> tuple[int, list[Any], Where | None] | None:
        """None when there is none in time."""
        async with self._came:
            try:
                await asyncio.wait_for(self._came.wait_for(lambda: self._version > newer_than), timeout_s)
            except asyncio.TimeoutError:  # another class before Python 3.11
                return None
            return self._version, self._original, self._where

    async def copy(self, version: int, place: Place, offered: list[Any], lost: str) -> tuple[list[Any], bool]:
        """(the copy to read, False), or (what to make the offered one of, True); nothing when the version is old.

        `lost` is the copy that the reader could not read."""
        if version != self._version or self._where is None:
            return [], False
        machine, device = place
        known = self._copies.get(place)
        if known is not None and known[0].hex() != lost:
            return known, False
        if not device:
            return self._in_host_memory(self._where), False
        self._copies[place] = offered
        return (self._original if machine == self._where.machine else self._in_host_memory(self._where)), True

    def _in_host_memory(self, where: Where) -> list[Any]:
        place = (where.machine, "")
        if place not in self._copies:
            self._copies[place] = [device_copies.in_host_memory(self._original[0], where)]
        return self._copies[place]
