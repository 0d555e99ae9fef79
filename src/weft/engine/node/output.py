r"""Output of workers, on its way from their pipes to the driver of their job.

Runs in the daemon's thread. Lines are tagged by the worker with the name of the task or actor that wrote them
(`\x1e` NAME `\x1f` TEXT); untagged ones have no name. They are sent in batches, the first at once and the following
after `BATCH_S`. What one worker writes beyond `LARGEST_BATCH_BYTES` in that time is dropped, with a note.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable

from weft.engine.state.events import Process
from weft.net.loop import Loop, Timer

BATCH_S = 0.02
LARGEST_BATCH_BYTES = 1 << 20
LONGEST_LINE_BYTES = 64 << 10
_READ_BYTES = 64 << 10

Deliver = Callable[[Process, str, list[tuple[str, str]]], None]
"""Send (worker, "stdout" or "stderr", [(name, text)])."""


class Stream:
    """One pipe of one worker: bytes in, named lines out."""

    def __init__(self, process: Process, name: str, fd: int) -> None:
        self.process = process
        self.name = name
        self.fd = fd
        self.lines: list[tuple[str, str]] = []
        self._unsent_bytes = 0
        self._dropped = 0
        self._partial = b""

    def feed(self, data: bytes) -> None:
        *whole, self._partial = (self._partial + data).split(b"\n")
        for line in whole:
            self._add(self._without_what_is_long(line))
        self._partial = self._without_what_is_long(self._partial)

    def _without_what_is_long(self, line: bytes) -> bytes:
        """The last piece of a line whose pieces before it are added: at most `LONGEST_LINE_BYTES` each."""
        while len(line) > LONGEST_LINE_BYTES:
            self._add(line[:LONGEST_LINE_BYTES])
            line = line[LONGEST_LINE_BYTES:]
        return line

    def finish(self) -> None:
        """The worker is gone: its last line may lack an end."""
        if self._partial:
            self._add(self._partial)
            self._partial = b""

    def take(self) -> list[tuple[str, str]]:
        """What there is to send."""
        lines, self.lines = self.lines, []
        if self._dropped:
            note = f"[weft] {self._dropped} more lines were dropped: over {LARGEST_BATCH_BYTES >> 20} MB at once"
            lines.append(("", note))
        self._dropped = self._unsent_bytes = 0
        return lines

    def _add(self, line: bytes) -> None:
        if self._unsent_bytes + len(line) > LARGEST_BATCH_BYTES:
            self._dropped += 1
            return
        self._unsent_bytes += len(line) + 1
        name = b""
        if line[:1] == b"\x1e":
            name, _, line = line[1:].partition(b"\x1f")
        self.lines.append((name.decode("utf-8", "replace"), line.decode("utf-8", "replace")))


class WorkerOutput:
    """The pipes of all workers."""

    def __init__(self, loop: Loop, deliver: Deliver) -> None:
        self._loop = loop
        self._deliver = deliver
        self._streams: dict[Process, list[Stream]] = {}
        self._unsent: dict[Stream, None] = {}
        self._timer: Timer | None = None
        self._last_batch_s = 0.0

    def open(self, process: Process) -> list[int]:
        """Make a worker's pipes; the ends for it to write to."""
        write_ends: list[int] = []
        self._streams[process] = []
        for name in ("stdout", "stderr"):
            try:
                read_end, write_end = os.pipe2(os.O_CLOEXEC)
            except OSError:
                for fd in write_ends:
                    os.close(fd)
                raise
            os.set_blocking(read_end, False)
            stream = Stream(process, name, read_end)
            self._streams[process].append(stream)
            self._loop.watch(read_end, lambda stream=stream: self._read(stream))  # type: ignore[misc]
            write_ends.append(write_end)
        return write_ends

    def close(self, process: Process) -> None:
        """The worker is dead: send what it has left behind."""
        for stream in self._streams.pop(process, []):
            self._read_all(stream)
            if stream.fd >= 0:
                self._shut(stream)
            stream.finish()
            self._unsent[stream] = None
        self._send()

    def flush(self) -> None:
        """Everything that has been written until now."""
        for streams in list(self._streams.values()):
            for stream in streams:
                self._read_all(stream)
        self._send()

    def close_all(self) -> None:
        for process in list(self._streams):
            self.close(process)

    def _read(self, stream: Stream) -> None:
        self._read_once(stream)
        if self._timer is None:
            wait_s = self._last_batch_s + BATCH_S - time.monotonic()
            if wait_s > 0:
                self._timer = self._loop.call_later(wait_s, self._send)
            else:
                self._send()

    def _read_once(self, stream: Stream) -> bool:
        """Whether there may be more."""
        try:
            data = os.read(stream.fd, _READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._shut(stream)
            return False
        stream.feed(data)
        self._unsent[stream] = None
        return True

    def _read_all(self, stream: Stream) -> None:
        while stream.fd >= 0 and self._read_once(stream):
            pass

    def _shut(self, stream: Stream) -> None:
        self._loop.unwatch(stream.fd)
        with contextlib.suppress(OSError):
            os.close(stream.fd)
        stream.fd = -1

    def _send(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._last_batch_s = time.monotonic()
        unsent, self._unsent = self._unsent, {}
        for stream in unsent:
            if lines := stream.take():
                self._deliver(stream.process, stream.name, lines)
