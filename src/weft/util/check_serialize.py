"""Says whether a value can be sent to another process, and if not, which part of it is to blame.

>>> is_serializable, failures = inspect_serializability({"a": 1}, name="config")
====================================
Checking Serializability of {'a': 1}
====================================
>>> is_serializable
True
"""

from __future__ import annotations

import sys
from typing import Any, TextIO

from weft.values import culprit
from weft.values.culprit import Culprit as FailureTuple

__all__ = ["FailureTuple", "inspect_serializability"]


def inspect_serializability(
    base_obj: Any, name: str | None = None, depth: int = 3, print_file: TextIO | None = None
) -> tuple[bool, set[FailureTuple]]:
    """(whether it can be pickled, its innermost failing parts). Prints the way to each; `depth` bounds the search.

    A failing part has `obj`, `name`, `parent` and `path`.

    >>> import io, threading
    >>> found, failures = inspect_serializability({"lock": threading.Lock()}, print_file=io.StringIO())
    >>> found, len(failures)
    (False, 1)
    """
    name = name or getattr(base_obj, "__qualname__", None) or repr(base_obj)
    out = print_file or sys.stdout
    title = f"Checking Serializability of {base_obj!r}"
    print("=" * min(len(title), 100), title, "=" * min(len(title), 100), sep="\n", file=out)
    failures: list[FailureTuple] = []
    reason = culprit.failure_of(base_obj)
    if reason:
        print(f"Serialization FAILED for {name!r}: {reason}", file=out)
        _descend(FailureTuple(base_obj, name, None, name, reason), depth, out, failures, {id(base_obj)})
        _report(base_obj, name, failures, out)
    unique = {id(failure.obj): failure for failure in failures}
    return not reason, _as_set(list(unique.values()))


def _descend(
    of: FailureTuple, depth: int, out: TextIO, failures: list[FailureTuple], seen: set[int], indent: str = "    "
) -> None:
    found = False
    for step, name, child in culprit.children(of.obj) if depth else ():
        if id(child) in seen:
            continue
        reason = culprit.failure_of(child)
        if not reason:
            continue
        seen.add(id(child))
        found = True
        qualname = getattr(child, "__qualname__", name)
        print(f"{indent}{of.path + step} fails, {culprit.type_name(child)} {qualname!r}: {reason}", file=out)
        inner = FailureTuple(child, name, of.obj, of.path + step, reason)
        _descend(inner, depth - 1, out, failures, seen, indent + "    ")
    if not found:
        failures.append(of)


def _report(base_obj: Any, name: str, failures: list[FailureTuple], out: TextIO) -> None:
    for failure in failures:
        print(f"Culprit: {failure.path} of type {culprit.type_name(failure.obj)}: {failure.reason}", file=out)
    if len(failures) == 1 and failures[0].obj is base_obj:
        print(
            f"WARNING: {name!r} fails as a whole, none of its parts does. Look at its __reduce__ or __getstate__, or "
            "call inspect_serializability() on what they return.",
            file=out,
        )


def _as_set(failures: list[FailureTuple]) -> set[FailureTuple]:
    result: set[FailureTuple] = set()
    for failure in failures:
        try:
            result.add(failure)
        except TypeError:  # the culprit or its parent defines __eq__ without __hash__
            result.add(failure._replace(obj=_Unhashable(failure.obj), parent=_Unhashable(failure.parent)))
    return result


class _Unhashable:
    """Stands for a culprit that cannot be in a set; `value` is it."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return repr(self.value)
