"""Finds which part of a value cannot be pickled, and the path to it: `args[0].db._lock`.

Used after a pickler has failed, never before, so it may be slow: it pickles the parts of the failed value, then the
parts of the part that fails, until a part has no failing part of its own. Buffers are left out of these trials.

>>> import threading
>>> find_culprit({"db": [threading.Lock()]}, "args[0]").path
"args[0]['db'][0]"
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, NamedTuple

from weft.values import serialize

_DEEPEST = 16
_MOST_CHILDREN = 1000


class Culprit(NamedTuple):
    """The innermost part that fails: itself, its name in its parent, the parent, the path from the root."""

    obj: Any
    name: str
    parent: Any
    path: str
    reason: str


def failure_of(value: object) -> str:
    """Why the value cannot be pickled; empty when it can."""
    try:
        with io.BytesIO() as file:
            serialize._Pickler(file, protocol=5, buffer_callback=lambda buffer: None).dump(value)
    except RecursionError:
        return "it is nested too deeply"
    except Exception as error:
        return str(error) or type(error).__name__
    return ""


def find_culprit(value: object, path: str, depth: int = _DEEPEST) -> Culprit:
    """The innermost failing part of a value that fails; the value itself when none of its parts does."""
    found = Culprit(value, path, None, path, failure_of(value))
    seen = {id(value)}
    for _ in range(depth):
        inner = _failing_child(found, seen)
        if inner is None:
            break
        found = inner
    return found


def _failing_child(of: Culprit, seen: set[int]) -> Culprit | None:
    for count, (step, name, child) in enumerate(children(of.obj)):
        if count >= _MOST_CHILDREN:
            return None
        if id(child) in seen or type(child) in serialize._PLAIN:
            continue
        seen.add(id(child))
        reason = failure_of(child)
        if reason:
            return Culprit(child, name, of.obj, of.path + step, reason)
    return None


def children(value: Any) -> Iterator[tuple[str, str, Any]]:
    """(step of the path, name, part) for each part that a pickler would write."""
    if isinstance(value, dict):
        for key, item in list(value.items()):
            yield f"[{_short(key)}]", str(key), item
            yield f".key({_short(key)})", str(key), key
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield f"[{index}]", str(index), item
    elif isinstance(value, set | frozenset):
        for item in list(value):
            yield f".element({_short(item)})", _short(item), item
    if callable(getattr(value, "__func__", None)) and hasattr(value, "__self__"):
        yield ".__self__", "__self__", value.__self__
        value = value.__func__
    if hasattr(value, "__code__") and hasattr(value, "__globals__"):
        yield from _function_parts(value)
    elif isinstance(value, type):
        yield from _class_parts(value)
    else:
        yield from _object_parts(value)


def _function_parts(function: Any) -> Iterator[tuple[str, str, Any]]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    for name, cell in cells:
        try:
            yield f".<closure>.{name}", name, cell.cell_contents
        except ValueError:  # an empty cell
            continue
    for name in _global_names(function.__code__):
        if name in function.__globals__:
            yield f".<global>.{name}", name, function.__globals__[name]
    for index, default in enumerate(function.__defaults__ or ()):
        yield f".<default {index}>", f"default {index}", default
    for name, default in (function.__kwdefaults__ or {}).items():
        yield f".<default {name}>", name, default


def _global_names(code: Any) -> list[str]:
    names = list(code.co_names)
    for constant in code.co_consts:
        if hasattr(constant, "co_names"):
            names += _global_names(constant)
    return names


def _class_parts(cls: type) -> Iterator[tuple[str, str, Any]]:
    for name, item in list(vars(cls).items()):
        if name in ("__dict__", "__weakref__", "__module__", "__doc__", "__qualname__"):
            continue
        inner = getattr(item, "__func__", None) or getattr(item, "fget", None) or item
        yield f".{name}", name, inner
    for base in cls.__bases__:
        if base is not object:
            yield f".<base {base.__name__}>", base.__name__, base


def _object_parts(value: Any) -> Iterator[tuple[str, str, Any]]:
    attributes = getattr(value, "__dict__", None)
    if isinstance(attributes, dict):
        for name, item in list(attributes.items()):
            yield f".{name}", str(name), item
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            try:
                yield f".{name}", name, getattr(value, name)
            except AttributeError:
                continue
    if type(value).__name__ == "partial" and hasattr(value, "func"):
        yield ".func", "func", value.func
        yield ".args", "args", value.args
        yield ".keywords", "keywords", value.keywords
    if type(value).__module__ == "__main__" or "<locals>" in type(value).__qualname__:
        yield ".<class>", type(value).__name__, type(value)


def _short(value: object) -> str:
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 40 else text[:37] + "..."


# ---- messages --------------------------------------------------------------------------------------


def type_name(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def explain(value: object, root: str, what: str, error: BaseException) -> TypeError:
    """The error for a person. `root` names the value in the path, `what` says whose it is ("of task f")."""
    culprit = find_culprit(value, root)
    text = f"Could not serialize {culprit.path} of type {type_name(culprit.obj)}{what}: {culprit.reason or error}."
    # A dict, a function or None has no state that a user could shape.
    if type(culprit.parent).__module__ != "builtins":
        holder = type_name(culprit.parent)
        text += f" The {holder} that holds it can leave it out with __getstate__ and make it anew with __setstate__."
    text += " Create it inside the task, or see weft.util.register_serializer()."
    return TypeError(text)
