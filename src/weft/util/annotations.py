"""Decorators that say how settled an API is. They add a note to the docstring and change nothing else.

>>> @PublicAPI(stability="beta")
... def f(): "Does it."
>>> f.__doc__.splitlines()[0]
'Does it.'
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["Deprecated", "DeveloperAPI", "PublicAPI", "RayDeprecationWarning", "WeftDeprecationWarning"]

T = TypeVar("T")


class WeftDeprecationWarning(DeprecationWarning):
    """Something is on its way out."""


RayDeprecationWarning = WeftDeprecationWarning


def PublicAPI(*args: Any, **kwargs: Any) -> Any:
    """For users; `stability` is "stable", "beta" or "alpha"."""
    stability = kwargs.get("stability", "stable")
    if stability not in ("stable", "beta", "alpha"):
        raise ValueError(f"stability must be 'stable', 'beta' or 'alpha', but got {stability!r}")
    return _noted(args, f"PublicAPI ({stability}).")


def DeveloperAPI(*args: Any, **kwargs: Any) -> Any:
    """For those who build on it; may change between minor versions."""
    return _noted(args, "DeveloperAPI: may change between minor versions.")


def Deprecated(*args: Any, message: str = "", warning: bool = False) -> Any:
    """On its way out; with `warning`, each use says so."""

    def decorate(target: T) -> T:
        noted: T = _note(target, f"Deprecated. {message}".strip())
        if not warning:
            return noted
        if isinstance(target, type):  # it stays the class that it is: making an instance says so
            target.__init__ = _warned(target.__init__, message, target.__qualname__)  # type: ignore[misc]
            return noted
        warned: T = _warned(noted, message)
        return warned

    return decorate(args[0]) if args else decorate


def _noted(args: tuple[Any, ...], note: str) -> Any:
    return _note(args[0], note) if args and callable(args[0]) else lambda target: _note(target, note)


def _note(target: T, note: str) -> T:
    target.__doc__ = f"{target.__doc__ or ''}\n\n{note}".strip()
    return target


def _warned(target: Any, message: str, name: str = "") -> Any:
    call: Callable[..., Any] = target
    name = name or getattr(call, "__qualname__", repr(call))

    @functools.wraps(call)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        warnings.warn(f"{name} is deprecated. {message}".strip(), WeftDeprecationWarning, stacklevel=2)
        return call(*args, **kwargs)

    return wrapper
