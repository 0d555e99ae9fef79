"""The thread on which callbacks of pools and executors run."""

from __future__ import annotations

import threading
import time

from weft.util.dispatch import Dispatcher

HANG_S = 30.0


def callback_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "weft-callbacks"]


def test_the_thread_ends_by_itself_and_starts_again_when_it_is_needed() -> None:
    dispatcher = Dispatcher([])
    for _ in range(2):
        ran = threading.Event()
        dispatcher.later(ran.set)
        assert ran.wait(HANG_S)
        deadline = time.monotonic() + HANG_S
        while callback_threads() and time.monotonic() < deadline:
            threading.Event().wait(0.01)
        assert not callback_threads(), "nobody stopped it, and it has nothing to do"


def test_stopping_waits_for_what_was_given_in_order() -> None:
    dispatcher = Dispatcher([])
    ran: list[int] = []
    gate = threading.Event()
    dispatcher.later(lambda: ran.append(int(gate.wait(HANG_S))))
    for number in range(2, 50):
        dispatcher.later(lambda number=number: ran.append(number))  # type: ignore[misc]
    gate.set()
    dispatcher.stop()
    assert ran == list(range(1, 50))
    assert not callback_threads()
