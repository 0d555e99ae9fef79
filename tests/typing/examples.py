"""What a type checker must see of the public API. Never run: `assert_type` is checked by mypy and pyright."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
from typing_extensions import assert_type

import weft
from weft import ObjectRef
from weft.actor import typed


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


def refs_are_as_good_as_values() -> None:
    number = add.remote(1)
    assert_type(add.remote(number), ObjectRef[int])
    assert_type(add.remote(number, 2), ObjectRef[int])
    assert_type(add.remote(1, number), ObjectRef[int])
    assert_type(add.options(num_cpus=2).remote(number, number), ObjectRef[int])
    assert_type(weft.get(name_of.remote(add.remote(number))), str)


def results_come_as_they_are_ready() -> None:
    for value in weft.as_completed([add.remote(1), add.remote(2)]):
        assert_type(value, int)
    for ref in weft.as_completed([add.remote(1)], yield_obj_refs=True):
        assert_type(ref, ObjectRef[int])


class Account:
    @weft.method
    def deposit(self, amount: int, note: str = "") -> float:
        return float(amount)

    @weft.method(concurrency_group="io")
    def owner(self) -> str:
        return f"{self.deposit(1)}"


def methods_keep_their_signatures() -> None:
    account = typed(weft.remote(Account).remote())
    assert_type(account.deposit.remote(1, note="x"), ObjectRef[float])
    assert_type(account.deposit.remote(add.remote(1)), ObjectRef[float])
    assert_type(weft.get(account.owner.options(name="o").remote()), str)
    assert_type(Account().deposit(1), float)


async def refs_can_be_awaited() -> None:
    assert_type(await add.remote(1), int)
    async for value in weft.as_completed([add.remote(1)]):
        assert_type(value, int)
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
