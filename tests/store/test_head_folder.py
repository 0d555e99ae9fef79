"""The folder of a cluster's head: what is kept in it, whatever happens to its writer or its disk."""

from __future__ import annotations

import errno
import functools
import json
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from waiting import wait_until
from weft.machine.start_error import StartError
from weft.net.loop import Loop
from weft.store import head_folder
from weft.store.embedded import EmbeddedStorage
from weft.store.head_folder import HeadFolder, Tables, epoch_in, supersede
from weft.store.state.chain_rows import Delete, Put, Write
from weft.store.tables import EVENTS, KV

LONG_S = 20.0


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.close()


def opened(loop: Loop, path: Path, fsync: str = "periodic") -> tuple[HeadFolder, Tables]:
    folder = HeadFolder(loop, path, b"secret", fsync)
    folder.open()
    return folder, folder.read()


def kept(loop: Loop, folder: HeadFolder, batch: list[Write]) -> None:
    """Returns when it is."""
    done: list[bool] = []
    folder.keep(batch, lambda *_: done.append(True))
    while not done:
        loop.run_once(LONG_S)


def rows_of(loop: Loop, path: Path) -> dict[bytes, bytes]:
    folder, tables = opened(loop, path)
    folder.close()
    return dict(tables.get(KV, []))


@pytest.mark.parametrize("fsync", ["always", "periodic", "never"])
def test_what_was_kept_is_there_when_the_folder_is_opened_again(loop: Loop, tmp_path: Path, fsync: str) -> None:
    folder, tables = opened(loop, tmp_path / "store", fsync)
    assert tables == {}
    kept(loop, folder, [Put(KV, b"a", b"1"), Put(EVENTS, b"e", b"2"), Put(KV, b"b", b"3")])
    kept(loop, folder, [Delete(KV, b"a"), head_folder.row_of_epoch(7)])
    folder.close()
    again, tables = opened(loop, tmp_path / "store")
    again.close()
    assert tables[KV] == [(b"b", b"3")]
    assert tables[EVENTS] == [(b"e", b"2")]
    assert epoch_in(tables) == 7
    assert head_folder.token_in(tmp_path / "store") == b"secret"


def test_a_writer_that_dies_leaves_all_that_was_answered(loop: Loop, tmp_path: Path) -> None:
    """At each moment of which a trace could be on disk."""
    store = tmp_path / "store"
    folder, _ = opened(loop, store)
    kept(loop, folder, [Put(KV, b"0", b"")])
    (log,) = store.glob("rows-*/log-*")
    sizes = [log.stat().st_size]
    for number in range(1, 3):
        kept(loop, folder, [Put(KV, b"%d" % number, b"x" * number)])
        sizes.append(log.stat().st_size)
    whole = log.read_bytes()
    for cut in range(sizes[0], len(whole)):
        copy = tmp_path / f"copy-{cut}"
        shutil.copytree(store, copy)
        (copy / log.relative_to(store)).write_bytes(whole[:cut])
        answered = sum(size <= cut for size in sizes)
        assert rows_of(loop, copy).keys() == {b"%d" % number for number in range(answered)}
        shutil.rmtree(copy)
    folder.close()


def test_rows_that_take_the_place_of_others_count_only_when_all_are_there(loop: Loop, tmp_path: Path) -> None:
    store = tmp_path / "store"
    folder, _ = opened(loop, store)
    kept(loop, folder, [Put(KV, b"old", b"1")])
    folder.close()
    half = store / "rows-2"
    EmbeddedStorage(half).close()  # the writer was killed before its first snapshot
    assert rows_of(loop, store) == {b"old": b"1"}
    assert not half.exists()
    folder, _ = opened(loop, store)
    folder.begin({KV: [(b"new", b"2")]}, 9)
    kept(loop, folder, [Put(KV, b"newer", b"3")])
    folder.close()
    assert rows_of(loop, store) == {b"new": b"2", b"newer": b"3"}
    assert len(list(store.glob("rows-*"))) == 1


def test_a_full_disk_is_told_and_caught_up_with(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    is_full = False

    def write(fd: int, data: bytes) -> int:
        if is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.write(fd, data)

    monkeypatch.setattr(head_folder, "EmbeddedStorage", functools.partial(EmbeddedStorage, write=write))
    monkeypatch.setattr(head_folder, "AGAIN_S", 0.01)
    folder, _ = opened(loop, tmp_path / "store")
    kept(loop, folder, [Put(KV, b"before", b"1")])
    is_full = True
    kept(loop, folder, [Put(KV, b"while", b"2")])  # the head goes on
    kept(loop, folder, [Put(KV, b"before", b"3"), Delete(KV, b"while")])
    assert "goes on without its store" in capfd.readouterr().err
    is_full = False
    kept(loop, folder, [Put(KV, b"after", b"4")])
    folder.close()
    assert "has all that it missed" in capfd.readouterr().err
    assert rows_of(loop, tmp_path / "store") == {b"before": b"3", b"after": b"4"}


@pytest.mark.parametrize("fsync", ["always", "periodic"])
def test_a_disk_that_does_not_keep_what_it_took_is_given_everything_again(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], fsync: str
) -> None:
    folder, _ = opened(loop, tmp_path / "store", fsync)
    kept(loop, folder, [Put(KV, b"a", b"1")])
    has_failed = threading.Event()

    def fails(fd: int) -> None:
        if not has_failed.is_set():
            has_failed.set()
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", fails)
    kept(loop, folder, [Put(KV, b"b", b"2")])
    assert has_failed.wait(LONG_S)
    wait_until(lambda: (tmp_path / "store" / "rows-2" / "snapshot-0").exists())
    kept(loop, folder, [Put(KV, b"c", b"3")])
    folder.close()
    assert "cannot be made durable" in capfd.readouterr().err
    assert rows_of(loop, tmp_path / "store") == {b"a": b"1", b"b": b"2", b"c": b"3"}


def test_a_writer_that_fails_for_a_reason_of_its_own_goes_on(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder, _ = opened(loop, tmp_path / "store")
    kept(loop, folder, [Put(KV, b"a", b"1")])
    with monkeypatch.context() as patched:
        patched.setattr(EmbeddedStorage, "apply", lambda *_: 1 // 0)
        kept(loop, folder, [Put(KV, b"b", b"2")])
    kept(loop, folder, [Put(KV, b"c", b"3")])
    folder.close()
    assert "ZeroDivisionError" in capfd.readouterr().err
    assert rows_of(loop, tmp_path / "store") == {b"a": b"1", b"b": b"2", b"c": b"3"}


def test_one_process_at_a_time_has_the_folder(loop: Loop, tmp_path: Path) -> None:
    folder, _ = opened(loop, tmp_path / "store")
    with pytest.raises(StartError, match=rf"in use by another head \(pid {os.getpid()} on .*--no-store"):
        opened(loop, tmp_path / "store")
    supersede(tmp_path / "store", "nothing, as it is in use")
    folder.close()
    again, _ = opened(loop, tmp_path / "store")
    again.close()


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"format": 2, "python": "3.99"}, "has the format 2"),
        ({"format": 1, "python": "3.99"}, "was written with Python 3.99"),
    ],
)
def test_a_folder_of_another_version_is_refused(
    loop: Loop, tmp_path: Path, about: dict[str, object], message: str
) -> None:
    folder, _ = opened(loop, tmp_path / "store")
    folder.close()
    (tmp_path / "store" / "about.json").write_text(json.dumps(about))
    with pytest.raises(StartError, match=message):
        opened(loop, tmp_path / "store")


def test_a_folder_with_other_files_is_refused(loop: Loop, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(StartError, match=r"is no folder of a store.*thesis\.tex"):
        opened(loop, tmp_path)


def test_a_damaged_folder_is_refused_with_the_name_of_the_file(loop: Loop, tmp_path: Path) -> None:
    folder, _ = opened(loop, tmp_path / "store")
    for number in range(3):
        kept(loop, folder, [Put(KV, b"%d" % number, b"value")])
    folder.close()
    (log,) = tmp_path.glob("store/rows-*/log-*")
    data = bytearray(log.read_bytes())
    data[20] ^= 1
    log.write_bytes(data)
    with pytest.raises(StartError, match=r"log-1 is damaged at byte .*To begin anew move"):
        opened(loop, tmp_path / "store")


def test_rows_that_another_head_has_newer_ones_of_are_refused(loop: Loop, tmp_path: Path) -> None:
    store = tmp_path / "store"
    folder, _ = opened(loop, store)
    kept(loop, folder, [Put(KV, b"a", b"1")])
    folder.close()
    supersede(store, "node 3f2a at 10.0.0.2:6379 is the head of the cluster in epoch 5")
    with pytest.raises(StartError, match=r"not the newest: node 3f2a at 10\.0\.0\.2:6379 is the head"):
        opened(loop, store)
    (store / "superseded").unlink()
    assert rows_of(loop, store) == {b"a": b"1"}
    supersede(store, "another")
    successor = HeadFolder(loop, store, b"secret")
    successor.open(is_successor=True)
    successor.begin({}, 6)
    successor.close()
    assert rows_of(loop, store) == {}
