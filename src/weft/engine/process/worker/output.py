r"""A worker's standard output and error, with the name of the task that wrote each line.

Both streams are pipes that the node daemon reads. A line written by Python code inside a task begins with
`\x1e` NAME `\x1f`; the daemon cuts that off and sends (name, text) to the driver. What native code writes has no
tag and is shown under the process's number alone. A line is written with one call, so lines of several threads do
not mix; text without a newline waits until its line ends, it grows long, or nothing was added to it for a moment.

Installed lazily, at a worker's first task: a forked worker that never prints pays nothing.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from typing import Any, TextIO

from weft.engine.process.calls import current

START, END = "\x1e", "\x1f"
_LONGEST_PARTIAL = 8192
_HELD_S = 0.2

"""So long at most the end of a line is waited for."""


class TaggedStream:
    """A text stream over a descriptor whose lines carry the writing task's name."""

    def __init__(self, fd: int, original: TextIO | None, name: str) -> None:
        self._fd = fd
        self._original = original
        self._partials: dict[int, tuple[str, str]] = {}
        """By thread: what has no newline yet, and whose it is."""
        self._growing: set[int] = set()
        """Threads that have added to it since it was looked at."""
        self.unwatch()
        os.register_at_fork(after_in_child=self.unwatch)
        self.name = name
        self.mode = "w"
        self.encoding = "utf-8"
        self.errors = "backslashreplace"
        self.newlines = None
        self.line_buffering = True
        self.closed = False

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        thread, task = threading.get_ident(), current.name()
        with self._lock:
            begun, owner = self._partials.pop(thread, ("", task))
            if begun and owner != task:
                self._emit(begun + "\n", owner)
                begun = ""
            pending = begun + text
            end = pending.rfind("\n") + 1
            if end:
                self._emit(pending[:end], task)
            rest = pending[end:]
            if len(rest) > _LONGEST_PARTIAL:
                self._emit(rest + "\n", task)
            elif rest:
                self._partials[thread] = rest, task
                self._growing.add(thread)
                self._watch()
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Whole lines are never held back, an unfinished one until it has not grown for a moment."""

    def unwatch(self) -> None:
        """Also in a fork, where no other thread goes on."""
        self._lock = threading.RLock()  # a signal handler may print, too
        self._is_watched = False

    def _watch(self) -> None:
        if not self._is_watched:
            self._is_watched = True
            timer = threading.Timer(_HELD_S, self._show_waiting)
            timer.daemon = True
            timer.start()

    def _show_waiting(self) -> None:
        """Unfinished lines that nobody goes on with."""
        with self._lock:
            self._is_watched = False
            for thread in self._partials.keys() - self._growing:
                self._finish(thread)
            self._growing.clear()
            if self._partials:
                self._watch()

    def _finish(self, thread: int) -> None:
        text, task = self._partials.pop(thread)
        self._emit(text + "\n", task)

    def finish_line(self) -> None:
        """Write what threads have left without a newline."""
        with self._lock:
            for thread in list(self._partials):
                self._finish(thread)

    def _emit(self, text: str, task: str) -> None:
        tag = f"{START}{task}{END}"
        lines = text[:-1].split("\n")
        data = "".join(f"{tag}{line}\n" for line in lines).encode("utf-8", "backslashreplace")
        with contextlib.suppress(OSError):  # the daemon is gone; the process soon will be
            view = memoryview(data)
            while view:
                view = view[os.write(self._fd, view) :]

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return False

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        self.finish_line()

    def reconfigure(self, **options: Any) -> None:
        """Accepted and ignored: lines are written at once and as UTF-8."""

    @property
    def buffer(self) -> Any:
        """The untagged binary stream below."""
        return getattr(self._original, "buffer", None)


def install() -> None:
    """Tag this process's output from now on."""
    if not isinstance(sys.stdout, TaggedStream):
        sys.stdout = TaggedStream(1, sys.stdout, "<stdout>")
    if not isinstance(sys.stderr, TaggedStream):
        sys.stderr = TaggedStream(2, sys.stderr, "<stderr>")


def finish() -> None:
    """Before the process ends: nothing written may be lost."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            if isinstance(stream, TaggedStream):
                stream.finish_line()
            else:
                stream.flush()
