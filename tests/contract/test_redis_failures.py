"""Storage in Redis when its server dies, comes back, is full, or is replaced by its replica."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis_servers import RedisServer

from waiting import wait_until
from weft.store.redis_storage import RedisStorage, masked, servers_of
from weft.store.state.chain_messages import Entry
from weft.store.storage import StorageDamaged, StorageRefused


def entry(seq: int) -> Entry:
    return Entry(seq, [("kv", b"%d" % seq, b"x" * 100)])


def fill(storage: RedisStorage) -> None:
    while True:
        seq = storage.applied + 1
        storage.apply([Entry(seq, [("kv", b"big%d" % seq, bytes(1 << 20))])])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    one = RedisServer(tmp_path / "one", "--maxmemory", "20mb", "--maxmemory-policy", "noeviction")
    one.start()
    try:
        yield one
    finally:
        one.stop()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (
            "redis://:secret@one:6379|two:6379,user:secret@three:6379/0",
            "redis://:***@one:6379|two:6379,user:***@three:6379/0",
        ),
        ("redis://one:6379?password=secret&db=1", "redis://one:6379?password=***&db=1"),
        ("redis://:sec@ret@one", "redis://:***@one"),
        ("redis://:secret,secret@one:1", "redis://***,***@one:1"),
        ("redis://[::1]:6379", "redis://[::1]:6379"),
        ("redis+unix:///tmp/redis.sock?db=1", "redis+unix:///tmp/redis.sock?db=1"),
    ],
)
def test_a_url_is_shown_without_its_passwords(url: str, shown: str) -> None:
    assert masked(url) == shown


def test_a_server_that_does_not_answer_is_named_without_its_password() -> None:
    with pytest.raises(StorageRefused) as refused:
        RedisStorage("redis://:hunter2@127.0.0.1:1", 0)
    assert "hunter2" not in str(refused.value) and "***" in str(refused.value)


def test_a_dead_server_refuses_and_a_restarted_one_has_all_rows(server: RedisServer) -> None:
    storage = RedisStorage(server.url, 0)
    storage.apply([entry(1), entry(2)])
    server.stop()
    with pytest.raises(StorageRefused, match="no server of the store answers"):
        storage.apply([entry(3)])
    server.start()
    assert storage.read([("kv", b"1"), ("kv", b"3")]) == [b"x" * 100, None]
    storage.apply([entry(3)])
    storage.close()
    again = RedisStorage(server.url, 0)
    assert again.applied == 3
    again.close()


def test_rows_expire_where_nobody_refreshes_them(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    import redis

    rows = redis.Redis(unix_socket_path=str(server.socket))
    storage = RedisStorage(server.url, 0, "weft:mortal", expires_s=1000)
    storage.apply([entry(1)])
    names = sorted(rows.scan_iter("weft:mortal*"))
    assert len(names) == 3 and all(900 < rows.ttl(name) <= 1000 for name in names)
    for name in names:
        rows.expire(name, 500)
    storage.tick()
    assert all(rows.ttl(name) <= 500 for name in names), "it is not due yet"
    monkeypatch.setattr(storage, "_refresh_at", 0.0)
    storage.tick()
    assert all(rows.ttl(name) > 900 for name in names)
    lasting = RedisStorage(server.url, 0, "weft:lasting")
    lasting.apply([entry(1)])
    assert all(rows.ttl(name) == -1 for name in rows.scan_iter("weft:lasting*"))
    for one in (storage, lasting, rows):
        one.close()


def test_rows_that_are_gone_are_not_taken_for_no_rows(server: RedisServer) -> None:
    import redis

    storage = RedisStorage(server.url, 0)
    storage.apply([entry(1)])
    with redis.Redis(unix_socket_path=str(server.socket)) as rows:
        rows.flushall()
    for touch in (
        lambda: storage.read([("kv", b"1")]),
        lambda: storage.scan("kv", b""),
        lambda: storage.apply([entry(2)]),
    ):
        with pytest.raises(StorageDamaged, match="entry 1 was stored last, and now it is 0"):
            touch()
    storage.load([("kv", b"1", b"again")], is_first=True, applied=1)
    assert storage.get("kv", b"1") == b"again"
    storage.close()


def test_a_full_server_refuses_and_takes_more_when_there_is_room(server: RedisServer) -> None:
    storage = RedisStorage(server.url, 0)
    storage.apply([entry(1)])
    with pytest.raises(StorageRefused, match=r"refuses: .*maxmemory"):
        fill(storage)
    stored = storage.applied
    import redis

    admin = redis.Redis(unix_socket_path=str(server.socket))
    admin.config_set("maxmemory", "64mb")
    admin.close()
    storage.apply([entry(stored + 1)])
    assert storage.get("kv", b"1") == b"x" * 100 and storage.applied == stored + 1
    storage.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[RedisServer, RedisServer]]:
    """A primary and its replica; each has a port for the other."""
    first, second = (with_port(tmp_path / name) for name in ("first", "second"))
    second.options += replica_of(first)
    first.start()
    try:
        second.start()
        wait_until(lambda: bool(ask(first, "ROLE")[2]))
        yield first, second
    finally:
        first.stop()
        second.stop()


def with_port(folder: Path) -> RedisServer:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    return RedisServer(folder, "--port", str(port), "--bind", "127.0.0.1", "--repl-diskless-sync-delay", "0")


def replica_of(server: RedisServer) -> tuple[str, ...]:
    return ("--replicaof", "127.0.0.1", server.options[1])


def ask(server: RedisServer, command: str) -> Any:
    import redis

    with redis.Redis(unix_socket_path=str(server.socket)) as client:
        return client.execute_command(command)


def test_a_replica_takes_over_with_everything(pair: tuple[RedisServer, RedisServer]) -> None:
    first, second = pair
    storage = RedisStorage(f"redis+unix://{first.socket}|{second.socket}", 0)
    for seq in range(1, 50):
        storage.apply([entry(seq)])
    first.stop()
    storage.apply([entry(50)])
    assert len(storage.scan("kv", b"")) == 50
    storage.close()


def test_one_that_was_replaced_may_come_back_as_a_replica(pair: tuple[RedisServer, RedisServer]) -> None:
    """It is named first, and has old rows until it has copied the others."""
    first, second = pair
    url = f"redis+unix://{first.socket}|{second.socket}"
    storage = RedisStorage(url, 0)
    storage.apply([entry(1)])
    first.stop()
    storage.apply([entry(2)])
    first.options += replica_of(second)
    first.start()
    storage.close()  # a connection that broke
    storage.apply([entry(3)])
    assert len(storage.scan("kv", b"")) == storage.applied == 3
    storage.close()
    again = RedisStorage(url, 0)
    assert again.applied == 3 and ask(second, "ROLE")[0] == b"master"
    again.close()


def test_a_primary_whose_connection_broke_is_not_replaced(pair: tuple[RedisServer, RedisServer]) -> None:
    first, second = pair
    storage = RedisStorage(f"redis+unix://{first.socket}|{second.socket}", 0)
    storage.apply([entry(1)])
    ask(first, "CLIENT KILL TYPE normal")
    storage.apply([entry(2)])
    assert (ask(first, "ROLE")[0], ask(second, "ROLE")[0]) == (b"master", b"slave")
    storage.close()


def test_without_a_replica_no_entry_waits_for_one(
    pair: tuple[RedisServer, RedisServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    import redis

    waits: list[int] = []
    wait = redis.Redis.wait
    monkeypatch.setattr(redis.Redis, "wait", lambda self, *given: waits.append(wait(self, *given)))
    first, second = pair
    storage = RedisStorage(f"redis+unix://{first.socket}|{second.socket}", 0)
    storage.apply([entry(1)])
    assert waits == [1], "the replica has it"
    second.stop()
    wait_until(lambda: not ask(first, "ROLE")[2])
    storage.apply([entry(2)])
    assert waits == [1]
    storage.close()


def test_a_number_that_is_none_is_damage(server: RedisServer) -> None:
    storage = RedisStorage(server.url, 0)
    storage.apply([entry(1)])
    ask(server, "SET weft:0:applied junk")
    with pytest.raises(StorageDamaged, match=r"weft:0:applied in .* is no number: b'junk'"):
        storage.read([("kv", b"1")])
    storage.close()


def test_shards_go_in_turn_to_several_servers() -> None:
    assert [servers_of("redis://a:1,b:2", shard) for shard in range(3)] == [
        ["redis://a:1"],
        ["redis://b:2"],
        ["redis://a:1"],
    ]
    with pytest.raises(ValueError, match="a store must be redis://host:port"):
        servers_of("http://a", 0)
