"""weft.pandas.deferred: the installed pandas, whose large frames are computed in parts on Weft. On trial.

>>> import weft.pandas.deferred as pd
>>> frame = pd.DataFrame({"word": ["a", "b", "a"], "n": [1, 2, 3]})
>>> frame.groupby("word").n.sum().to_dict()
{'a': 4, 'b': 2}

Every name is pandas', 2.2 to 3.1; small frames are plain objects of pandas. A large one (`set_rows`) is a real
DataFrame without values: what can be done on its parts, with the very result that pandas gives, is done by tasks, and
anything else makes pandas look for the values, which are then gathered. `python -m weft.pandas script.py` and
`%load_ext weft.pandas` do the same for programs that say `import pandas`.
"""

from __future__ import annotations

from typing import Any

import pandas

from weft.pandas.deferred.facade import REPLACED, install, uninstall
from weft.pandas.deferred.limits import set_rows
from weft.pandas.deferred.moves import FallbackError, explain, strict

_OWN: dict[str, Any] = {
    **REPLACED,
    "FallbackError": FallbackError,
    "explain": explain,
    "install": install,
    "set_rows": set_rows,
    "strict": strict,
    "uninstall": uninstall,
}


def __getattr__(name: str) -> Any:
    return _OWN[name] if name in _OWN else getattr(pandas, name)


def __dir__() -> list[str]:
    return sorted({*_OWN, *dir(pandas)})


def load_ipython_extension(ipython: Any) -> None:
    """`%load_ext weft.pandas`: `import pandas` in the notebook gives these names."""
    install()


def unload_ipython_extension(ipython: Any) -> None:
    uninstall()
