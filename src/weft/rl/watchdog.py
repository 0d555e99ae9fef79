"""Ends what an environment does when it does not come back: an alarm in the main thread, where workers step.

It interrupts whatever Python runs or waits for. What hangs inside a C extension is ended by the driver, which kills the
worker a while later.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def time_limit(seconds: float, error: Callable[[], Exception]) -> Iterator[None]:
    """Raise `error()` in the block when it takes longer; does nothing outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def expired(number: int, frame: FrameType | None) -> None:
        raise error()

    before = signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
