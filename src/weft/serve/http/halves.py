"""Requests whose bodies are still coming, where a deployment has no room for more: they wait here and not in its line,
so that who has asked to the end goes first, however many have not. Runs on the front's loop.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from weft.serve.http.bounds import send_away

if TYPE_CHECKING:
    from weft.serve.http.app import HttpApp, Route
    from weft.serve.http.exchange import Exchange


MOST_STREAMS = 1000
"""Of HTTP/2, by all connections together, of whose requests more has to come; where there are so many, each connection
may have a few."""
FEW_STREAMS = 4


class HalfStreams:
    """Those of one connection."""

    def __init__(self, app: HttpApp) -> None:
        self.open = 0
        self._app = app

    def may_begin(self, others: Iterable[Any]) -> bool:
        """Where there are very many, of the other connections some give way."""
        most = min(MOST_STREAMS, self._app.options.max_connections)
        if self._app.half_streams < most:
            return True
        if self._app.half_streams >= FEW_STREAMS * most:
            send_away(others)
        return self.open < FEW_STREAMS

    def count(self, change: int) -> None:
        self.open += change
        self._app.half_streams += change


class Halves:
    """The one that came first is first."""

    def __init__(self) -> None:
        self._held: dict[Exchange, tuple[Route, Callable[[], None]]] = {}
        self._starting: Counter[str] = Counter()
        """By route: begun in this round of the loop, of which the router does not know yet."""

    def begin(self, exchange: Exchange, route: Route, begin: Callable[[], None]) -> None:
        """Where there is room, or when there is, or when all of its body has come, or as much as is held of it."""
        assert exchange.upload is not None
        if self._has_room(route):
            self._start(route, begin)
            return
        self._held[exchange] = route, begin
        exchange.upload.when_ready = partial(self._release, exchange)
        exchange.work = partial(self._held.pop, exchange, None)

    def begin_where_there_is_room(self) -> None:
        full = set()
        for exchange, (route, _) in list(self._held.items()):
            if route.prefix not in full and self._has_room(route):
                self._release(exchange)
            else:
                full.add(route.prefix)

    def _has_room(self, route: Route) -> bool:
        return route.current_router().room > self._starting[route.prefix]

    def _release(self, exchange: Exchange) -> None:
        found = self._held.pop(exchange, None)
        if found is not None and exchange.upload is not None:
            exchange.upload.when_ready = exchange.work = None
            self._start(*found)

    def _start(self, route: Route, begin: Callable[[], None]) -> None:
        self._starting[route.prefix] += 1
        begin()  # a task, whose first step comes before what is called soon from here on
        asyncio.get_running_loop().call_soon(self._started, route.prefix)

    def _started(self, prefix: str) -> None:
        self._starting[prefix] -= 1
