"""Making room in the arena: objects go to a file that has no name, and come back when they are wanted.

Runs in the daemon's thread, which never waits for a disk: the file is the native core's (`native/spilling.hpp`), whose
own thread works on it. What is asked for here is answered by a call when `completed` has heard that it is done. The
file is made at the first need, in the temporary folder (TMPDIR), and unlinked at once, so that nothing is left behind
whatever happens. The variable WEFT_SPILL_LIMIT (bytes) limits what it takes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from weft import _native
from weft.engine.wire import kinds

NAMED_HOLDERS = 5
VARIABLE = "WEFT_SPILL_LIMIT"
_NO_LIMIT = 1 << 62
_LARGER = "Cut it into parts, or start with a larger one, as in weft.init(object_store_memory=8 * 2**30)."
_FEWER = (
    "Drop refs that are not needed, put many small values into one object, or start with a larger store, as in "
    "weft.init(object_store_memory=8 * 2**30): it has more entries."
)


def temporary_folder() -> str:
    import tempfile  # costs milliseconds, and most nodes never spill

    try:
        return tempfile.gettempdir()
    except FileNotFoundError:  # it writes a file to find out, and the disk is full
        return os.environ.get("TMPDIR") or "/tmp"


def temporary_folders() -> list[str]:
    """Where `tempfile` looks; whether one can be written to is found out by who writes there."""
    named = [os.environ.get(name, "") for name in ("TMPDIR", "TEMP", "TMP")]
    return [os.path.abspath(folder) for folder in [*named, "/tmp", "/var/tmp", "/usr/tmp", "."] if folder]


class Done(NamedTuple):
    """What became of a request."""

    code: _native.SpillCode
    size: int
    """Bytes that were written or read; of `no_room`, that were to be read."""
    error: str
    """What the disk said, of `disk_failed`."""
    folder: str
    """Where the file is, or could not be made."""


class Spilling:
    """The node's spill file."""

    def __init__(self, port: _native.NodePort, name_of_slot: Callable[[int], str]) -> None:
        self._port = port
        self._name_of_slot = name_of_slot
        """Who a slot is, for a person."""
        self._arena_bytes = port.statistics()["arena_bytes"]
        self._waiting: dict[int, Callable[[Done], None]] = {}
        """By ticket."""
        self.trouble = ""
        """What the disk refused the last object with; empty when it took it."""
        text = os.environ.get(VARIABLE, "")
        if text and not text.isdigit():
            raise ValueError(f"{VARIABLE} must be a number of bytes, but got {text!r}")
        self._limit = int(text) if text else _NO_LIMIT
        port.begin_spilling(temporary_folders(), self._limit)
        self.fd = port.spill_fd
        """Readable when `completed` has something to tell."""

    def completed(self) -> None:
        """Tell those whose requests are done."""
        for ticket, code, size, error, folder in self._port.take_spilled():
            self._waiting.pop(ticket)(Done(code, size, os.strerror(error), folder))

    def close(self) -> None:
        """Ends the thread, within a piece of what it writes. Nobody is told any more."""
        self._waiting.clear()
        self._port.end_spilling()

    # ---- memory ----

    def make_room(self, wanted: int, then: Callable[[Done], None]) -> None:
        """So many bytes are free when it is `done`, though not always side by side: then ask again."""

        def made(done: Done) -> None:
            self.trouble = ""
            if done.code == "disk_failed":
                self.trouble = f"spilling to {done.folder} failed: {done.error} (set TMPDIR to another folder)"
            then(done)

        self._waiting[self._port.ask_room(wanted)] = made

    def need_space(self, payload: bytes, then: Callable[[bytes | None], None]) -> None:
        """The body of the SPACE record that answers a NEED_SPACE; None when there is no room now, also on disk."""
        wanted, number = kinds.SPACE_BODY.unpack_from(payload)

        def made(done: Done) -> None:
            if done.code == "done":
                then(kinds.SPACE_BODY.pack(max(1, wanted), number))
            elif done.code == "over_limit":
                then(self.refuse_space(payload, f"{VARIABLE} lets no more than {self._limit} bytes be spilled"))
            else:
                then(None)

        if wanted > self._arena_bytes:
            text = f"{_size(wanted)} do not fit: larger than the whole store ({_size(self._arena_bytes)}). {_LARGER}"
            then(kinds.SPACE_BODY.pack(0, number) + text.encode())
        elif not self._port.has_entry():
            count = self._port.statistics()["objects"]
            text = (
                f"its object table is full: {count} objects, in memory and on disk, are as many as it holds. {_FEWER}"
            )
            then(kinds.SPACE_BODY.pack(0, number) + text.encode())
        else:
            self.make_room(wanted, made)

    def refuse_space(self, payload: bytes, why: str = "") -> bytes:
        """The body of the SPACE record that says why there is none."""
        wanted, number = kinds.SPACE_BODY.unpack_from(payload)
        story = self._story(f"{_size(wanted)} do not fit", why)
        return kinds.SPACE_BODY.pack(0, number) + story.encode()

    # ---- objects ----

    def bring_back(self, entry: int, generation: int, then: Callable[[Done], None]) -> None:
        """Into memory; `no_room` when nothing more can be spilled for it now."""

        def restored(done: Done) -> None:
            if done.code != "no_room":
                then(done)
                return
            self.make_room(
                done.size, lambda made: self.bring_back(entry, generation, then) if made.code == "done" else then(done)
            )

        self._waiting[self._port.ask_restore(entry, generation)] = restored

    def restore(self, payload: bytes, then: Callable[[bytes | None], None]) -> None:
        """The body of the RESTORED record that answers a RESTORE; None when there is no room now."""
        entry, generation = kinds.IN_ARENA_BODY.unpack_from(payload)

        def came(done: Done) -> None:
            if done.code == "no_room":
                then(None)
                return
            error = b""
            if done.code in ("gone", "elsewhere"):  # while it was waited for: its owner may make it again
                error = _native.error_value(kinds.ErrorCode.OBJECT_LOST, "it was removed while it was being read")
            elif done.code != "done":
                error = f"a spilled object cannot be brought back: {why_not(done)}".encode()
            then(kinds.RESTORED_BODY.pack(entry, generation, int(not error), 0) + error)

        self.bring_back(entry, generation, came)

    def refuse_restore(self, payload: bytes) -> bytes:
        """The body of the RESTORED record that says why it stays on disk."""
        entry, generation = kinds.IN_ARENA_BODY.unpack_from(payload)
        story = self._story("a spilled object does not fit back")
        return kinds.RESTORED_BODY.pack(entry, generation, 0, 0) + story.encode()

    def _story(self, what: str, why: str = "") -> str:
        why = why or self.trouble or "everything in it is in use, so nothing can be spilled to disk"
        used = self._port.statistics()["used_bytes"]
        largest = "; ".join(
            f"{_size(size)} of {self._name_of_slot(owner)}" + (f", read by {pins}" if pins else "")
            for size, owner, pins in self._port.largest_objects(NAMED_HOLDERS)
        )
        state = f"{_size(used)} of {_size(self._arena_bytes)} are in use"
        return f"{what}: the object store is full ({state}), and {why}. The largest objects: {largest or 'none'}."


def why_not(done: Done) -> str:
    """A spilled object is not in memory, for a person."""
    if done.code == "disk_failed":
        return f"reading it back failed: {done.error}"
    return "no room in the object store" if done.code == "no_room" else "the object is gone"


def _size(count: int) -> str:
    """Bytes for a person.

    >>> _size(1536), _size(3 << 30)
    ('1.5 KiB', '3.0 GiB')
    """
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError
