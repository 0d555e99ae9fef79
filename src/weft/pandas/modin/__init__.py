"""weft.pandas.modin: an execution engine for Modin 0.37 (pandas 2.2 or 2.3), named `Weft`.

>>> import weft.pandas.modin as pd
>>> frame = pd.DataFrame({"word": ["a", "b", "a"], "n": [1, 2, 3]})
>>> frame.groupby("word").n.sum().to_dict()
{'a': 4, 'b': 2}

The names of `modin.pandas` are the names of this module. With `MODIN_ENGINE=weft` in the environment a plain
`import modin.pandas` finds the engine too. The first name that is used loads pandas and Modin
(`pip install 'weft[modin]'`); the first frame that needs it starts Weft.
"""

from __future__ import annotations

from typing import Any

TYPE_CHECKING = False

if TYPE_CHECKING:
    from modin.pandas import *  # noqa: F403

    from weft.pandas.modin.exchange import from_arrow as from_arrow
    from weft.pandas.modin.exchange import from_dataset as from_dataset
    from weft.pandas.modin.exchange import to_arrow as to_arrow
    from weft.pandas.modin.exchange import to_dataset as to_dataset
    from weft.pandas.modin.exchange import to_torch as to_torch
    from weft.pandas.modin.journal import FallbackError as FallbackError
    from weft.pandas.modin.journal import explain as explain
    from weft.pandas.modin.journal import strict as strict
    from weft.pandas.modin.small import set_small_rows as set_small_rows

_HOMES = {
    "exchange": "from_arrow from_dataset to_arrow to_dataset to_torch",
    "journal": "FallbackError explain strict",
    "small": "set_small_rows",
}
_OF_PANDAS = frozenset(("compat", "core", "offsets", "tseries", "util"))
"""Modules that Modin does not hand on; programs write `pd.offsets.MonthEnd()`."""
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}
_MODULES = frozenset(
    "autoload axis_partition calls column_means dense_groups direct direct_columns direct_extensions "
    "direct_functions direct_general direct_groups direct_values direct_views direct_writes exact exchange files "
    "frame group_sums grouping joining journal json_lines late_blocks modin_costs modin_repairs "
    "near parquet_parts partition partitions query_compiler registration sent_series sheets small "
    "text_dates text_stretches wrapper".split()
)
_NOT_OF_MODIN = _MODULES | _OF_PANDAS | _HOME_OF.keys()


_modin_pandas: Any = None
"""The module, once it is in use."""


def __getattr__(name: str) -> object:
    # Only the classes are kept in globals(): Modin's functions may be replaced by extensions of the backend in use.
    if _modin_pandas is not None and name not in _NOT_OF_MODIN:
        found = getattr(_modin_pandas, name, _modin_pandas)
        if found is not _modin_pandas:
            return found
    try:
        return _found(name)
    except AttributeError:
        if name.startswith("_"):
            raise
        from weft._lazy import missing

        raise missing("weft.pandas.modin", name, __dir__()) from None


def _found(name: str) -> object:
    global _modin_pandas
    import importlib

    if name.startswith("__") and name != "__version__":
        raise AttributeError(f"module 'weft.pandas.modin' has no attribute {name!r}")
    try:
        if name in _MODULES:
            return importlib.import_module(f"weft.pandas.modin.{name}")
        from weft.pandas.modin.registration import use

        use()
        if name in _HOME_OF:
            return getattr(importlib.import_module(f"weft.pandas.modin.{_HOME_OF[name]}"), name)
        if name in _OF_PANDAS:
            return getattr(importlib.import_module("pandas"), name)
        _modin_pandas = importlib.import_module("modin.pandas")
        globals().update(DataFrame=_modin_pandas.DataFrame, Series=_modin_pandas.Series)
        return getattr(_modin_pandas, name)
    except ModuleNotFoundError as error:
        if error.name in ("modin", "pandas"):
            raise ModuleNotFoundError(
                f"weft.pandas.modin needs {error.name}: pip install 'weft[modin]'. With pandas 3, or without Modin, "
                "there is weft.pandas: pip install 'weft[pandas]'",
                name=error.name,
            ) from None
        raise


def __dir__() -> list[str]:
    import importlib

    return sorted({*_HOME_OF, *_OF_PANDAS, *dir(importlib.import_module("modin.pandas"))})
