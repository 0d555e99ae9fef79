"""Files of checked records: the append-only log of one shard's entries, and its snapshots.

A file begins with eight bytes that say what it is; a record is a header (u32 payload bytes, u32 CRC-32 of the payload,
u32 CRC-32 of these two) and the payload. A last record that is not whole was being written when the process or
machine died: it is cut off, nobody was told that it is there. Anything else that does not fit is damage, and refused.

    folder/log-N        entries from number N on
    folder/snapshot-N   all rows as of entry N; the log from N+1 on follows
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from weft.store.state.chain_messages import Entry
from weft.store.state.chain_rows import Row
from weft.store.storage import StorageDamaged, StorageRefused

LOG_MAGIC = b"WEFTLOG1"
SNAPSHOT_MAGIC = b"WEFTSNP1"
_HEADER = struct.Struct("<III")
_PIECE_ROWS = 1000
_encode = msgspec.msgpack.Encoder().encode
_decode_entry = msgspec.msgpack.Decoder(Entry).decode
_decode_rows = msgspec.msgpack.Decoder(list[Row]).decode
_decode_footer = msgspec.msgpack.Decoder(tuple[int, int]).decode
WriteCall = Callable[[int, bytes], int]


def pack(payload: bytes) -> bytes:
    head = struct.pack("<II", len(payload), zlib.crc32(payload))
    return head + struct.pack("<I", zlib.crc32(head)) + payload


def unpack(record: bytes) -> bytes:
    """The payload of one that is a file of its own. ValueError when it is not what was packed."""
    payload = record[_HEADER.size :]
    if pack(payload) != record:
        raise ValueError(f"its {len(record)} bytes are not what was written")
    return payload


def records(path: Path, magic: bytes) -> Iterator[tuple[int, bytes | None]]:
    """(offset after it, payload) of each; at last (offset, None) if what follows there was never whole.

    Raises StorageDamaged."""
    data = path.read_bytes()
    if data[: len(magic)] != magic:
        if magic.startswith(data):  # it died while it was being made
            yield 0, None
            return
        raise _damaged(path, 0, "it does not begin as it should")
    at = len(magic)
    while at < len(data):
        rest = len(data) - at
        if rest < _HEADER.size:
            yield at, None
            return
        size, payload_crc, header_crc = _HEADER.unpack_from(data, at)
        if zlib.crc32(data[at : at + 8]) != header_crc:
            if not data[at:].strip(b"\0"):  # its length reached the disk, and nothing else
                yield at, None
                return
            raise _damaged(path, at, "a record's header is not what was written")
        if rest < _HEADER.size + size:
            yield at, None
            return
        payload = data[at + _HEADER.size : at + _HEADER.size + size]
        if zlib.crc32(payload) != payload_crc:
            if at + _HEADER.size + size == len(data):
                yield at, None  # its pages reached the disk out of order
                return
            raise _damaged(path, at, "a record is not what was written")
        at += _HEADER.size + size
        yield at, payload


def _damaged(path: Path, offset: int, what: str) -> StorageDamaged:
    return StorageDamaged(
        f"{path} is damaged at byte {offset}: {what}. Entries from there on cannot be trusted. If other replicas of "
        "the shard live, remove the folder and let this server join again; else restore the folder from a backup."
    )


class Log:
    """The file that entries are appended to."""

    def __init__(self, path: Path, write: WriteCall = os.write) -> None:
        """Opens it, new or at its end."""
        self.path = path
        self._write = write
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StorageRefused(f"{path} cannot be opened: {error.strerror or error}") from error
        self.size = os.fstat(self._fd).st_size
        self.is_synced = True
        try:
            if self.size == 0:
                self._append(LOG_MAGIC)
        except StorageRefused:
            os.close(self._fd)
            raise

    def append(self, entries: Iterable[Entry]) -> None:
        """As a whole or, with StorageRefused, not at all."""
        self._append(b"".join(pack(_encode(entry)) for entry in entries))

    def _append(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[self._write(self._fd, bytes(view) if view.nbytes < len(data) else data) :]
        except OSError as error:
            self.cut_back(self.size)
            raise StorageRefused(f"{self.path} cannot be written: {error.strerror or error}") from error
        self.size += len(data)
        self.is_synced = False

    def cut_back(self, size: int) -> None:
        """Forget what was appended after that."""
        try:
            os.ftruncate(self._fd, size)
        except OSError as error:
            raise StorageDamaged(
                f"{self.path} cannot be cut back to {size} bytes: {error.strerror or error}"
            ) from error
        self.size = size

    def sync(self) -> None:
        """StorageDamaged when the disk does not take it: nobody can say then what of it is there."""
        if not self.is_synced:
            try:
                os.fdatasync(self._fd)
            except OSError as error:
                raise StorageDamaged(f"{self.path} cannot be made durable: {error.strerror or error}") from error
            self.is_synced = True

    def to_be_synced(self) -> int:
        """A descriptor of its own: what was appended until now is durable when its holder has synced it."""
        self.is_synced = True
        return os.dup(self._fd)

    def close(self) -> None:
        os.close(self._fd)


def read_log(path: Path, after: int) -> Iterator[Entry]:
    """Its entries after that number; a torn end is cut off."""
    for offset, payload in records(path, LOG_MAGIC):
        if payload is None:
            os.truncate(path, offset)
            return
        try:
            entry = _decode_entry(payload)
        except msgspec.MsgspecError as error:
            raise _damaged(path, offset, f"a record is no entry ({error})") from error
        if entry.seq > after:
            yield entry


def write_snapshot(folder: Path, applied: int, rows: Iterable[Row], write: WriteCall = os.write) -> Path:
    """All rows, durable under its name only when whole. Raises StorageRefused."""
    path = folder / f"snapshot-{applied}"
    temporary = folder / "snapshot.part"
    count = 0
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write_all(fd, SNAPSHOT_MAGIC, write)
            piece: list[Row] = []
            for row in rows:
                piece.append(row)
                if len(piece) == _PIECE_ROWS:
                    _write_all(fd, pack(_encode(piece)), write)
                    count += len(piece)
                    piece = []
            _write_all(fd, pack(_encode(piece)), write)
            _write_all(fd, pack(_encode((applied, count + len(piece)))), write)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, path)
        sync_folder(folder)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise StorageRefused(f"no snapshot can be written to {folder}: {error.strerror or error}") from error
    return path


def read_snapshot(path: Path) -> tuple[int, list[Row]]:
    """(applied, rows). Raises StorageDamaged, also when it is cut short."""
    pieces = []
    end = 0
    for offset, payload in records(path, SNAPSHOT_MAGIC):
        if payload is None:
            raise _damaged(path, offset, "it is cut short")
        pieces.append(payload)
        end = offset
    if len(pieces) < 2:
        raise _damaged(path, end, "it is cut short")
    try:
        applied, count = _decode_footer(pieces[-1])
        rows = [row for piece in pieces[:-1] for row in _decode_rows(piece)]
    except msgspec.MsgspecError as error:
        raise _damaged(path, end, f"it is cut short, or not a snapshot ({error})") from error
    if len(rows) != count:
        raise _damaged(path, end, f"it has {len(rows)} rows, but {count} were written")
    return applied, rows


def _write_all(fd: int, data: bytes, write: WriteCall) -> None:
    while data:
        data = data[write(fd, data) :]


def sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def numbered(folder: Path, kind: str) -> list[tuple[int, Path]]:
    """The logs or snapshots of a folder, by number."""
    found = []
    for path in folder.glob(f"{kind}-*"):
        with contextlib.suppress(ValueError):
            found.append((int(path.name.removeprefix(f"{kind}-")), path))
    return sorted(found)
