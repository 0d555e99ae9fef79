"""A bar on stderr while many refs become ready.

>>> @weft.remote
... def double(x):
...     return 2 * x
>>> [value for value in progress([double.remote(i) for i in range(3)])]
[0, 2, 4]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TextIO

import weft
from weft.terminal.bar import REDRAW_S, Bar
from weft.terminal.status_line import Line as StatusLine
from weft.terminal.status_line import is_wanted

__all__ = ["StatusLine", "is_wanted", "progress"]


def progress(
    refs: Iterable[Any],
    *,
    label: str = "",
    ordered: bool = True,
    total: int | None = None,
    file: TextIO | None = None,
    force: bool = False,
) -> Iterator[Any]:
    """The values of the refs, in order or, unless `ordered`, as they come, while a bar shows how many are ready.

    Quiet where `file` (stderr) is no terminal and there is no notebook, unless `force`. `refs` may be a generator
    task's stream; then `total` can say how many there will be. What a task raised is raised when its turn comes.

    >>> double = weft.remote(lambda x: 2 * x)
    >>> list(progress([double.remote(x) for x in range(3)], label="doubling"))
    [0, 2, 4]
    """
    known = None if hasattr(refs, "completed") else list(refs)
    bar = Bar(label, len(known) if known is not None else total, force or is_wanted(file), file)
    if known is None:
        return _stream(refs, bar)
    return _in_order(known, bar) if ordered else _as_they_come(known, bar)


def _in_order(refs: list[Any], bar: Bar) -> Iterator[Any]:
    pending = refs
    try:
        for ref in refs:
            while not ref.is_ready():
                bar.done = len(refs) - len(pending)
                bar.draw()
                _, pending = _wait(pending, ref)
            bar.done = max(bar.done, len(refs) - len(pending))
            bar.draw()
            yield weft.get(ref)
        bar.done = len(refs)
    finally:
        bar.close()


def _wait(pending: list[Any], wanted: Any) -> tuple[list[Any], list[Any]]:
    """A redraw's time, or less when the wanted ref is ready earlier; what is ready of all."""
    weft.wait([wanted], timeout=REDRAW_S, fetch_local=False)
    return weft.wait(pending, num_returns=len(pending), timeout=0, fetch_local=False)


def _as_they_come(pending: list[Any], bar: Bar) -> Iterator[Any]:
    total = len(pending)
    try:
        while pending:
            ready, pending = weft.wait(pending, num_returns=1, timeout=REDRAW_S, fetch_local=False)
            if ready:
                more, pending = weft.wait(pending, num_returns=len(pending), timeout=0, fetch_local=False)
                ready += more
            bar.done = total - len(pending)
            bar.draw()
            for ref in ready:
                yield weft.get(ref)
    finally:
        bar.close()


def _stream(refs: Iterable[Any], bar: Bar) -> Iterator[Any]:
    try:
        for ref in refs:
            bar.done += 1
            bar.draw()
            yield weft.get(ref)
    finally:
        bar.close()
