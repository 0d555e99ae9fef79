"""The loop of an async actor's calls alone, without a process of its own."""

from __future__ import annotations

from queue import Queue
from typing import Any

from weft.engine.process.actors.async_group import AsyncGroup

PATIENCE_S = 30.0


class Call:
    """As much of a call as a group looks at."""

    name = "method"
    streams = False
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}  # noqa: RUF012
    task = (b"task", b"job", "method")
    is_cancelled = False
    has_begun = False

    async def method(self) -> str:
        return "answered"


class CancelledWhenSeen(Call):
    """Its caller gives it up in the moment in which it is looked at."""

    def __init__(self, group: AsyncGroup) -> None:
        self._group = group
        self._was_seen = False

    @property
    def is_cancelled(self) -> bool:  # type: ignore[override]
        if self._was_seen:
            return True
        self._was_seen = True
        given: Any = self
        self._group.cancel(given)
        return False


class Calls:
    def __init__(self) -> None:
        self.answers: Queue[tuple[Call, object]] = Queue()

    def ended(self, call: Call, value: object, error: BaseException | None) -> None:
        self.answers.put((call, "cancelled" if call.is_cancelled else value))


def test_a_call_that_is_cancelled_between_its_start_and_its_first_step_is_answered() -> None:
    calls: Any = Calls()
    group = AsyncGroup("test", 10, calls)
    try:
        cancelled: Any = CancelledWhenSeen(group)
        group.submit(cancelled)
        assert calls.answers.get(timeout=PATIENCE_S) == (cancelled, "cancelled")
        other: Any = Call()
        group.submit(other)
        assert calls.answers.get(timeout=PATIENCE_S) == (other, "answered")
    finally:
        group.stop()
        group._thread.join(PATIENCE_S)
    assert calls.answers.empty(), "each is answered once"
