"""Prints which public names have no docstring, one a line: `python public_names.py weft weft.util`."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from types import ModuleType


def undocumented(module: ModuleType) -> Iterator[str]:
    """Functions, classes, and the methods and properties of classes; those of other packages are theirs to document."""
    if not module.__doc__:
        yield module.__name__
    for name in getattr(module, "__all__", None) or vars(module):
        value = getattr(module, name)
        if name.startswith("_") or not callable(value) or not is_ours(value):
            continue
        if not is_documented(value):
            yield f"{module.__name__}.{name}"
        elif inspect.isclass(value):
            yield from (f"{module.__name__}.{name}.{member}" for member in undocumented_members(value))


def is_ours(value: object) -> bool:
    return (getattr(value, "__module__", None) or "").split(".")[0] == "weft"


def is_documented(value: object) -> bool:
    """A dataclass without a docstring has one that is its signature."""
    text = vars(value).get("__doc__") if inspect.isclass(value) else inspect.getdoc(value)
    return bool(text) and not text.startswith(f"{getattr(value, '__name__', '')}(")


def undocumented_members(cls: type) -> Iterator[str]:
    """What overrides a method has that method's docstring."""
    for name, member in vars(cls).items():
        is_shown = isinstance(member, property | staticmethod | classmethod) or inspect.isfunction(member)
        if is_shown and not name.startswith("_") and not inspect.getdoc(getattr(cls, name)):
            yield name


if __name__ == "__main__":
    for each in sys.argv[1:]:
        print(*undocumented(importlib.import_module(each)), sep="\n")
