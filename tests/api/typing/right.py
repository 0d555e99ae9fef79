"""Programs that a type checker must accept, with the types that it must see. Checked by test_types.py; never run."""

from __future__ import annotations

from typing import Any

from typing_extensions import assert_type

import weft
from weft import ObjectRef


@weft.remote
def square(x: int, *, scale: float = 1.0) -> float:
    return x * x * scale


class PlainCounter:
    def __init__(self, start: int = 0) -> None:
        self.value = start

    def add(self, amount: int) -> int:
        self.value += amount
        return self.value


# Not as a decorator: mypy does not look at what a class decorator returns.
Counter = weft.remote(PlainCounter)


def functions() -> None:
    ref = square.remote(3, scale=0.5)
    assert_type(ref, ObjectRef[float])
    assert_type(weft.get(ref), float)
    assert_type(weft.get([ref, ref], timeout=1), list[float])
    assert_type(square.options(num_cpus=2).remote(3), ObjectRef[float])


def objects() -> None:
    assert_type(weft.put("text"), ObjectRef[str])
    ready, rest = weft.wait([weft.put(1)], num_returns=1, timeout=0.5)
    assert_type(ready, list[ObjectRef[int]])
    assert_type(rest, list[ObjectRef[int]])


def actors() -> None:
    counter = Counter.remote(3)
    value: Any = weft.get(counter.add.remote(4))
    weft.kill(counter, no_restart=True)
    found = weft.get_actor("name", namespace="space")
    weft.get([found.add.remote(1), value])


def sessions() -> None:
    with weft.init(num_cpus=2) as context:
        address: str = context["address"]
        print(address, weft.is_initialized(), weft.cluster_resources()["CPU"])
    weft.shutdown()
