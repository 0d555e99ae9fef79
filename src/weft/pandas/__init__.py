"""weft.pandas: the installed pandas, whose large frames are computed in parts on Weft. Change one import line:

>>> import weft.pandas as pd
>>> frame = pd.DataFrame({"word": ["a", "b", "a"], "n": [1, 2, 3]})
>>> frame.groupby("word").n.sum().to_dict()
{'a': 4, 'b': 2}

Every name is pandas', 2.2 to 3.1; small frames are plain objects of pandas. A large one (`set_rows`) is a real
DataFrame without values: what can be done on its parts, with the very result that pandas gives, is done by tasks, and
anything else makes pandas look for the values, which are then gathered. `python -m weft.pandas script.py` and
`%load_ext weft.pandas` do the same for programs that say `import pandas`. The first name that is used loads pandas
(`pip install 'weft[pandas]'`); the first frame that needs it starts Weft. An engine for Modin is
in `weft.pandas.modin`.
"""

from __future__ import annotations

from typing import Any

TYPE_CHECKING = False

if TYPE_CHECKING:
    from pandas import *  # noqa: F403

    from weft.pandas.exchange import from_arrow as from_arrow
    from weft.pandas.exchange import from_dataset as from_dataset
    from weft.pandas.exchange import to_arrow as to_arrow
    from weft.pandas.exchange import to_dataset as to_dataset
    from weft.pandas.exchange import to_torch as to_torch
    from weft.pandas.facade import install as install
    from weft.pandas.facade import uninstall as uninstall
    from weft.pandas.limits import set_rows as set_rows
    from weft.pandas.moves import FallbackError as FallbackError
    from weft.pandas.moves import explain as explain
    from weft.pandas.moves import strict as strict

_HOMES = {
    "exchange": "from_arrow from_dataset to_arrow to_dataset to_torch",
    "facade": "DataFrame Series install merge read_csv read_parquet uninstall",
    "limits": "set_rows",
    "moves": "FallbackError explain strict",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name.startswith("__") and name not in ("__version__", "__git_version__"):
        raise AttributeError(f"module 'weft.pandas' has no attribute {name!r}")
    import importlib

    try:
        if name not in _HOME_OF:
            return getattr(importlib.import_module("pandas"), name)
        facade = importlib.import_module("weft.pandas.facade")
        home = importlib.import_module(f"weft.pandas.{_HOME_OF[name]}")
    except AttributeError:
        if name.startswith("_"):
            raise
        from weft._lazy import missing

        raise missing("weft.pandas", name, __dir__()) from None
    except ModuleNotFoundError as error:
        if error.name != "pandas":
            raise
        raise ModuleNotFoundError("weft.pandas needs pandas: pip install 'weft[pandas]'", name="pandas") from None
    found = facade.REPLACED[name] if name in facade.REPLACED else getattr(home, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    import importlib

    return sorted({*_HOME_OF, *dir(importlib.import_module("pandas"))})


def load_ipython_extension(ipython: Any) -> None:
    """`%load_ext weft.pandas`: `import pandas` in the notebook gives these names."""
    from weft.pandas.facade import install

    install()


def unload_ipython_extension(ipython: Any) -> None:
    """`%unload_ext weft.pandas`: `import pandas` gives pandas' own names again."""
    from weft.pandas.facade import uninstall

    uninstall()
