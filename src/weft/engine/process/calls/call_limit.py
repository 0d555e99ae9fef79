"""`max_calls`: a worker runs a function so many times, then makes room for a fresh one; for functions that leak."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import _native


class LimitedCalls:
    """The function as its workers run it: the last call that one may run has it retire, once that is answered."""

    def __init__(self, function: Callable[..., Any], most: int) -> None:
        self._function = function
        self._left = most

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._left -= 1
        if self._left == 0:
            _native.retire_worker()
        return self._function(*args, **kwargs)
