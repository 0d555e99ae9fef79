"""Functions and objects of users by name: a configuration in a checkpoint names them `module:name`."""

from __future__ import annotations

import importlib
from typing import Any

from weft.library.settings import SettingError

UNNAMED = "<nobody can import it>"


class UnknownEnvironment(ValueError):
    """No environment has this name; the message names the nearest."""


def importable_name(value: Any) -> str | None:
    """`module:name` of a class or function that other processes can import; None if they cannot."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    return None if not module or not name or "<" in name or module == "__main__" else f"{module}:{name}"


def named(value: Any, field: str) -> Any:
    """The thing itself where a `module:name` is given, such as by a checkpoint."""
    if not isinstance(value, str):
        return value
    if value == UNNAMED:
        raise SettingError(
            f"{field}: the checkpoint was saved with one that cannot be found by name; pass {field}=... again, or "
            "define it at the top of a module that can be imported"
        )
    module, colon, name = value.partition(":")
    found = getattr(importlib.import_module(module), name, None) if colon else None
    if found is None:
        raise SettingError(f"{field}: {value!r} names nothing; it must be module:name")
    return found
