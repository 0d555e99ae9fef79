"""Keywords that a function does not have, and attributes that an object does not have, answered with the right one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from weft.library.checks import did_you_mean

__all__ = ["answers_attributes", "answers_keywords"]

T = TypeVar("T", bound=Callable[..., Any])
C = TypeVar("C", bound=type)


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


def answers_attributes(otherwise: str = "", /, **instead: str) -> Callable[[C], C]:
    """A decorator of a class: its AttributeError says what to write, as in `instead`, or names the nearest attribute
    there is, or says `otherwise`.

    >>> @answers_attributes(run="write fit()")
    ... class Trainer:
    ...     def fit(self): ...
    >>> Trainer().run
    Traceback (most recent call last):
    AttributeError: 'Trainer' object has no attribute 'run': write fit()
    >>> Trainer().fitt
    Traceback (most recent call last):
    AttributeError: 'Trainer' object has no attribute 'fitt'; did you mean 'fit'?
    """

    def decorated(cls: C) -> C:
        cls.__getattr__ = unknown  # type: ignore[attr-defined]
        return cls

    def unknown(self: object, name: str) -> Any:
        text = f"{type(self).__name__!r} object has no attribute {name!r}"
        if name.startswith("_"):
            raise AttributeError(text)
        known = [each for each in dir(type(self)) if each[0] != "_"]
        said = f": {instead[name]}" if name in instead else did_you_mean(name, known)
        raise AttributeError(text + (said or (f": {otherwise}" if otherwise else "")))

    return decorated


_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _checked(function: Any, name: str, instead: dict[str, str]) -> Any:
    parameters = inspect.signature(function).parameters
    known = [each for each in parameters if each != "self"]
    by_position = [each for each, one in parameters.items() if one.kind in _BY_POSITION]

    @functools.wraps(function)
    def checked(*args: Any, **keywords: Any) -> Any:
        if len(args) > len(by_position):
            first = ", ".join(each for each in by_position if each != "self")
            rest = ", ".join(f"{each}=" for each in known if each not in by_position)
            raise TypeError(f"{name}() takes {first} by position; name the others: {rest}")
        for keyword in keywords:
            if keyword in instead and keyword not in known:
                raise TypeError(f"{name}() has no {keyword!r}: {instead[keyword]}")
            if keyword not in known:
                near = did_you_mean(keyword, known) or ";"
                raise TypeError(f"{name}() has no {keyword!r}{near} It has {', '.join(known)}")
        return function(*args, **keywords)

    return checked
