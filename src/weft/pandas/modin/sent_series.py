"""A column of a frame on Weft that is sent to another process is a pandas Series there, as a frame is a DataFrame.

Modin's own way makes a frame with one column of every series that has a name.
"""

from __future__ import annotations

import copyreg
import os
from typing import Any


def register() -> None:
    """pickle and cloudpickle ask this module, in this process, how a series of Modin is written."""
    import modin.pandas

    copyreg.pickle(modin.pandas.Series, _reduced)


def _reduced(series: Any) -> tuple[Any, ...]:
    by_modin: tuple[Any, ...] = series.__reduce__()
    is_by_refs = by_modin[0].__name__ == "_inflate_light"
    return (_made_again, by_modin[1]) if is_by_refs else by_modin


def _made_again(compiler: Any, name: Any, source_pid: int) -> Any:
    import modin.pandas

    if os.getpid() == source_pid:
        return modin.pandas.Series(query_compiler=compiler, name=name)
    return compiler.to_pandas().iloc[:, 0].rename(name)
