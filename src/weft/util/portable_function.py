"""Functions that travel to many workers: pickled once here, loaded once in each of them.

A plain function without a closure is pickled at its first use and remembered; anything else may have changed since
then and is pickled anew. A large one goes through object memory, so that a call carries only its ref.

>>> unpack(pack(len))([1, 2])
2
"""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable
from typing import Any

import weft
from weft import cloudpickle

__all__ = ["Packed", "pack", "unpack"]

LARGEST_INLINE_BYTES = 16 * 1024
MOST_LOADED = 128
"""A worker forgets the functions that it has not run for longest."""

Packed = bytes | tuple[Any]
"""A pickle, or the ref of one in a tuple."""

_pickles: weakref.WeakKeyDictionary[Callable[..., Any], bytes] = weakref.WeakKeyDictionary()


def pack(function: Callable[..., Any]) -> Packed:
    """What `unpack` makes the function of, in any process. TypeError when it cannot be called or not be pickled."""
    if not callable(function):
        raise TypeError(f"expected a function, but got {function!r}")
    payload = _pickled(function)
    return payload if len(payload) <= LARGEST_INLINE_BYTES else (weft.put(payload),)


def unpack(packed: Packed) -> Callable[..., Any]:
    """The function, from this process's memory where it was loaded before."""
    return _load(packed) if isinstance(packed, bytes) else _load_ref(packed[0])


@functools.lru_cache(MOST_LOADED)
def _load(payload: bytes) -> Callable[..., Any]:
    function: Callable[..., Any] = cloudpickle.loads(payload)
    return function


@functools.lru_cache(MOST_LOADED)
def _load_ref(ref: Any) -> Callable[..., Any]:
    function: Callable[..., Any] = cloudpickle.loads(weft.get(ref))
    return function


def _pickled(function: Callable[..., Any]) -> bytes:
    if not is_constant(function):
        return cloudpickle.dumps_debug(function)
    payload = _pickles.get(function)
    if payload is None:
        payload = _pickles[function] = cloudpickle.dumps_debug(function)
    return payload


def is_constant(function: Callable[..., Any]) -> bool:
    """Whether it carries no state of its own that could change between two calls."""
    if isinstance(function, types.BuiltinFunctionType):
        return function.__self__ is None or isinstance(function.__self__, types.ModuleType)
    return isinstance(function, types.FunctionType) and not function.__closure__
