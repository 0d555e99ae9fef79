"""Keywords that a function does not have, answered with the right one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from weft.library.checks import did_you_mean

__all__ = ["answers_keywords"]

T = TypeVar("T", bound=Callable[..., Any])


def answers_keywords(**instead: str) -> Callable[[T], T]:
    """A decorator of a function or a class: its TypeError for an unknown keyword says what to write, as in `instead` or
    else the nearest one.

    >>> @answers_keywords(num_workers="write workers=2")
    ... def train(workers=1): ...
    >>> train(num_workers=2)
    Traceback (most recent call last):
    TypeError: train() has no 'num_workers': write workers=2
    >>> train(wokers=2)
    Traceback (most recent call last):
    TypeError: train() has no 'wokers'; did you mean 'workers'? It has workers
    """

    def decorated(target: T) -> T:
        if isinstance(target, type):
            target.__init__ = _checked(target.__init__, target.__name__, instead)  # type: ignore[misc]
            return target
        checked: T = _checked(target, target.__name__, instead)
        return checked

    return decorated


def _checked(function: Any, name: str, instead: dict[str, str]) -> Any:
    known = [each for each in inspect.signature(function).parameters if each != "self"]

    @functools.wraps(function)
    def checked(*args: Any, **keywords: Any) -> Any:
        for keyword in keywords:
            if keyword in instead and keyword not in known:
                raise TypeError(f"{name}() has no {keyword!r}: {instead[keyword]}")
            if keyword not in known:
                near = did_you_mean(keyword, known) or ";"
                raise TypeError(f"{name}() has no {keyword!r}{near} It has {', '.join(known)}")
        return function(*args, **keywords)

    return checked
