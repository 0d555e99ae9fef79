"""Merges of a deferred frame by its own columns: each part with all of the other side, which is sent once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas
from pandas import DataFrame

from weft.pandas.frames import DeferredFrame, is_deferred, plan_of, wrap
from weft.pandas.methods import answer, only
from weft.pandas.parts import home
from weft.pandas.plans import Rows, Table, Told, UnsupportedError, gather, run, same_type, stored

KEYS = frozenset("biM")


@dataclass(frozen=True)
class Joined:
    how: str
    on: list[str]
    suffixes: Any

    def __call__(self, part: Any, right: Any) -> Any:
        return part.merge(right, how=self.how, on=self.on, suffixes=self.suffixes)


def join_part(joined: Joined, part: Any, right: Any) -> tuple[Any, Told]:
    """In a worker."""
    made = joined(part, right)
    return stored(made), Told(made.iloc[:0].copy(), len(made))


def merge(self: Any, right: Any, how: str = "inner", on: Any = None, **kwargs: Any) -> Any:
    suffixes = kwargs.pop("suffixes", ("_x", "_y"))
    usual = {"left_on": None, "right_on": None, "left_index": False, "right_index": False, "sort": False}
    only(kwargs, **usual, indicator=False, validate=None, copy=None)
    names = on if type(on) is list else [on]
    if how not in ("inner", "left") or not names or not all(isinstance(name, str) for name in names):
        raise UnsupportedError("it is not an inner or left merge by columns")
    if not isinstance(right, DataFrame) or not isinstance(right.columns, pandas.Index) or right.columns.nlevels > 1:
        raise UnsupportedError("the other side is no frame with plain columns")
    meta = plan_of(self).meta
    beside = gather(plan_of(right)) if is_deferred(right) else right
    if not beside.columns.is_unique or set(names) & set(beside.index.names):
        raise UnsupportedError("a name of the other side stands for two things")
    for name in names:
        if name not in meta.columns or name not in beside.columns or not _same_key(meta[name], beside[name]):
            raise UnsupportedError(f"{name!r} is not of the same ints, bools or times on both sides")
    joined = Joined(how, names, suffixes)
    try:
        expected = joined(meta, beside.iloc[:0])
    except Exception as error:  # pandas raises it then, of the whole
        raise UnsupportedError(f"on no rows it raises {type(error).__name__}") from None
    if not expected.columns.is_unique:
        raise UnsupportedError("two columns would have one name")
    return wrap(_parts(self, joined, beside))


def _same_key(left: Any, right: Any) -> bool:
    return bool(left.dtype == right.dtype) and isinstance(left.dtype, np.dtype) and left.dtype.kind in KEYS


def _parts(self: Any, joined: Joined, beside: Any) -> Table:
    place = home()
    handles, _ = run(plan_of(self), stored)
    other = place.put(beside)
    pairs = place.run(join_part, [(joined, handle, other) for handle in handles], 2)
    told = place.get([pair[1] for pair in pairs])
    filled = [each for each in told if each.length]
    if not filled or not all(same_type(filled[0].meta, each.meta) for each in filled):
        raise UnsupportedError("its result is of other types in some parts of the frame")
    return Table([pair[0] for pair in pairs], Rows([each.length for each in told]), filled[0].meta)


def register() -> None:
    answer(DeferredFrame, "merge", merge)
