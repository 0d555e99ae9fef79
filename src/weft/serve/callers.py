"""Processes that have asked for something and died since: what replicas still do for them is for nobody.

A replica says with its health check whose requests last long; the controller knows who has listened lately, and asks
the nodes about the others. Silence alone ends nothing: a process may be stopped, or keep the GIL.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from weft.exceptions import WeftError
from weft.serve.state import CALLER_SILENT_S
from weft.util.state import MOST_ROWS, list_workers

LASTING_S = 5.0
"""A request that has taken so long may be nobody's any more."""
LISTEN_S = CALLER_SILENT_S / 3
"""How long a call of who listens takes at most."""
_SILENT_S = LISTEN_S + 2.0
_MOST_HEARD = 10_000


class Begun(NamedTuple):
    """A request that is under way in a replica."""

    caller: str
    task: asyncio.Task[Any]
    began_s: float


class UnderWay:
    """A replica's requests by the process that has sent them. On the replica's loop."""

    def __init__(self) -> None:
        self._by_caller: dict[str, dict[Begun, None]] = {}

    def begin(self, caller: str, now_s: float) -> Begun:
        """The task that runs works for the caller from now on."""
        task = asyncio.current_task()
        assert task is not None
        begun = Begun(caller, task, now_s)
        self._by_caller.setdefault(caller, {})[begun] = None
        return begun

    def end(self, begun: Begun) -> None:
        its = self._by_caller[begun.caller]
        del its[begun]
        if not its:
            del self._by_caller[begun.caller]

    def lasting(self, now_s: float) -> list[str]:
        """Callers of requests that last long."""
        return [caller for caller, its in self._by_caller.items() if now_s - next(iter(its)).began_s >= LASTING_S]

    def give_up(self, callers: Iterable[str]) -> None:
        for caller in callers:
            for begun in self._by_caller.get(caller, ()):
                begun.task.cancel()


class Callers:
    """Whom the controller has heard of, and when."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._heard_s: dict[str, float] = {}

    def heard(self, caller: str) -> None:
        """`caller`: the process, and a router of it."""
        process, _, _ = caller.partition("/")
        self._heard_s.pop(process, None)
        self._heard_s[process] = time.monotonic()
        if len(self._heard_s) > _MOST_HEARD:
            del self._heard_s[next(iter(self._heard_s))]

    async def look_after(self, actor: Any, lasting: list[str]) -> None:
        """Have a replica give up what it does for those of them that are dead."""
        silent_since_s = time.monotonic() - _SILENT_S
        silent = {one for one in lasting if self._heard_s.get(one, self._began_s) < silent_since_s}
        if not silent:
            return
        try:
            rows = await asyncio.to_thread(list_workers, limit=MOST_ROWS)
        except (WeftError, OSError):  # a node does not answer: who is there may live
            return
        dead = silent - {row.worker_id for row in rows if row.is_alive}
        if dead and len(rows) < MOST_ROWS:
            actor.callers_ended.remote(sorted(dead))
