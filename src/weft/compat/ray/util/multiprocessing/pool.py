"""Ray's pool: its `imap` gives a call's exception in the place of the result, where the standard library raises it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from weft.util.multiprocessing import TimeoutError
from weft.util.multiprocessing.pool import Pool as WeftPool
from weft.util.multiprocessing.results import ApplyResult, AsyncResult, MapResult
from weft.util.multiprocessing.results import IMapIterator as Ordered
from weft.util.multiprocessing.results import IMapUnorderedIterator as Unordered

__all__ = [
    "ApplyResult",
    "AsyncResult",
    "IMapIterator",
    "MapResult",
    "OrderedIMapIterator",
    "Pool",
    "UnorderedIMapIterator",
]


class IMapIterator(Ordered):
    """Results and exceptions, in order."""

    def next(self, timeout: float | None = None) -> Any:
        """The next result, or what that call has raised."""
        try:
            return super().next(timeout)
        except (StopIteration, TimeoutError):
            raise
        except Exception as error:
            return error


class OrderedIMapIterator(IMapIterator):
    """Ray's name of it."""


class UnorderedIMapIterator(IMapIterator, Unordered):
    """Results and exceptions, as they come."""


class Pool(WeftPool):
    """A pool of actors."""

    def imap(self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int | None = 1) -> IMapIterator:
        """The results in order, as they come."""
        return self._imap(OrderedIMapIterator, func, iterable, chunksize)  # type: ignore[return-value]

    def imap_unordered(
        self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int | None = 1
    ) -> IMapIterator:
        """The results as they come."""
        return self._imap(UnorderedIMapIterator, func, iterable, chunksize)  # type: ignore[return-value]
