"""Ray's pool: its `imap` gives a call's exception in the place of the result, where the standard library raises it, and
the chunks of a `map` go to the workers in turn, so that each has as many as the others: callers count on that to spread
what they hold. Weft's give the next chunk to whoever is free.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from weft.exceptions import ActorError
from weft.util.multiprocessing import TimeoutError
from weft.util.multiprocessing.pool import Pool as WeftPool
from weft.util.multiprocessing.pool import Worker
from weft.util.multiprocessing.results import ApplyResult, AsyncResult, Call, Chunk, MapResult
from weft.util.multiprocessing.results import IMapIterator as Ordered
from weft.util.multiprocessing.results import IMapUnorderedIterator as Unordered
from weft.util.multiprocessing.worker import MAP, STARMAP
from weft.util.portable_function import pack

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


class _InTurn(Worker):
    """A lane that takes chunks of maps for whichever worker's turn it is."""

    __slots__ = ("crew", "turns")
    crew: Sequence[_InTurn]
    turns: Iterator[_InTurn]

    def start(self, chunk: Chunk) -> Any:
        whose = next(self.turns) if self.is_ordered and chunk.call.kind in (MAP, STARMAP) else self
        return Worker.start(whose, chunk)

    def ended(self, error: BaseException | None) -> None:
        if self.is_ordered and isinstance(error, ActorError):
            for worker in self.crew:
                if worker.actor is not None and worker.actor._actor_id.hex() == error.actor_id:
                    worker.actor = worker.submit = None
        else:
            super().ended(error)


class Pool(WeftPool):
    """A pool of actors."""

    def _make_workers(self, actor_class: Any, arguments: tuple[Any, ...], max_tasks: int | None) -> Sequence[Worker]:
        crew = [_InTurn(actor_class, arguments, max_tasks) for _ in range(self._processes)]
        turns = itertools.cycle(crew)
        for worker in crew:
            worker.crew, worker.turns = crew, turns
        return crew

    def _call(self, func: Callable[..., Any], kind: int) -> Call:
        """Without a pace chunks are given one at a time: one that fails with its actor says nothing of another's."""
        return Call(pack(func), kind, None) if kind in (MAP, STARMAP) else super()._call(func, kind)

    def imap(self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int | None = 1) -> IMapIterator:
        """The results in order, as they come."""
        return self._imap(OrderedIMapIterator, func, iterable, chunksize)  # type: ignore[return-value]

    def imap_unordered(
        self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int | None = 1
    ) -> IMapIterator:
        """The results as they come."""
        return self._imap(UnorderedIMapIterator, func, iterable, chunksize)  # type: ignore[return-value]
