"""Mistakes that a type checker must find, one a line. Never run."""

from __future__ import annotations

import weft
from weft.actor import typed


@weft.remote
def add(a: int, b: int = 0) -> int:
    return a + b


class Account:
    @weft.method
    def deposit(self, amount: int) -> float:
        return float(amount)


account = typed(weft.remote(Account).remote())
words = weft.put("words")

add.remote("x")  # expected: call-overload
add.remote()  # expected: call-overload
add.remote(1, c=2)  # expected: call-overload
add.remote(words)  # expected: arg-type
add.remote(1, words)  # expected: arg-type
account.deposit.remote("x")  # expected: call-overload
account.deposit.remote(words)  # expected: arg-type
name: str = weft.get(add.remote(1))  # expected: assignment
weft.get(3)  # expected: call-overload
weft.wait(add.remote(1))  # expected: arg-type
weft.kill("actor")  # expected: arg-type
