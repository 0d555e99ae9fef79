"""`apply`, `map` and the like of small frames: a function of the user's, called by pandas in this process, or on Weft
where it is called for many rows."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pandas

from weft.pandas.modin._direct import wrapped
from weft.pandas.modin.direct_values import attribute, looked_up, plain_arguments, small_source
from weft.pandas.modin.small import on_weft

FRAME = "apply map applymap transform agg aggregate".split()
SERIES = "apply map transform agg aggregate".split()
_BY_ELEMENT = frozenset(("map", "applymap"))


def called_by_pandas(ours: Any, theirs: Any, name: str) -> Callable[..., Any]:
    """The method of that name of one of Modin's classes. No error has Modin try again: the function may have been the
    one that raised it, and would be called twice."""
    modin_way, method = looked_up(getattr(ours, name), name), getattr(theirs, name)
    is_by_element = name in _BY_ELEMENT or (theirs is pandas.Series and name == "apply")

    @functools.wraps(modin_way)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        source = small_source(self)
        if source is None:
            return modin_way(self, *args, **kwargs)
        function = args[0] if args else kwargs.get("func", kwargs.get("arg"))
        is_by_row = is_by_element or (name == "apply" and _axis(args, kwargs) in (1, "columns"))
        if is_by_row and callable(function) and attribute(self, "_query_compiler").is_large_for_python():
            moved = ours(query_compiler=on_weft(attribute(self, "_query_compiler")))
            return modin_way(moved, *args, **kwargs)
        # What cannot be called is an error, which Modin tells in its own way.
        is_mistake = is_by_element and theirs is pandas.DataFrame and not callable(function)
        given = None if is_mistake else plain_arguments(args, kwargs, takes_functions=True)
        if given is None:
            return modin_way(self, *args, **kwargs)
        return wrapped(method(source, *given[0], **given[1]))

    return call


def _axis(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return kwargs.get("axis", args[1] if len(args) > 1 else 0)
