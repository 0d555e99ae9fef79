"""Ctrl-C waits for the end of what must not be torn: a step of the learner.

A compiled update takes the memory of the learner that it is given. One that is interrupted before its result is kept
leaves no learner at all, and nothing to save.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Put a SIGINT that comes in the block off to its end; outside the main thread, which has none, do nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came = True

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            signal.raise_signal(signal.SIGINT)
