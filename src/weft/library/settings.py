"""Typed settings: frozen dataclasses whose fields carry their documentation and their limits.

A field is declared with `setting(default, "what it is", above=0)`. `check_settings` compares every value with the
field's annotation and limits; `current_names` turns a dictionary of a user into arguments of the dataclass and raises
for a name that is not a field, with the nearest valid one.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal, Union

from weft._lazy import nearest
from weft.library import checks


class SettingError(ValueError):
    """A setting that does not exist, or whose value cannot be: the message names it and what it must be."""


def setting(
    default: Any,
    doc: str,
    *,
    above: float | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
    one_of: tuple[Any, ...] | None = None,
) -> Any:
    """A field of a settings dataclass: its default, its documentation, its limits."""
    limits = {"above": above, "at_least": at_least, "at_most": at_most, "one_of": one_of}
    metadata = {"doc": doc, "limits": {name: limit for name, limit in limits.items() if limit is not None}}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def current_names(
    settings: type, given: Mapping[str, Any], old_names: Mapping[str, str], instead: Mapping[str, str]
) -> dict[str, Any]:
    """`given` by the names of the dataclass's fields; names of the classic library are understood too. `instead` says
    what to write for names of others for which there is no field."""
    known = {field.name for field in dataclasses.fields(settings)}
    current: dict[str, Any] = {}
    for given_name, value in given.items():
        name = given_name if given_name in known else old_names.get(given_name, given_name)
        if name not in known:
            if name in instead:
                raise SettingError(f"{settings.__name__} has no setting {name!r}: {instead[name]}")
            raise SettingError(_unknown(given_name, known, old_names, settings.__name__))
        if name in current:
            raise SettingError(f"{settings.__name__}: {name} is given twice, once by its older name")
        current[name] = value
    return current


def check_settings(settings: Any) -> None:
    """Raise SettingError for the first value that does not fit its field; lists become tuples where those are due."""
    hints = typing.get_type_hints(type(settings))
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        label = f"{type(settings).__name__}: {field.name}"
        expected = hints[field.name]
        if isinstance(value, list) and not _fits(value, expected) and _fits(_as_tuple(value), expected):
            value = _as_tuple(value)
            object.__setattr__(settings, field.name, value)
        if not _fits(value, expected):
            raise SettingError(
                f"{label} must be {_spelled(expected)}, but got {value!r} of type {type(value).__name__}"
            )
        _check_limits(label, value, field.metadata.get("limits", {}))


def documentation(settings: type) -> str:
    """One line a field: name, type, default, what it is."""
    hints = typing.get_type_hints(settings)
    lines = []
    for field in dataclasses.fields(settings):
        missing = field.default is dataclasses.MISSING
        default = "{}" if missing and field.default_factory is not dataclasses.MISSING else repr(field.default)
        lines.append(f"{field.name}: {_spelled(hints[field.name])} = {default}\n    {field.metadata.get('doc', '')}")
    return "\n".join(lines)


def _check_limits(label: str, value: Any, limits: Mapping[str, Any]) -> None:
    for check, limit in limits.items() if value is not None else ():
        for element in value if isinstance(value, tuple) and check != "one_of" else (value,):
            getattr(checks, check)(label, element, limit, SettingError)


def _as_tuple(value: list[Any]) -> tuple[Any, ...]:
    return tuple(_as_tuple(element) if isinstance(element, list) else element for element in value)


def _fits(value: Any, expected: Any) -> bool:
    if expected is Any:
        return True
    if expected is None or expected is type(None):
        return value is None
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if origin in (Union, types.UnionType):
        return any(_fits(value, choice) for choice in arguments)
    if origin is Literal:
        return value in arguments
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(element, arguments[0]) for element in value)
    if origin is not None:
        return callable(value) if origin is Callable else isinstance(value, origin)
    if expected is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and value == value
    if expected is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, expected)


def _spelled(expected: Any) -> str:
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if origin in (Union, types.UnionType):
        return " or ".join(_spelled(choice) for choice in arguments)
    if expected is type(None):
        return "None"
    if origin is tuple:
        return f"a tuple of {_spelled(arguments[0])}"
    return getattr(expected, "__name__", str(expected))


def _unknown(name: str, known: set[str], old_names: Mapping[str, str], owner: str) -> str:
    near = nearest(name, known | set(old_names), cutoff=0.5)
    if near is None:
        return f"{owner} has no setting {name!r}; the settings are {', '.join(sorted(known))}"
    return f"{owner} has no setting {name!r}; did you mean {old_names.get(near, near)!r}?"
