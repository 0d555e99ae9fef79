"""Checks of what users say, where they say it: one wording each, with what was said and what was probably meant.

Each takes the name of a setting and its value, and raises `error`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from weft._lazy import nearest

__all__ = ["above", "at_least", "at_most", "between", "did_you_mean", "is_number", "one_of"]


def is_number(value: Any) -> bool:
    """True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def did_you_mean(name: Any, known: Iterable[Any], cutoff: float = 0.6) -> str:
    """The end of a message, or nothing.

    >>> did_you_mean("tanhh", ("tanh", "relu"))
    "; did you mean 'tanh'?"
    """
    near = nearest(str(name), map(str, known), cutoff)
    return f"; did you mean {near!r}?" if near else ""


def _number(name: str, value: Any, error: type[Exception]) -> None:
    """What has no order beside a number would be a TypeError without a name."""
    if isinstance(value, str) or value is None:
        raise error(f"{name} must be a number, but got {value!r}")


def at_least(name: str, value: Any, least: float, error: type[Exception] = ValueError) -> None:
    """
    >>> at_least("workers", 0, 1)
    Traceback (most recent call last):
    ValueError: workers must be at least 1, but got 0
    """
    _number(name, value, error)
    if not value >= least:
        raise error(f"{name} must be at least {least}, but got {value!r}")


def at_most(name: str, value: Any, most: float, error: type[Exception] = ValueError) -> None:
    """
    >>> at_most("gamma", 2, 1)
    Traceback (most recent call last):
    ValueError: gamma must be at most 1, but got 2
    """
    _number(name, value, error)
    if not value <= most:
        raise error(f"{name} must be at most {most}, but got {value!r}")


def above(name: str, value: Any, bound: float = 0, error: type[Exception] = ValueError) -> None:
    """
    >>> above("timeout_s", 0.0)
    Traceback (most recent call last):
    ValueError: timeout_s must be positive, but got 0.0
    """
    _number(name, value, error)
    if not value > bound:
        raise error(f"{name} must be {'positive' if bound == 0 else f'more than {bound}'}, but got {value!r}")


def between(name: str, value: Any, least: float, most: float, error: type[Exception] = ValueError) -> None:
    """
    >>> between("rank", 4, 0, 3)
    Traceback (most recent call last):
    ValueError: rank must be from 0 to 3, but got 4
    """
    _number(name, value, error)
    if not least <= value <= most:
        raise error(f"{name} must be from {least} to {most}, but got {value!r}")


def one_of(name: str, value: Any, choices: Collection[Any], error: type[Exception] = ValueError) -> None:
    """
    >>> one_of("mode", "mni", ("min", "max"))
    Traceback (most recent call last):
    ValueError: mode must be 'min' or 'max', but got 'mni'; did you mean 'min'?
    """
    if value not in choices:
        listed = " or ".join(map(repr, choices)) if len(choices) == 2 else f"one of {', '.join(map(str, choices))}"
        raise error(f"{name} must be {listed}, but got {value!r}{did_you_mean(value, choices)}")
