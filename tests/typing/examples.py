"""What a type checker must see of the public API. Never run: `assert_type` is checked by mypy and pyright."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
from typing_extensions import assert_type

import weft
from weft import ObjectRef


@weft.remote
def add(a: int, b: int = 0) -> int:
    return a + b


@weft.remote
def name_of(number: int) -> str:
    return str(number)


@weft.remote(num_cpus=2)
def big(size: int) -> np.ndarray:
    return np.zeros(size)


class PlainCounter:
    def __init__(self, start: int = 0) -> None:
        self.value = start

    def add(self, amount: int) -> int:
        self.value += amount
        return self.value


# Not as a decorator: mypy does not look at what a class decorator returns.
Counter = weft.remote(PlainCounter)


def tasks_keep_their_signatures() -> None:
    assert_type(add.remote(1, b=2), ObjectRef[int])
    assert_type(weft.get(add.remote(1)), int)
    assert_type(weft.get([name_of.remote(1), name_of.remote(2)]), list[str])
    assert_type(weft.get(add.options(num_cpus=2).remote(1)), int)


def values_keep_their_types() -> None:
    assert_type(weft.put("x"), ObjectRef[str])
    assert_type(weft.get(weft.put(1.5)), float)
    ready, rest = weft.wait([weft.put(1)])
    assert_type(ready, list[ObjectRef[int]])
    assert_type(rest, list[ObjectRef[int]])


async def refs_can_be_awaited() -> None:
    assert_type(await add.remote(1), int)
    assert_type(await asyncio.gather(add.remote(1), name_of.remote(2)), tuple[int, str])


def the_rest_is_typed() -> None:
    assert_type(weft.is_initialized(), bool)
    assert_type(weft.cluster_resources(), dict[str, float])
    assert_type(weft.explain(weft.put(1)), str)


def actors_are_made_and_found() -> None:
    counter = Counter.remote(3)
    value: Any = weft.get(counter.add.remote(4))
    weft.kill(counter, no_restart=True)
    found = weft.get_actor("name", namespace="space")
    weft.get([found.add.remote(1), value])


def sessions_are_contexts() -> None:
    with weft.init(num_cpus=2) as context:
        address: str = context["address"]
        print(address, weft.is_initialized())
    weft.shutdown()
