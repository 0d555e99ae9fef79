"""Mistakes that a type checker must find, one a line. Never run."""

from __future__ import annotations

import weft


@weft.remote
def add(a: int, b: int = 0) -> int:
    return a + b


add.remote("x")  # expected: arg-type
add.remote()  # expected: call-arg
add.remote(1, c=2)  # expected: call-arg
name: str = weft.get(add.remote(1))  # expected: assignment
weft.get(3)  # expected: call-overload
weft.wait(add.remote(1))  # expected: arg-type
weft.kill("actor")  # expected: arg-type
