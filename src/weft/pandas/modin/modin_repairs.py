"""What of Modin 0.37 does not work with the versions of Python and pandas that it is used with, mended from outside.

- On Python 3.13 its readers take the local variables of their own frame for their arguments, with all that they have
  set since: every reader but that of CSV failed.
- Its default of one argument of `resample` is none that pandas 2.3 knows, and what `resample` gives has no `agg`.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

from modin.pandas import io
from modin.pandas.resample import Resampler


def mend_readers() -> None:
    """For all of Modin in this process."""
    if sys.version_info >= (3, 13):
        shown = types.ModuleType("inspect")
        shown.__dict__.update(vars(inspect))
        shown.__dict__["getargvalues"] = arguments
        io.inspect = shown


def arguments(frame: Any) -> inspect.ArgInfo:
    """What `inspect.getargvalues` gave before Python 3.13, of a frame that has just begun: arguments, in a dict."""
    found = inspect.getargvalues(frame)
    names = [*found.args, *filter(None, (found.varargs, found.keywords))]
    return found._replace(locals={name: found.locals[name] for name in names})


def resampled(modin_way: Callable[..., Any]) -> Callable[..., Any]:
    """Modin's `resample`."""
    if not hasattr(Resampler, "agg"):
        Resampler.agg = Resampler.aggregate

    @functools.wraps(modin_way)
    def resample(self: Any, rule: Any, *args: Any, **kwargs: Any) -> Any:
        place_of_convention = 3
        is_given = len(args) > place_of_convention or "convention" in kwargs
        return modin_way(self, rule, *args, **kwargs, **({} if is_given else {"convention": "start"}))

    return resample
