"""Unpacks .zip and .whl files of users: all of it inside one folder, or nothing of it."""

from __future__ import annotations

import os
import shutil
import stat
import struct
import zipfile
import zlib

try:
    from lzma import LZMAError
except ImportError:  # a Python without it refuses such entries by name
    LZMAError = zipfile.BadZipFile  # type: ignore[assignment,misc]

MOST_ENTRIES = 1_000_000
"""Each is a file, however empty."""
MOST_DEPTH = 200
"""Of folders in each other: to remove thousands takes a call in a call, and a descriptor, for each."""
_MODE_SHIFT = 16
"""Where a zip entry's external attributes have the file's mode."""
_DAMAGED = (zipfile.BadZipFile, NotImplementedError, EOFError, RuntimeError, struct.error, zlib.error, LZMAError)
"""What reading an archive raises that is none, is damaged or wants a password."""
_UNWRITABLE = (OSError, MemoryError, UnicodeError)
"""What comes of names that are too long, that are file and folder at once or no text, of damaged bzip2, and of LZMA
that wants more memory than there is."""


def unpack(archive: str, target: str, most_bytes: int) -> int:
    """How many bytes it holds. ValueError, and nothing is left behind, where it is no archive, is damaged, holds more
    than `most_bytes`, or has an entry that would lie outside the folder or is neither file nor folder."""
    try:
        return _unpack(archive, target, most_bytes)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise


def _unpack(archive: str, target: str, most_bytes: int) -> int:
    try:
        with zipfile.ZipFile(archive) as file:
            entries = file.infolist()
            if len(entries) > MOST_ENTRIES:
                raise ValueError(
                    f"{os.path.basename(archive)} has {len(entries):,} entries; {MOST_ENTRIES:,} are the most"
                )
            for entry in entries:
                _check(archive, entry)
            size = sum(entry.file_size for entry in entries)
            if size > most_bytes:
                raise ValueError(
                    f"{os.path.basename(archive)} holds {size:,} bytes, and {most_bytes:,} are the most that a runtime "
                    "environment may have. Leave files out of it, or set WEFT_RUNTIME_ENV_MOST_BYTES."
                )
            for entry in entries:
                # What it was written to: the name in the archive may say something else.
                path = file.extract(entry, target)
                if (mode := entry.external_attr >> _MODE_SHIFT & 0o777) and not entry.is_dir():
                    os.chmod(path, mode | 0o600, follow_symlinks=False)
    except (*_DAMAGED, *_UNWRITABLE) as error:
        raise ValueError(f"{os.path.basename(archive)} cannot be unpacked: {error or type(error).__name__}") from error
    return size


def _check(archive: str, entry: zipfile.ZipInfo) -> None:
    kind = stat.S_IFMT(entry.external_attr >> _MODE_SHIFT)
    # `orig_filename` is what stands in the archive; `filename` ends at a zero byte, or is its second name.
    for name in (entry.orig_filename, entry.filename):
        parts = name.replace("\\", "/").split("/")
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            why = "it is a link or a device"
        elif not name or not parts[0] or (name[1:2] == ":" and name[0].isalpha()):
            why = "its path is absolute"
        elif ".." in parts:
            why = "its path leads out of the folder"
        elif len(parts) > MOST_DEPTH:
            why = f"its path has more than {MOST_DEPTH} parts"
        elif "\0" in name:
            why = "its name has a zero byte"
        elif not entry.is_dir() and set(parts) <= {"", "."}:
            why = "its path is the folder's own"
        else:
            continue
        raise ValueError(f"{os.path.basename(archive)} is refused: of its entry {name[:100]!r}, {why}")
