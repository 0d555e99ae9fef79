"""Calls of small frames that go straight to pandas, past Modin's layers. `know` comes before anything else.

What makes a callable takes what it needs of pandas, the way that it goes where the object is no small frame or the
arguments are not plain, and whether its class is Modin's series.
"""

from collections.abc import Callable
from typing import Any

import pandas

class Direct:
    """A callable that is an attribute of one of Modin's classes."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

def know(
    compiler: type,
    modin_frame: type,
    modin_series: type,
    frame: type,
    series: type,
    array: type,
    scalar_types: frozenset[type],
    plain_types: frozenset[type],
    plain: Callable[[Any], Any],
    unknown: object,
    limit: Any,
    has_grown: Callable[[Any], bool],
    on_weft: Callable[[Any], Any],
    move_large: Callable[[Any], None],
    write: Callable[[Any, str, Any, Any], bool],
    /,
) -> None:
    """The classes of Modin, pandas and NumPy; types of what shares no memory with a frame, and of arguments that pandas
    is given as they are; `plain`, which gives `unknown` for one that pandas cannot be given; the class whose
    attributes say how many rows are small in any case, `few_rows`, and whether new frames are, `makes_small`; what says
    it of more; what moves a compiler to Weft, and a new frame that is not small; what writes by `loc` and the like, and
    tells whether it has."""

def method(function: Callable[..., Any], otherwise: Callable[..., Any], is_series: bool, /) -> Direct:
    """A method of pandas."""

def item(function: Callable[..., Any], otherwise: Callable[..., Any], is_series: bool, /) -> Direct:
    """A frame's `__getitem__`."""

def column(function: None, otherwise: Callable[..., Any], is_series: bool, /) -> Direct:
    """A frame's `__getitem__` or `__getattr__`, of a column that was asked for before."""

def set_column(function: None, otherwise: Callable[..., Any], is_series: bool, /) -> Direct:
    """A frame's `__setitem__`, of a column into a frame that nobody else holds."""

def set_labels(function: None, otherwise: Callable[..., Any], is_series: bool, /) -> Direct:
    """A frame's `__setattr__`, of `columns` or `index` of a frame that nobody else holds."""

def make(function: type, otherwise: Callable[..., Any], is_series: bool, /) -> Direct:
    """`__init__`: pandas' class makes what is small, and what is to be moved."""

def length(function: None, otherwise: Callable[..., Any], is_series: bool, /) -> Direct:
    """`__len__`."""

def shape(function: None, otherwise: Callable[..., Any], is_series: bool, /) -> Direct:
    """The getter of `shape`."""

def read(name: str, otherwise: Callable[..., Any], is_series: bool, /) -> Direct:
    """The getter of an attribute of pandas."""

def indexer(name: str, otherwise: Callable[..., Any], is_series: bool, /) -> Direct:
    """The getter of `loc`, `iloc`, `at` or `iat`: read by pandas, written by Modin."""

def look_up(as_class_says: set[str], extended: set[str], otherwise: Callable[..., Any], is_series: bool, /) -> Direct:
    """`__getattribute__`."""

def wrapped(made: Any, /) -> Any:
    """A frame or series of Modin around one of pandas, on Weft where it has grown; anything else as it is."""

def column_of(frame: Any, column: pandas.Series[Any], /) -> Any:
    """Modin's series of a column. Modin writes what is assigned to a part of it into the frame that it is of."""

def unwrapping(function: Callable[..., Any], /) -> Direct:
    """The function, with pandas' objects in the place of Modin's that it gives."""

def claim(data: Any, /) -> Any:
    """What a small frame or series may write values into, in place: what it wrote before and gave to nobody since, or
    what it holds and nobody else sees; that is its own from now on."""

def sole_frame(frame: Any, /) -> pandas.DataFrame | None:
    """The frame of pandas of a small one where nobody else holds it; others may share its values."""
