"""Events for the tests of streams."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any


def slowly(count: int, pause_after: int, gate: Path) -> Any:
    """Events that do not end before a file exists: so that there is time to kill."""

    def events() -> Any:
        for number in range(count):
            if number == pause_after:
                while not gate.exists():
                    threading.Event().wait(0.005)
            yield (float(number), f"w{number % 7}")

    return events
