"""Making room in the arena: objects go to a file that has no name, and come back when they are wanted.

Runs in the daemon's thread. The file is made at the first need, in the temporary folder (TMPDIR), and unlinked at
once, so that nothing is left behind whatever happens. The variable WEFT_SPILL_LIMIT (bytes) limits what it takes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from weft import _native
from weft.engine.wire import kinds

NAMED_HOLDERS = 5
VARIABLE = "WEFT_SPILL_LIMIT"
_BLOCK_BYTES = 512
"""What `st_blocks` counts in."""
_LARGER = "Cut it into parts, or start with a larger one, as in weft.init(object_store_memory=8 * 2**30)."


def temporary_folder() -> str:
    import tempfile  # costs milliseconds, and most nodes never spill

    try:
        return tempfile.gettempdir()
    except FileNotFoundError:  # it writes a file to find out, and the disk is full
        return os.environ.get("TMPDIR") or "/tmp"


class Spilling:
    """The node's spill file."""

    def __init__(self, port: _native.NodePort, name_of_slot: Callable[[int], str]) -> None:
        self._port = port
        self._name_of_slot = name_of_slot
        """Who a slot is, for a person."""
        self._fd = -1
        self.trouble = ""
        """What the disk refused the last object with; empty when it took it."""
        text = os.environ.get(VARIABLE, "")
        if text and not text.isdigit():
            raise ValueError(f"{VARIABLE} must be a number of bytes, but got {text!r}")
        self._limit = int(text) if text else None

    def need_space(self, payload: bytes) -> bytes | None:
        """The body of the SPACE record that answers a NEED_SPACE; None when there is no room now, also on disk."""
        wanted, number = kinds.SPACE_BODY.unpack_from(payload)
        if wanted > (arena := self._port.statistics()["arena_bytes"]):
            text = f"{_size(wanted)} do not fit: larger than the whole store ({_size(arena)}). {_LARGER}"
            return kinds.SPACE_BODY.pack(0, number) + text.encode()
        try:
            if (freed := self._spill(wanted)) == 0 and self._port.has_room(wanted):
                freed = wanted  # somebody else has freed it meanwhile
            if freed:
                return kinds.SPACE_BODY.pack(freed, number)
            if not self._has_room(wanted):
                return self.refuse_space(payload, f"{VARIABLE} lets no more than {self._limit} bytes be spilled")
        except OSError:
            pass  # `trouble` has it; space may come
        return None

    def refuse_space(self, payload: bytes, why: str = "") -> bytes:
        """The body of the SPACE record that says why there is none."""
        wanted, number = kinds.SPACE_BODY.unpack_from(payload)
        why = why or self.trouble or self._why_nothing_was_freed()
        story = self._story(f"{_size(wanted)} do not fit", why)
        return kinds.SPACE_BODY.pack(0, number) + story.encode()

    def make_room(self, wanted: int) -> bool:
        """Whether something was freed."""
        try:
            return self._spill(wanted) > 0
        except OSError:
            return False

    def restore(self, payload: bytes) -> bytes | None:
        """The body of the RESTORED record that answers a RESTORE; None when there is no room now."""
        entry, generation = kinds.PROCESS_BODY.unpack_from(payload)
        try:
            ok, why = self._port.restore(entry, generation, self._file())
            while not ok and "room" in why and self.make_room(1):  # one object after the other
                ok, why = self._port.restore(entry, generation, self._file())
        except OSError as error:
            ok, why = False, f"reading it back failed: {error.strerror or error}"
        if not ok and "room" in why:
            return None
        text = "" if ok else f"a spilled object can not be brought back: {why}"
        return kinds.RESTORED_BODY.pack(entry, generation, int(ok), 0) + text.encode()

    def refuse_restore(self, payload: bytes) -> bytes:
        """The body of the RESTORED record that says why it stays on disk."""
        entry, generation = kinds.PROCESS_BODY.unpack_from(payload)
        story = self._story("a spilled object does not fit back", self.trouble or self._why_nothing_was_freed())
        return kinds.RESTORED_BODY.pack(entry, generation, 0, 0) + story.encode()

    def _spill(self, wanted: int) -> int:
        """So many bytes were freed."""
        try:
            if not self._has_room(wanted):
                self._port.spill(0, self._file())  # gives the space of objects that are gone back
                if not self._has_room(wanted):
                    return 0
            freed = self._port.spill(wanted, self._file())
            if not freed and (code := self._port.spill_errno()):
                raise OSError(code, os.strerror(code))
        except OSError as error:
            self.trouble = f"spilling to {temporary_folder()} failed: {error.strerror or error}"
            raise
        self.trouble = ""
        return freed

    def _has_room(self, wanted: int) -> bool:
        if self._limit is None:
            return True
        return os.fstat(self._file()).st_blocks * _BLOCK_BYTES + wanted <= self._limit

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _file(self) -> int:
        if self._fd < 0:
            folder = temporary_folder()
            with contextlib.suppress(OSError):  # not every file system can make a file without a name
                self._fd = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
            if self._fd < 0:
                path = os.path.join(folder, f"weft-spill-{os.urandom(8).hex()}")
                self._fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
                os.unlink(path)
        return self._fd

    def _why_nothing_was_freed(self) -> str:
        room = os.statvfs(temporary_folder())
        if room.f_bavail * room.f_frsize < 64 << 20:
            return f"the disk of {temporary_folder()} is full too (set TMPDIR to another)"
        return "everything in it is in use, so nothing can be spilled to disk"

    def _story(self, what: str, why: str) -> str:
        known = self._port.statistics()
        largest = "; ".join(
            f"{_size(size)} of {self._name_of_slot(owner)}" + (f", read by {pins}" if pins else "")
            for size, owner, pins in self._port.largest_objects(NAMED_HOLDERS)
        )
        used = f"{_size(known['used_bytes'])} of {_size(known['arena_bytes'])} are in use"
        return f"{what}: the object store is full ({used}), and {why}. The largest objects: {largest or 'none'}."


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
