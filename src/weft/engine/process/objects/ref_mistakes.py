"""What people try with a ref that only its value can do: `ref + 1`, `len(ref)`, `for x in ref`, `float(ref)`.

Each says to take the value first. Refs stay what they were: hashable, true, equal to refs of the same object, and not
iterable for those who ask (there is no `__iter__`; a loop fails in `__getitem__`). Comparisons and attributes are the
native class's: a method in Python for them would make `ref in refs` and `ref.is_ready()` many times slower. It warns of
`ref == 1` and refuses `ref < 1`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft._native import ObjectRef

_BINARY = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "truediv": "/",
    "floordiv": "//",
    "mod": "%",
    "pow": "**",
    "matmul": "@",
    "and": "&",
    "or": "|",
    "xor": "^",
    "lshift": "<<",
    "rshift": ">>",
}
_OTHERS = {
    "len": "len(ref)",
    "getitem": "ref[...] or a loop over a ref",
    "setitem": "ref[...] = x",
    "neg": "-ref",
    "abs": "abs(ref)",
    "round": "round(ref)",
    "invert": "~ref",
    "int": "int(ref)",
    "float": "float(ref)",
    "index": "a ref in the place of an int",
}
_REMEDY = (
    "a ref names a value that is made elsewhere. Use weft.get(ref) for the value, or pass the ref to a task, "
    "which is given its value"
)


def install(cls: Any) -> None:
    """Put them on the class of refs."""
    for name, symbol in _BINARY.items():
        setattr(cls, f"__{name}__", _refusal(f"ref {symbol} x"))
        setattr(cls, f"__r{name}__", _refusal(f"x {symbol} ref"))
    for name, shown in _OTHERS.items():
        setattr(cls, f"__{name}__", _refusal(shown))
    cls.__bool__ = _is_true  # else it would ask __len__
    cls.__format__ = _formatted


def _refusal(shown: str) -> Callable[..., Any]:
    def refuse(self: ObjectRef[Any], *others: object) -> Any:
        raise TypeError(f"{shown} does not work: {_REMEDY}.")

    return refuse


def _is_true(self: ObjectRef[Any]) -> bool:
    return True


def _formatted(self: ObjectRef[Any], spec: str) -> str:
    if spec:
        raise TypeError(f"the format {spec!r} of a ref does not work: {_REMEDY}.")
    return str(self)
