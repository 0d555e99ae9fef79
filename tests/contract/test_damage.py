"""A storage in a folder whose disk is full, torn or damaged: refused or repaired, and nothing stored is lost."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.store import journal
from weft.store.embedded import EmbeddedStorage
from weft.store.state.chain_messages import Entry
from weft.store.storage import LARGEST_ANSWER, StorageDamaged, StorageRefused, check_answer


def entry(seq: int, size: int = 10) -> Entry:
    return Entry(seq, [("kv", b"%d" % seq, b"x" * size)])


def filled(folder: Path, count: int = 5) -> Path:
    storage = EmbeddedStorage(folder)
    storage.apply([entry(seq) for seq in range(1, count + 1)])
    storage.close()
    return folder / "log-1"


def fill(storage: EmbeddedStorage, size: int = 10) -> None:
    while True:
        storage.apply([entry(storage.applied + 1, size)])


def reopened(folder: Path) -> int:
    storage = EmbeddedStorage(folder)
    try:
        assert {int(key) for key, _ in storage.scan("kv", b"")} == set(range(1, storage.applied + 1))
        return storage.applied
    finally:
        storage.close()


@given(cut=st.integers(1, 60))
@settings(max_examples=30, deadline=None)
def test_a_torn_end_is_cut_off_and_writing_goes_on(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    folder = tmp_path_factory.mktemp("torn")
    log = filled(folder)
    os.truncate(log, log.stat().st_size - cut)
    kept = reopened(folder)
    assert kept < 5 and kept >= 5 - 1 - cut // 20
    storage = EmbeddedStorage(folder)
    storage.apply([entry(kept + 1)])
    storage.close()
    assert reopened(folder) == kept + 1


def test_an_end_of_zeros_is_cut_off(tmp_path: Path) -> None:
    log = filled(tmp_path)
    with log.open("ab") as file:
        file.write(bytes(4096))
    assert reopened(tmp_path) == 5


@given(at=st.integers(0, 100), bit=st.integers(0, 7))
@settings(max_examples=40, deadline=None)
def test_a_damaged_middle_is_refused_with_file_and_offset(
    tmp_path_factory: pytest.TempPathFactory, at: int, bit: int
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    log = filled(folder)
    data = bytearray(log.read_bytes())
    data[at] ^= 1 << bit
    log.write_bytes(data)
    with pytest.raises(StorageDamaged, match=r"log-1 is damaged at byte \d+: .* cannot be trusted"):
        EmbeddedStorage(folder)


def test_a_cut_snapshot_is_refused(tmp_path: Path) -> None:
    storage = EmbeddedStorage(tmp_path)
    storage.apply([entry(seq) for seq in range(1, 3000)])
    storage.compact()
    storage.close()
    (path,) = tmp_path.glob("snapshot-*")
    os.truncate(path, path.stat().st_size - 3)
    with pytest.raises(StorageDamaged, match=r"snapshot-2999 is damaged at byte .* it is cut short"):
        EmbeddedStorage(tmp_path)


def test_a_missing_log_is_refused(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.rename(tmp_path / "log-3")
    with pytest.raises(StorageDamaged, match="begins with entry 3, but the files before it end with 0: one is missing"):
        EmbeddedStorage(tmp_path)


def test_a_snapshot_replaces_the_log_and_both_are_read_again(tmp_path: Path) -> None:
    storage = EmbeddedStorage(tmp_path, compact_bytes=2000)
    for seq in range(1, 200):
        storage.apply([entry(seq)])
    storage.close()
    assert len(list(tmp_path.glob("log-*"))) == 1
    again = EmbeddedStorage(tmp_path)
    assert again.applied == 199 and len(again.scan("kv", b"")) == 199
    again.close()


def test_a_disk_that_does_not_keep_what_it_took_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    storage = EmbeddedStorage(tmp_path)
    storage.apply([entry(1)])
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", fails)
        with pytest.raises(StorageDamaged, match="log-1 cannot be made durable: Input/output error"):
            storage.tick()
    storage.close()


def test_damaged_rows_on_disk_are_not_read(tmp_path: Path) -> None:
    storage = EmbeddedStorage(tmp_path)
    storage.apply([Entry(seq, [("events", b"%d" % seq, b"x" * 3000)]) for seq in range(1, 30)])
    storage.compact()
    storage.close()
    path = tmp_path / "disk_rows.sqlite"
    path.write_bytes(path.read_bytes()[:8192] + b"?" * (path.stat().st_size - 8192))
    storage = EmbeddedStorage(tmp_path)
    try:
        with pytest.raises(StorageDamaged, match=r"disk_rows\.sqlite is damaged: database disk image is malformed"):
            storage.scan("events", b"")
    finally:
        storage.close()


def test_rows_that_fit_in_no_answer_are_refused_with_what_to_do() -> None:
    check_answer(LARGEST_ANSWER)
    with pytest.raises(ValueError, match="do not fit in one answer, of at most 251,658,240: ask for fewer keys"):
        check_answer(LARGEST_ANSWER + 1)


class Disk:
    """Takes so many bytes, and then has no room, until there is more."""

    def __init__(self, room: int) -> None:
        self.room = room

    def write(self, fd: int, data: bytes) -> int:
        if self.room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = os.write(fd, data[: self.room])
        self.room -= written
        return written


@given(room=st.integers(8, 600))
@settings(max_examples=40, deadline=None)
def test_a_full_disk_refuses_the_entry_keeps_what_was_there_and_goes_on_later(
    tmp_path_factory: pytest.TempPathFactory, room: int
) -> None:
    folder = tmp_path_factory.mktemp("full")
    disk = Disk(room)
    storage = EmbeddedStorage(folder, write=disk.write)
    with pytest.raises(StorageRefused, match="log-1 cannot be written: No space left on device"):
        fill(storage)
    stored = storage.applied
    assert storage.get("kv", b"%d" % (stored + 1)) is None
    disk.room = 1 << 20
    storage.apply([entry(stored + 1), entry(stored + 2)])
    storage.close()
    assert reopened(folder) == stored + 2


def test_a_snapshot_that_finds_no_room_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    disk = Disk(5000)
    storage = EmbeddedStorage(tmp_path, write=disk.write, compact_bytes=2000)
    while disk.room > 300:
        storage.apply([entry(storage.applied + 1)])
    stored = storage.applied
    storage.close()
    assert not list(tmp_path.glob("*.part"))
    assert reopened(tmp_path) == stored


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "weft-test", tmp_path], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        storage = EmbeddedStorage(tmp_path / "store")
        ballast = tmp_path / "ballast"
        ballast.write_bytes(bytes(100 << 10))
        with pytest.raises(StorageRefused, match="No space left on device"):
            fill(storage, 5000)
        stored = storage.applied
        ballast.unlink()
        storage.apply([entry(stored + 1, 5000)])
        storage.close()
        assert reopened(tmp_path / "store") == stored + 1
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_fsync_must_be_one_of_the_known_words(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="fsync must be one of always, periodic, never, but got 'sometimes'"):
        EmbeddedStorage(tmp_path, fsync="sometimes")


def test_a_record_survives_the_way_through_the_file(tmp_path: Path) -> None:
    path = tmp_path / "records"
    path.write_bytes(journal.LOG_MAGIC + journal.pack(b"one") + journal.pack(b""))
    assert [payload for _, payload in journal.records(path, journal.LOG_MAGIC)] == [b"one", b""]
