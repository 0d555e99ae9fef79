"""Prints what workers wrote, at the driver: `(name pid=123) text`.

Lines that differ only in numbers and come from several workers are shown once; how often they were repeated
is said when something else is printed, or after a few seconds: `[repeated 5x across 3 workers]`. Prints through the
`sys.stdout` and `sys.stderr` of the moment, so that notebooks, pytest and redirections see it.

Runs on the core's callback thread; `flush` also at shutdown.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import TextIO

_WINDOW_S = 5.0
_COLOURS = ("\x1b[36m", "\x1b[35m", "\x1b[33m", "\x1b[32m", "\x1b[34m", "\x1b[31m")
_RESET = "\x1b[0m"
_DIGITS = re.compile(r"\d+|0x[0-9a-fA-F]+")


@dataclass
class _Repeated:
    """Lines that were held back because their like was printed a moment ago."""

    first_s: float
    pid: int
    pids: set[int] = field(default_factory=set)
    count: int = 0
    last: str = ""
    last_pid: int = 0
    name: str = ""
    stream: str = "stdout"


class LogPrinter:
    """One driver's view of its workers' output."""

    def __init__(self, deduplicate: bool | None = None, window_s: float = _WINDOW_S) -> None:
        wanted = os.environ.get("WEFT_DEDUP_LOGS", os.environ.get("RAY_DEDUP_LOGS", "1")) != "0"
        self._deduplicate = wanted if deduplicate is None else deduplicate
        self._window_s = window_s
        self._recent: dict[str, _Repeated] = {}
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def show(self, pid: int, stream: str, lines: list[tuple[str, str]]) -> None:
        """Lines of one worker, as (task or actor name, text)."""
        now = time.monotonic()
        with self._lock:
            self._flush_older_than(now - self._window_s)
            for name, text in lines:
                if self._is_news(pid, stream, name, text, now):
                    self._print(pid, stream, name, text)
            if self._timer is None and any(known.count for known in self._recent.values()):
                self._timer = threading.Timer(self._window_s, self.flush)
                self._timer.daemon = True
                self._timer.start()

    def flush(self) -> None:
        """Say now how often each line was repeated."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._flush_older_than(float("inf"))

    def _is_news(self, pid: int, stream: str, name: str, text: str, now: float) -> bool:
        if not self._deduplicate or not text.strip():
            return True
        key = stream + _DIGITS.sub("#", text)
        known = self._recent.get(key)
        if known is None:
            self._recent[key] = _Repeated(now, pid)
            return True
        if pid == known.pid and not known.count:
            return True  # one worker that prints in a loop is not a repetition across workers
        known.count += 1
        known.pids.add(pid)
        known.last, known.last_pid, known.name, known.stream = text, pid, name, stream
        return False

    def _flush_older_than(self, limit_s: float) -> None:
        for key, known in list(self._recent.items()):
            if known.first_s > limit_s:
                continue
            del self._recent[key]
            if known.count == 1:
                self._print(known.last_pid, known.stream, known.name, known.last)
            elif known.count:
                note = f" [repeated {known.count}x across {len(known.pids)} workers]"
                self._print(known.last_pid, known.stream, known.name, known.last + note)

    def _print(self, pid: int, stream: str, name: str, text: str) -> None:
        out = sys.stderr if stream == "stderr" else sys.stdout
        label = f"({name} pid={pid})" if name else f"(pid={pid})"
        if _is_terminal(out):
            label = f"{_COLOURS[hash(name) % len(_COLOURS)]}{label}{_RESET}"
        with contextlib.suppress(Exception):  # a closed stream must not end the callback thread
            out.write(f"{label} {text}\n")
            out.flush()


def _is_terminal(out: TextIO) -> bool:
    try:
        return out.isatty()
    except Exception:
        return False
