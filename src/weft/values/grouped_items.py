"""`_num_objects_per_yield=n`: a generator that yields tuples of n values, each of which is an object of its own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

OPTION = "_num_objects_per_yield"


def each_alone(function: Any, count: int) -> Callable[..., Any]:
    """The same generator function; it yields what is in the tuples, one by one."""
    if inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        async def yields_async(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            async for group in function(*args, **kwargs):
                for item in _checked(group, count, function):
                    yield item

        return yields_async
    if not inspect.isgeneratorfunction(function):
        raise ValueError(f"{OPTION}={count} is for generators, but {_name(function)} is none: it has no yield")

    @functools.wraps(function)
    def yields(*args: Any, **kwargs: Any) -> Iterator[Any]:
        for group in function(*args, **kwargs):
            yield from _checked(group, count, function)

    return yields


def _checked(group: Any, count: int, function: Any) -> Any:
    if not isinstance(group, tuple | list) or len(group) != count:
        has = f"{len(group)} values" if isinstance(group, tuple | list) else f"a {type(group).__name__}"
        raise ValueError(f"{_name(function)} must yield tuples of {count}, as {OPTION}={count} says, but yielded {has}")
    return group


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", function))
