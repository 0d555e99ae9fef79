"""The classes `DataFrame` and `Series` as programs see them: pandas' own, except that what they make may be deferred.

FACE-1 No object is ever of these classes: a call gives an object of pandas' class, or a deferred one if it is large.
FACE-2 isinstance, issubclass, subclasses, attributes and comparison are those of pandas' class.
FACE-3 Only frames that nobody shares values with are deferred, whose labels are their rows' numbers, and whose columns
       lie together in memory: NumPy adds floats in another order where they do not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
from pandas.api.types import infer_dtype

from weft.pandas import attributes, groups, merges, methods, reductions, user_functions
from weft.pandas.frames import LikePlain, copies_on_write, is_deferred, wrap
from weft.pandas.limits import limits
from weft.pandas.moves import moves
from weft.pandas.plans import cut
from weft.pandas.readers import READERS

if tuple(map(int, pandas.__version__.split(".")[:2])) < (2, 2):
    raise ImportError(f"weft.pandas needs pandas 2.2 or later, but {pandas.__version__} is installed")

for _module in (methods, attributes, reductions, groups, merges, user_functions):
    _module.register()


class Facade(LikePlain):
    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> Any:
        if any(isinstance(base, Facade) for base in bases):  # a class of the user's
            plain = tuple(base.plain if isinstance(base, Facade) else base for base in bases)
            return type(plain[0])(name, plain, namespace)
        return super().__new__(cls, name, bases, namespace)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        made = cls.plain(*args, **kwargs)
        rows, columns = len(made), made.shape[1] if made.ndim == 2 else 1
        return deferred(made) if limits.are_passed_by(rows, columns) and _is_fresh(args, kwargs) else made

    def __setattr__(cls, name: str, value: Any) -> None:
        setattr(cls.plain, name, value)

    def __delattr__(cls, name: str) -> None:
        delattr(cls.plain, name)


def _made_plain(cls: Any, *args: Any, **kwargs: Any) -> Any:
    return object.__new__(cls.plain)


def _facade(plain: Any) -> Any:
    return Facade(plain.__name__, (plain,), {"__module__": __name__, "__doc__": plain.__doc__, "__new__": _made_plain})


DataFrame = _facade(pandas.DataFrame)
Series = _facade(pandas.Series)


def deferred(value: Any) -> Any:
    """The same, cut into parts; or itself, where it cannot be (FACE-3)."""
    if not _can_be_cut(value):
        return value
    moves.cut += 1
    return wrap(cut(value))


def _is_fresh(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the constructor copied what it was given."""
    data = args[0] if args else kwargs.get("data")
    if kwargs.get("copy") is False or len(args) > 4:
        return False
    return type(data) in (dict, list) or (isinstance(data, np.ndarray) and copies_on_write())


def _can_be_cut(value: Any) -> bool:
    index = value.index
    if type(value) not in (pandas.DataFrame, pandas.Series) or value.attrs or not value.flags.allows_duplicate_labels:
        return False
    if type(index) is not pandas.RangeIndex or index.name is not None or index.start != 0 or index.step != 1:
        return False
    if value.ndim == 2 and (value.columns.nlevels > 1 or not value.columns.is_unique or not len(value.columns)):
        return False
    return all(_lies_together(block.values) and _is_of_values(block.values) for block in value._mgr.blocks)


def _lies_together(values: Any) -> bool:
    return not isinstance(values, np.ndarray) or bool(values.flags.c_contiguous)


def _is_of_values(values: Any) -> bool:
    """Whether a copy of each value is as good as itself: any object but a text may be known by its identity."""
    if getattr(values.dtype, "kind", "O") != "O" or not isinstance(values, np.ndarray):
        return True
    rows = values if values.ndim == 2 else [values]
    return all(infer_dtype(row, skipna=True) == "string" for row in rows)


def merge(left: Any, right: Any, *args: Any, **kwargs: Any) -> Any:
    """pandas.merge, of which a deferred frame on the left has an own form."""
    return left.merge(right, *args, **kwargs) if is_deferred(left) else _merge(left, right, *args, **kwargs)


_merge = pandas.merge
REPLACED = {"DataFrame": DataFrame, "Series": Series, "merge": merge, **READERS}
"""The names of pandas that large data begins with."""
_of_pandas = {name: getattr(pandas, name) for name in REPLACED}


_HOMES = {pandas.DataFrame: "pandas.core.frame", pandas.Series: "pandas.core.series"}
"""Where pickle finds the plain classes meanwhile: from pandas 3 on they say that they are of `pandas`."""
_modules_before = {kind: kind.__module__ for kind in _HOMES}


def install() -> None:
    """From now on `import pandas` in this process gives these names; pandas' own modules keep theirs."""
    for kind, home in _HOMES.items():
        kind.__module__ = home
    for name, value in REPLACED.items():
        setattr(pandas, name, value)


def uninstall() -> None:
    """`import pandas` gives pandas' own names again."""
    for name, value in _of_pandas.items():
        setattr(pandas, name, value)
    for kind, module in _modules_before.items():
        kind.__module__ = module
