"""What `rolling`, `resample`, `str` and the like of a small frame give: pandas' own, and Modin's where pandas' does not
do."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from weft.pandas.modin._direct import wrapped
from weft.pandas.modin.direct_values import looked_up, plain_arguments, small_source

WINDOWS = "rolling expanding ewm".split()
ACCESSORS = "str dt cat".split()


class SmallView:
    """Names of `_METHODS` are called in pandas, those of `_READ` are read there; for anything else Modin's object is
    made."""

    __slots__ = ("_made", "_make", "_theirs")
    _METHODS: frozenset[str]
    _READ: frozenset[str] = frozenset()

    def __init__(self, theirs: Any, make: Callable[[], Any]) -> None:
        self._theirs = theirs
        self._make = make
        self._made: Any = None

    def _modin_way(self) -> Any:
        if self._made is None:
            self._made = self._make()
        return self._made

    def __getattr__(self, name: str) -> Any:
        if name in self._METHODS:
            return functools.partial(self._call, name)
        if name in self._READ:
            return wrapped(getattr(self._theirs, name))
        return getattr(self._modin_way(), name)

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        given = plain_arguments(args, kwargs, takes_functions=True)
        if given is None:
            return getattr(self._modin_way(), name)(*args, **kwargs)
        return wrapped(getattr(self._theirs, name)(*given[0], **given[1]))

    def __repr__(self) -> str:
        return repr(self._modin_way())


class SmallWindow(SmallView):
    """Of `rolling`, `expanding` and `ewm`."""

    __slots__ = ()
    _METHODS = frozenset("sum mean min max count std var median quantile sem skew kurt rank corr cov apply agg".split())

    def __getitem__(self, key: Any) -> Any:
        return SmallWindow(self._theirs[key], lambda: self._modin_way()[key])


class SmallResampler(SmallView):
    __slots__ = ()
    _METHODS = frozenset(
        """
        sum mean min max count size std var median prod first last ohlc nunique quantile sem agg aggregate apply
        transform ffill bfill nearest asfreq interpolate
        """.split()
    )

    def __getitem__(self, key: Any) -> Any:
        return SmallResampler(self._theirs[key], lambda: self._modin_way()[key])

    def __getattr__(self, name: str) -> Any:
        columns = getattr(self._theirs.obj, "columns", ())
        return self[name] if name not in self._METHODS and name in columns else super().__getattr__(name)


class SmallAccessor(SmallView):
    """Of `str`, `dt` and `cat`: what they have is pandas' alone."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            return getattr(self._modin_way(), name)
        found = getattr(self._theirs, name)
        return functools.partial(self._call, name) if callable(found) else wrapped(found)

    def __getitem__(self, key: Any) -> Any:
        return wrapped(self._theirs[key])

    def __dir__(self) -> list[str]:
        return dir(self._theirs)


def viewed_by_pandas(kind: type[SmallView], name: str, modin_way: Callable[..., Any]) -> Callable[..., Any]:
    """The method of that name of one of Modin's classes."""
    modin_way = looked_up(modin_way, name)

    @functools.wraps(modin_way)
    def view(self: Any, *args: Any, **kwargs: Any) -> Any:
        source = small_source(self)
        given = None if source is None else plain_arguments(args, kwargs)
        if given is None:
            return modin_way(self, *args, **kwargs)
        return kind(getattr(source, name)(*given[0], **given[1]), lambda: modin_way(self, *args, **kwargs))

    return view


class Accessor:
    """`str`, `dt` or `cat` of Modin's series."""

    def __init__(self, name: str, modin_way: Any) -> None:
        self._name = name
        self._modin_way = modin_way
        self.__doc__ = modin_way.__doc__

    def __get__(self, series: Any, owner: type | None = None) -> Any:
        source = None if series is None else small_source(series)
        if source is None:
            return self._modin_way.__get__(series, owner)
        return SmallAccessor(getattr(source, self._name), lambda: self._modin_way.__get__(series, owner))


def iterated(frame: Any) -> dict[str, Callable[..., Any]]:
    """Iteration over the columns and rows of Modin's frame."""
    return {
        "items": _iterate(frame.items, lambda source: ((name, wrapped(column)) for name, column in source.items())),
        "iterrows": _iterate(
            frame.iterrows, lambda source: ((label, wrapped(row)) for label, row in source.iterrows())
        ),
    }


def _iterate(modin_way: Callable[[Any], Any], theirs: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(modin_way)
    def iterate(self: Any) -> Any:
        source = small_source(self)
        return modin_way(self) if source is None else theirs(source)

    return iterate
