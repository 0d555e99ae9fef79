"""What every storage of the control store must do; run on each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis_servers import RedisServer, redis_program

from weft.store.embedded import EmbeddedStorage
from weft.store.redis_storage import RedisStorage
from weft.store.state.chain_messages import Entry, WriteRequest
from weft.store.state.chain_requests import Stale, decide
from weft.store.state.chain_rows import Change, Delete, Put, Row
from weft.store.storage import LARGEST_KEY, Storage, check_request

FORMS = ("memory", "folder", "redis")
TABLES = ("kv", "objects", "events")
KEYS = st.binary(max_size=3)
CHANGES = st.lists(st.tuples(st.sampled_from(TABLES), KEYS, st.none() | st.binary(max_size=20)), max_size=8)
Open = Callable[[], Storage]


@pytest.fixture(scope="module", autouse=True)
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer | None]:
    """None where there can be none; for all tests, so that none of them leaves it behind."""
    try:
        server = RedisServer(tmp_path_factory.mktemp("redis"))
    except pytest.skip.Exception:
        yield None
        return
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(params=FORMS)
def open_storage(request: pytest.FixtureRequest, tmp_path: Path, redis_server: RedisServer | None) -> Iterator[Open]:
    """Opens the test's own storage: each time the same, where it outlives its process."""
    opened: list[Storage] = []
    if request.param == "redis" and redis_server is None:
        redis_program()  # skips, and says why
    url = redis_server.url if redis_server is not None else ""

    def call() -> Storage:
        if request.param == "redis":
            opened.append(RedisStorage(url, 0, prefix=tmp_path.name))
        else:
            opened.append(EmbeddedStorage(tmp_path / "store" if request.param == "folder" else None))
        return opened[-1]

    yield call
    for storage in opened:
        storage.close()
    if request.param == "redis":
        last = RedisStorage(url, 0, prefix=tmp_path.name)
        last.clear()
        last.close()


@pytest.fixture
def storage(open_storage: Open) -> Storage:
    return open_storage()


def all_rows(storage: Storage) -> list[Row]:
    return [(table, key, value) for table in sorted(TABLES) for key, value in storage.scan(table, b"")]


def model(entries: list[list[Change]]) -> list[Row]:
    rows: dict[tuple[str, bytes], bytes] = {}
    for changes in entries:
        for table, key, value in changes:
            rows.pop((table, key), None)
            if value is not None:
                rows[(table, key)] = value
    return sorted((table, key, value) for (table, key), value in rows.items())


@given(entries=st.lists(CHANGES, max_size=8), cut=st.integers(0, 8))
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
def test_entries_have_their_effects_whole_and_in_order(
    open_storage: Open, entries: list[list[Change]], cut: int
) -> None:
    storage = open_storage()
    storage.load([], True, 0)
    numbered = [Entry(seq, changes) for seq, changes in enumerate(entries, 1)]
    storage.apply(numbered[:cut])
    storage.apply(numbered[cut:])
    assert all_rows(storage) == model(entries)
    assert storage.applied == len(entries)
    keys = [(table, key) for table in TABLES for key in (b"", b"a")]
    assert storage.read(keys) == [storage.get(*key) for key in keys]
    assert sum(storage.statistics().values()) == len(model(entries))


def test_a_scan_is_by_prefix_and_in_order(storage: Storage) -> None:
    for table in TABLES:
        keys = [b"b\xff", b"a1", b"b", b"b*", b"b?2", b"\xff\xff", b"\xff\xff\x01"]
        storage.apply([Entry(storage.applied + 1, [(table, key, key) for key in keys])])
        assert [key for key, _ in storage.scan(table, b"b")] == [b"b", b"b*", b"b?2", b"b\xff"]
        assert [key for key, _ in storage.scan(table, b"\xff\xff")] == [b"\xff\xff", b"\xff\xff\x01"]
        assert len(storage.scan(table, b"")) == 7
    assert storage.scan("nothing", b"") == []


def test_rows_are_copied_in_pieces_while_others_are_written(storage: Storage, tmp_path: Path) -> None:
    big = b"x" * 50_000
    changes: list[Change] = [(table, b"%03d" % index, big) for table in TABLES for index in range(40)]
    storage.apply([Entry(1, changes)])
    copy = EmbeddedStorage(tmp_path / "copy")
    after, pieces = None, 0
    while True:
        rows, after = storage.rows_after(after)
        copy.load(rows, pieces == 0, None if after is not None else 1)
        pieces += 1
        seq = storage.applied + 1
        storage.apply([Entry(seq, [("kv", b"%03d" % seq, None), ("objects", b"new%d" % seq, b"1")])])
        if after is None:
            break
        assert copy.applied == -1
    assert pieces > 1
    missed = [
        Entry(seq, [("kv", b"%03d" % seq, None), ("objects", b"new%d" % seq, b"1")]) for seq in range(2, pieces + 2)
    ]
    copy.apply(missed)
    try:
        assert all_rows(copy) == all_rows(storage)
    finally:
        copy.close()


def test_loading_replaces_what_was_there(storage: Storage) -> None:
    storage.apply([Entry(1, [(table, b"old", b"1") for table in TABLES])])
    storage.load([("kv", b"new", b"2")], True, None)
    assert storage.applied == -1
    storage.load([("events", b"new", b"3")], False, 7)
    assert all_rows(storage) == [("events", b"new", b"3"), ("kv", b"new", b"2")]
    storage.apply([Entry(8, [("kv", b"a", b"4")])])
    assert storage.applied == 8


def test_what_was_applied_is_there_after_a_restart(open_storage: Open, request: pytest.FixtureRequest) -> None:
    if request.node.callspec.params["open_storage"] == "memory":
        pytest.skip("memory does not outlive its process")
    storage = open_storage()
    storage.apply([Entry(1, [(table, b"k", b"1") for table in TABLES]), Entry(2, [("kv", b"k", None)])])
    storage.close()
    again = open_storage()
    assert again.applied == 2
    assert all_rows(again) == [("events", b"k", b"1"), ("objects", b"k", b"1")]


def test_a_request_is_done_once_however_often_it_comes(storage: Storage) -> None:
    first = WriteRequest(
        0, "c", 1, [[Put("kv", b"a", b"1", True)], [Put("kv", b"a", b"2", True)], [Delete("kv", b"b")]]
    )
    changes, outcomes = decide(storage, first)
    assert changes is not None and outcomes == [True, False, True]
    storage.apply([Entry(1, changes)])
    assert storage.get("kv", b"a") == b"1"
    assert decide(storage, first) == (None, [True, False, True])
    changes, _ = decide(storage, WriteRequest(0, "c", 2, [[Delete("kv", b"a")]]))
    assert changes is not None
    storage.apply([Entry(2, changes)])
    with pytest.raises(Stale, match="comes after"):
        decide(storage, first)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (Put("no such", b"k", b""), "there is no table 'no such'; there are"),
        (Put("$sessions", b"k", b""), "there is no table"),
        (Delete("kv", b"k" * (LARGEST_KEY + 1)), "a key of 4,097 bytes in 'kv' is too long: at most 4,096"),
        (Put("kv", b"k", bytes((64 << 20) + 1)), "a value of 67,108,865 bytes for b'k' in 'kv' is too large"),
    ],
)
def test_what_no_storage_takes_is_refused_with_a_reason(write: Put | Delete, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_request(WriteRequest(0, "c", 1, [[write]]))
