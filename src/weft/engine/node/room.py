"""Requests for room in the arena, which wait while others read or write what could make room.

Runs in the daemon's thread. What a process reads or writes stays where it is, so an arena that is full of such objects,
or in pieces because of them, has room again as soon as they let go; and a disk that is full may have room again. Only
who waits for nobody but itself, or waits too long, is told that there is none.
"""

from __future__ import annotations

from collections.abc import Callable

from weft import _native
from weft.engine.node.spilling import Spilling
from weft.engine.state.events import Process
from weft.engine.wire import kinds
from weft.net.loop import Loop

WAIT_S = 10.0
RETRY_S = 0.02


class RoomRequests:
    """All processes that want memory for a new object, or a spilled one back."""

    def __init__(
        self, port: _native.NodePort, loop: Loop, spilling: Spilling, has_arrivals: Callable[[], bool]
    ) -> None:
        """`has_arrivals`: whether objects are on their way to this node's memory."""
        self._port = port
        self._loop = loop
        self._spilling = spilling
        self._has_arrivals = has_arrivals

    def need_space(self, process: Process, payload: bytes) -> None:
        self._attempt(process, kinds.SPACE, payload, self._spilling.need_space, self._spilling.refuse_space)

    def restore(self, process: Process, payload: bytes) -> None:
        self._attempt(process, kinds.RESTORED, payload, self._spilling.restore, self._spilling.refuse_restore)

    def _attempt(
        self,
        process: Process,
        kind: int,
        payload: bytes,
        attempt: Callable[[bytes, Callable[[bytes | None], None]], None],
        refuse: Callable[[bytes], bytes],
    ) -> None:
        deadline = self._loop.now() + WAIT_S

        def try_it() -> None:
            attempt(payload, tried)

        def tried(answer: bytes | None) -> None:
            if answer is None and self._may_come(process) and self._loop.now() < deadline:
                self._loop.call_later(RETRY_S, try_it)
            else:
                self._port.send(*process, kind, answer or refuse(payload))

        try_it()

    def _may_come(self, process: Process) -> bool:
        is_waited_for = bool(self._spilling.trouble) or self._has_arrivals()
        return is_waited_for or self._port.room_may_come(process[0])
