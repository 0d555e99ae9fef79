"""Mistakes that a type checker must find, one a marked line. Checked by test_types.py; never run."""

from __future__ import annotations

import weft


@weft.remote
def square(x: int, *, scale: float = 1.0) -> float:
    return x * x * scale


square.remote("three")  # wrong
square.remote()  # wrong
square.remote(3, size=1)  # wrong
text: str = weft.get(square.remote(3))  # wrong
weft.wait(square.remote(3))  # wrong
weft.kill("actor")  # wrong
