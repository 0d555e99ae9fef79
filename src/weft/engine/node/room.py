"""Requests for room in the arena, which wait while others read what could make room.

Runs in the daemon's thread. What a process reads stays where it is, so an arena that is full of such objects, or in
pieces because of them, has room again as soon as they let go. Only who waits for nobody but itself, or waits too long,
is told that there is none.
"""

from __future__ import annotations

from collections.abc import Callable

from weft import _native
from weft.engine.node.loop import Loop
from weft.engine.node.spilling import Spilling
from weft.engine.state.events import Process
from weft.engine.wire import kinds

WAIT_S = 10.0
RETRY_S = 0.02


class RoomRequests:
    """All processes that want memory for a new object, or a spilled one back."""

    def __init__(self, port: _native.NodePort, loop: Loop, spilling: Spilling) -> None:
        self._port = port
        self._loop = loop
        self._spilling = spilling

    def need_space(self, process: Process, payload: bytes) -> None:
        self._attempt(process, kinds.SPACE, lambda: self._spilling.need_space(payload))

    def restore(self, process: Process, payload: bytes) -> None:
        self._attempt(process, kinds.RESTORED, lambda: self._spilling.restore(payload))

    def _attempt(self, process: Process, kind: int, attempt: Callable[[], tuple[bool, bytes]]) -> None:
        deadline = self._loop.now() + WAIT_S

        def try_it() -> None:
            is_final, answer = attempt()
            if is_final or not self._port.is_read_by_others(process[0]) or self._loop.now() > deadline:
                self._port.send(*process, kind, answer)
            else:
                self._loop.call_later(RETRY_S, try_it)

        try_it()
