"""Real servers of the control store: killed, joined, restarted, lied to."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from stores import Store

from waiting import wait_until
from weft.net.endpoint import MOST_STRANGERS
from weft.store.state.chain_layout import Place
from weft.store.state.chain_messages import COMPLETE, AnyMessage, Enlist, NotServing, Wish, WriteReply
from weft.store.state.chain_rows import Delete, Put
from weft.store.store_client import BlockingClient, ControlStoreError


def read_on(client: BlockingClient) -> None:
    while True:  # until the tail's lease has run out
        client.read([("kv", b"k")])


@pytest.fixture
def store() -> Iterator[Store]:
    one = Store(3)
    try:
        yield one
    finally:
        one.close()


def test_rows_are_written_read_scanned_and_told_to_subscribers(store: Store) -> None:
    client, other = store.client(), store.client()
    store.wait_whole(client, 3)  # a tail that has just joined tells the outcome again
    heard: list[tuple[bytes, bytes | None]] = []
    leave = other.subscribe("kv", b"a", lambda *change: heard.append(change))
    assert client.write([Put("kv", b"a%d" % index, b"%d" % index) for index in range(20)])
    assert client.write([Put("kv", b"a0", b"x", if_absent=True)]) is False
    assert client.write([Delete("kv", b"a0")]) and client.write([Put("kv", b"b", b"1")])
    assert client.read([("kv", b"a1"), ("kv", b"a0"), ("objects", b"a1")]) == [b"1", None, None]
    assert [key for key, _ in client.scan("kv", b"a1")] == [b"a1", *(b"a%d" % index for index in range(10, 20))]
    while len(heard) < 21:
        other.run_for(0.05)
    assert sorted(heard[:20]) == sorted((b"a%d" % index, b"%d" % index) for index in range(20))
    assert heard[20:] == [(b"a0", None)]
    leave()


@pytest.mark.parametrize("which", ["head", "middle", "tail"])
def test_the_death_of_any_replica_loses_nothing_and_another_joins(store: Store, which: str) -> None:
    client = store.client()
    watcher = store.client()
    heard: dict[bytes, bytes | None] = {}
    watcher.subscribe("kv", b"", lambda key, value: heard.update({key: value}))
    chain = store.wait_whole(client, 3).chains[0]
    victim = {"head": chain.head, "middle": chain.members[1], "tail": chain.tail}[which].server
    for index in range(300):
        if index == 100:
            store.kill(victim)
        assert client.write([Put("kv", b"%d" % index, b"v%d" % index)])
        assert client.read([("kv", b"%d" % index)]) == [b"v%d" % index]
    store.wait_for(client, lambda one: victim not in one.servers)
    store.add_server()
    store.wait_whole(client, 3)
    assert client.scan("kv") == sorted((b"%d" % index, b"v%d" % index) for index in range(300))
    while len(heard) < 300:
        watcher.run_for(0.05)
    assert heard == {b"%d" % index: b"v%d" % index for index in range(300)}
    assert victim not in client.client.state.configuration.servers  # type: ignore[union-attr]


def test_a_server_that_falls_silent_is_cut_out_and_joins_again_when_it_is_heard(store: Store) -> None:
    client = store.client()
    silent = store.wait_whole(client, 3).chains[0].members[1].server
    os.kill(store.servers[silent].process.pid, signal.SIGSTOP)
    try:
        assert client.write([Put("kv", b"k", b"1")])
        store.wait_for(client, lambda one: silent not in {place.server for c in one.chains for place in c.places()})
    finally:
        os.kill(store.servers[silent].process.pid, signal.SIGCONT)
    store.wait_whole(client, 3)
    assert client.read([("kv", b"k")]) == [b"1"]


def test_of_two_servers_the_other_goes_on_when_the_founder_dies() -> None:
    store = Store(2)
    try:
        client = store.client()
        store.wait_whole(client, 2)
        client.write([Put("jobs", b"1", b"running")])
        founder = next(iter(store.servers))
        store.kill(founder)
        store.wait_for(client, lambda one: founder not in one.servers)
        assert client.read([("jobs", b"1")]) == [b"running"]
        store.add_server()
        store.wait_for(client, lambda one: all(len(chain.members) == 2 for chain in one.chains))
        assert client.write([Put("jobs", b"1", b"over", if_absent=True)]) is False
    finally:
        store.close()


def test_the_founder_and_then_another_die_and_the_rows_are_there(store: Store) -> None:
    client = store.client()
    founder = next(iter(store.servers))
    client.write([Put("jobs", b"1", b"running")])
    store.wait_whole(client, 3)
    store.kill(founder)
    store.wait_for(client, lambda one: founder not in one.servers)
    store.add_server()
    store.wait_whole(client, 3)
    store.kill(client.client.state.configuration.council[-1])  # type: ignore[union-attr]
    assert client.read([("jobs", b"1")]) == [b"running"]


def test_servers_that_resign_together_end_by_themselves_and_leave_the_rows_to_the_last() -> None:
    store = Store(5, shards=4)
    try:
        client = store.client()
        client.write([Put("kv", b"%d" % index, b"v") for index in range(20)])
        store.wait_for(client, lambda one: len(one.servers) == len(one.council) == 5)
        *resigning, last = store.servers
        for name in resigning:
            store.servers[name].resign()
        assert [store.servers[name].process.wait(30) for name in resigning] == [0] * 4
        assert store.wait_for(client, lambda one: len(one.servers) == 1).council == (last,)
        assert len(client.scan("kv")) == 20 and client.write([Put("kv", b"more", b"v")])
        store.servers[last].resign()
        assert store.servers[last].process.wait(30) == 0
    finally:
        store.close()


def test_chains_of_one_store_have_different_heads() -> None:
    store = Store(3, shards=4)
    try:
        client = store.client()
        store.wait_for(client, lambda one: len({chain.head.server for chain in one.chains}) > 1)
    finally:
        store.close()


def test_a_server_with_a_folder_comes_back_with_its_rows(tmp_path: Path) -> None:
    store = Store(0)
    try:
        name = store.add_server(str(tmp_path))
        client = store.client()
        client.write([Put("actors", b"a", b"alive"), Put("events", b"t", b"done")])
        store.kill(name)
        assert store.add_server(str(tmp_path)) == name
        again = store.client()
        assert again.read([("actors", b"a"), ("events", b"t")]) == [b"alive", b"done"]
        assert again.write([Put("actors", b"a", b"1", if_absent=True)]) is False
    finally:
        store.close()


@pytest.mark.parametrize("file", ["council", "shard-0/log-1"])
def test_a_server_whose_folder_is_damaged_says_so_in_a_sentence(tmp_path: Path, file: str) -> None:
    store = Store(0, shards=1)
    try:
        name = store.add_server(str(tmp_path))
        store.client().write([Put("kv", b"%d" % index, b"v") for index in range(5)] + [Put("events", b"e", b"v")])
        store.kill(name)
        damaged = bytearray((tmp_path / file).read_bytes())
        damaged[12] ^= 1
        (tmp_path / file).write_bytes(damaged)
        with pytest.raises(RuntimeError, match="did not come up: exit status 1"):
            store.add_server(str(tmp_path))
        said = store.log_text()
        assert f"{tmp_path / file} is damaged" in said and "join again" in said and "Traceback" not in said
    finally:
        store.close()


def test_a_server_that_can_not_keep_its_votes_gives_none_and_comes_back_with_its_rows(tmp_path: Path) -> None:
    store = Store(0, shards=1)
    try:
        name = store.add_server(str(tmp_path))
        store.client().write([Put("kv", b"k", b"v")])
        (tmp_path / "council.part").mkdir()  # as a full disk does, it keeps the file from being written
        store.add_server()
        assert store.servers[name].process.wait(30) == 1
        said = store.log_text()
        assert "its part in the council cannot be kept" in said and "Traceback" not in said
        for gone in list(store.servers):
            store.kill(gone)
        (tmp_path / "council.part").rmdir()
        assert store.add_server(str(tmp_path)) == name
        assert store.client().read([("kv", b"k")]) == [b"v"]
    finally:
        store.close()


def test_a_store_without_a_majority_answers_with_an_error_and_not_with_old_rows(store: Store) -> None:
    client = store.client(give_up_s=1.0)
    chain = store.wait_whole(client, 3).chains[0]
    client.write([Put("kv", b"k", b"1")])
    for name in [name for name in store.servers if name != chain.tail.server]:
        os.kill(store.servers[name].process.pid, 19)  # stopped, not dead: nobody may decide without them
    deaf = store.client(give_up_s=4.0)
    with pytest.raises(ControlStoreError, match="did not answer in time"):
        read_on(deaf)
    for server in store.servers.values():
        os.kill(server.process.pid, 18)
    assert store.client().read([("kv", b"k")]) == [b"1"]


def test_what_makes_no_sense_is_refused_with_a_reason(store: Store) -> None:
    client = store.client()
    with pytest.raises(ValueError, match="there is no table 'nonsense'"):
        client.write([Put("nonsense", b"k", b"")])
    with pytest.raises(ControlStoreError, match="a batch with a condition must lie in one shard"):
        client.write([Put("kv", b"k%d" % index, b"", if_absent=True) for index in range(20)])
    with pytest.raises(ValueError, match="a batch of 150,994,947 bytes is too large: at most 134,217,728"):
        client.write([Put("kv", b"k", bytes(48 << 20))] * 3)
    wrong = store.client(token=b"another", give_up_s=0.5)
    with pytest.raises(ControlStoreError, match="no server of it was reached"):
        wrong.read([("kv", b"k")])
    up = next(iter(store.servers.values())).up
    assert up is not None
    host, port = up.address.split(":")
    for junk in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(500), b"WEFTLINK"):
        with socket.create_connection((host, int(port))) as stranger:
            stranger.sendall(junk)
    assert client.write([Put("kv", b"k", b"1")])
    assert "the other side does not speak Weft's protocol" in store.log_text()
    assert "the token is wrong" in store.log_text()


def test_a_crowd_of_strangers_is_capped_fills_no_log_and_keeps_nobody_out(store: Store) -> None:
    client = store.client()
    server = next(iter(store.servers.values()))
    assert server.up is not None
    host, port = server.up.address.split(":")
    process = psutil.Process(server.process.pid)
    before = process.num_fds()
    crowd: list[socket.socket] = []
    try:
        for number in range(3 * MOST_STRANGERS):
            crowd.append(socket.create_connection((host, int(port)), 20))
            if number % 3 == 0:
                with contextlib.suppress(OSError):  # it may have been sent away by now
                    crowd[-1].sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert client.write([Put("kv", b"k", b"1")])
        assert process.num_fds() <= before + MOST_STRANGERS + 64
        newcomer = store.client()
        assert newcomer.read([("kv", b"k")]) == [b"1"]
    finally:
        for each in crowd:
            each.close()
    wait_until(lambda: "more links were not made; the last" in store.log_text())
    assert len(store.log_text().splitlines()) < MOST_STRANGERS


@pytest.mark.parametrize(
    "message",
    [WriteReply(0, 1, [True]), NotServing(0, 1, True), Wish(99, Place("x", 1), COMPLETE), Enlist("ghost", "nowhere")],
    ids=lambda message: type(message).__name__,
)
def test_a_peer_that_sends_what_makes_no_sense_ends_no_server(message: AnyMessage) -> None:
    store = Store(1, shards=1)
    try:
        confused = store.client()
        confused.write([Put("kv", b"k", b"v")])
        link = next(iter(confused.client._links.values()))
        link.send(message)
        link.flush()
        store.add_server()  # a configuration takes in what was wished for
        client = store.client()
        assert len(store.wait_whole(client, 2).servers) == 2
        assert client.read([("kv", b"k")]) == [b"v"]
    finally:
        store.close()


def test_servers_end_with_whoever_started_them(store: Store) -> None:
    processes = [psutil.Process(server.process.pid) for server in store.servers.values()]
    store.close()
    assert not any(process.is_running() for process in processes)
    store.__init__(0)  # type: ignore[misc]
