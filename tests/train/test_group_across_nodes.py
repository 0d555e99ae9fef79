"""Members on two nodes: the same results, bit by bit, and the same errors as in one node."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import ssl
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from group_members import MemberActor, error_of

import weft
from weft import train
from weft.testing import Cluster
from weft.train.mesh import MeshMember
from weft.train.mesh_links import Lost, connect, exchange
from weft.util.peer_sockets import PeerEndpoint
from weft.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from weft.util.shared_block import OPERATIONS

SIZE = 3


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[list[str]]:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        cluster.add_node(num_cpus=1)
        weft.init(address=cluster.address)
        yield [node["NodeID"] for node in weft.nodes() if node["Alive"]]
    finally:
        weft.shutdown()
        cluster.shutdown()


@pytest.fixture
def actors(two_nodes: list[str]) -> Iterator[list[Any]]:
    """Ranks 0 and 2 on one node, rank 1 on the other."""
    meeting = train.Meeting(SIZE)
    made = [
        MemberActor.options(scheduling_strategy=NodeAffinitySchedulingStrategy(two_nodes[rank % 2], soft=False)).remote(
            meeting, rank, {}
        )
        for rank in range(SIZE)
    ]
    weft.get([actor.join.remote() for actor in made])
    yield made
    for actor in made:
        weft.kill(actor)


def numbers(rank: int, shape: Any) -> Any:
    return np.random.default_rng(rank).normal(size=shape).astype(np.float32)


def run(actors: list[Any], work: Any, *args: Any) -> list[Any]:
    return weft.get([actor.run.remote(work, *args) for actor in actors])


@pytest.mark.parametrize("length", [0, 5, 100_001])
def test_operations_give_what_they_give_in_one_node(actors: list[Any], length: int) -> None:
    def work(group: train.Group, length: int) -> list[Any]:
        mine, rows = numbers(group.rank, length), numbers(9 + group.rank, (group.size, length))
        ring = np.zeros(length, np.float32)
        if group.rank == 0:
            group.send(mine, 1)
        elif group.rank == 1:
            group.recv(ring, 0)
        group.barrier()
        return [
            ring,
            group.all_reduce(mine.copy()),
            group.reduce(mine.copy(), root=1, op="max"),
            group.reduce_scatter(rows),
            group.all_gather(mine),
            group.gather(mine, root=2),
            group.scatter(np.zeros(length, np.float32), rows if group.rank == 1 else None, root=1),
            group.broadcast(mine.copy(), root=2),
            group.all_to_all(rows),
        ]

    arrays = [numbers(rank, length) for rank in range(SIZE)]
    tables = [numbers(9 + rank, (SIZE, length)) for rank in range(SIZE)]
    total = arrays[0] + arrays[1] + arrays[2]  # in the order of the ranks, so to the last bit
    for rank, result in enumerate(run(actors, work, length)):
        ring, summed, largest, share, gathered, at_root, scattered, cast, exchanged = result
        np.testing.assert_array_equal(ring, arrays[0] if rank == 1 else np.zeros(length))
        np.testing.assert_array_equal(summed, total)
        np.testing.assert_array_equal(largest, np.max(arrays, axis=0) if rank == 1 else arrays[rank])
        np.testing.assert_array_equal(share, (tables[0] + tables[1] + tables[2])[rank : rank + 1])
        np.testing.assert_array_equal(gathered, np.stack(arrays))
        assert at_root is None if rank != 2 else np.array_equal(at_root, np.stack(arrays))
        np.testing.assert_array_equal(scattered, tables[1][rank])
        np.testing.assert_array_equal(cast, arrays[2])
        np.testing.assert_array_equal(exchanged, np.stack([table[rank] for table in tables]))


@pytest.mark.parametrize("bad", [0, 1])
def test_mismatches_and_bad_arguments_raise_on_all_and_the_group_goes_on(actors: list[Any], bad: int) -> None:
    def mismatch(group: train.Group) -> None:
        group.all_reduce(np.zeros(4 if group.rank == bad else 3))

    def refuse(group: train.Group) -> None:
        group.all_reduce([1] if group.rank == bad else np.zeros(3))

    refs = [actor.run.remote(mismatch) for actor in actors]
    for error in (error_of(ref) for ref in refs):
        assert isinstance(error, train.MismatchError)
        assert "all_reduce of float64 (4,) by sum" in str(error)
    refs = [actor.run.remote(refuse) for actor in actors]
    for rank, error in enumerate(error_of(ref) for ref in refs):
        assert isinstance(error, TypeError if rank == bad else train.MismatchError)
    assert [array[0] for array in run(actors, lambda group: group.all_reduce(np.ones(1)))] == [3.0] * SIZE


def test_a_member_that_is_killed_ends_the_operation_on_all(actors: list[Any]) -> None:
    waiting = [actors[rank].run.remote(lambda group: group.all_reduce(np.zeros(100_000))) for rank in (0, 2)]
    actors[1].run.remote(lambda group: os.kill(os.getpid(), signal.SIGKILL))
    for error in (error_of(ref) for ref in waiting):
        assert isinstance(error, train.MemberLostError)
        assert error.rank == 1


def test_a_member_that_leaves_ends_the_next_operation_on_all(actors: list[Any]) -> None:
    weft.get(actors[1].run.remote(lambda group: group.close()))
    refs = [actors[rank].run.remote(lambda group: group.barrier()) for rank in (0, 2)]
    for error in (error_of(ref) for ref in refs):
        assert isinstance(error, train.MemberLostError)
        assert "rank 1 left" in str(error)


def test_one_who_never_comes_ends_the_meeting(two_nodes: list[str]) -> None:
    with pytest.raises(train.GroupTimeoutError, match="rank 1 did not come in time"):
        train.Meeting(2).join(0, join_timeout_s=0.2)


def test_members_that_share_a_node_of_the_cluster_use_its_memory(two_nodes: list[str]) -> None:
    group = train.Meeting(1).join(0)
    assert type(group._member).__name__ == "GroupMember"
    group.close()


@pytest.fixture(params=["0", "1"], ids=["encrypted", "local"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_LOCAL_LINKS", request.param)


def test_a_stranger_is_not_let_in(way: None) -> None:
    listener = PeerEndpoint("127.0.0.1")
    places = {0: ("n", "127.0.0.1", listener.port), 1: ("n", "", 0)}
    failed: list[BaseException] = []

    def stranger() -> None:
        try:
            connect(1, places, listener, b"another secret", 5.0)
        except Lost as lost:
            failed.append(lost)

    thread = threading.Thread(target=stranger)
    thread.start()
    with listener, pytest.raises(Lost):
        connect(0, places, listener, b"the secret", 0.5)
    thread.join()
    assert len(failed) == 1


def meet(endpoint: PeerEndpoint, size: int = 2) -> list[MeshMember]:
    """All members of a mesh, each made on a thread of its own."""
    places = dict.fromkeys(range(size), ("n", "127.0.0.1", endpoint.port))
    made: dict[int, MeshMember] = {}

    def join(rank: int) -> None:
        with PeerEndpoint("127.0.0.1") as own:
            listens = endpoint if rank == 0 else own
            places[rank] = ("n", "127.0.0.1", listens.port)
            came.wait(10)
            made[rank] = MeshMember(rank, size, connect(rank, places, listens, b"the secret", 20), 20)

    came = threading.Barrier(size)
    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [made[rank] for rank in range(size)]


def test_what_members_exchange_over_a_network_is_encrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody in between sees all that passes."""
    monkeypatch.setenv("WEFT_LOCAL_LINKS", "0")
    seen = bytearray()
    arrays = [np.full(300_000, rank + 1, np.float32) for rank in range(2)]
    with PeerEndpoint("127.0.0.1") as endpoint, socket.create_server(("127.0.0.1", 0)) as relay:

        def pass_on(source: socket.socket, target: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while data := source.recv(1 << 16):
                    seen.extend(data)
                    target.sendall(data)

        def relay_one() -> None:
            one, _ = relay.accept()
            other = socket.create_connection(("127.0.0.1", endpoint.port))
            with one, other:
                threads = [threading.Thread(target=pass_on, args=ends) for ends in ((one, other), (other, one))]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()

        thread = threading.Thread(target=relay_one)
        thread.start()
        links: dict[int, dict[int, socket.socket]] = {}
        places = {0: ("n", "127.0.0.1", relay.getsockname()[1]), 1: ("n", "", 0)}
        with PeerEndpoint("127.0.0.1") as other:
            first = threading.Thread(
                target=lambda: links.__setitem__(0, connect(0, places, endpoint, b"the secret", 20))
            )
            first.start()
            links[1] = connect(1, places, other, b"the secret", 20)
            first.join()
        assert isinstance(links[0][1], ssl.SSLSocket) and isinstance(links[1][0], ssl.SSLSocket)
        members = [MeshMember(rank, 2, links[rank], 20) for rank in range(2)]
        reduced = OPERATIONS.index("all_reduce")
        threads = [
            threading.Thread(target=member.perform, args=(reduced, 0, 0, 0, (300_000,), None, array))
            for member, array in zip(members, arrays, strict=True)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        for member in members:
            member.leave()
        thread.join()
    assert all((array == 3).all() for array in arrays)
    assert len(seen) > arrays[0].nbytes and bytes(np.full(8, 2, np.float32)) not in seen


def test_strangers_that_say_nothing_keep_no_group_from_meeting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_LOCAL_LINKS", "0")
    with PeerEndpoint("127.0.0.1") as endpoint:
        silent = [socket.create_connection(("127.0.0.1", endpoint.port)) for _ in range(40)]
        members = meet(endpoint)
        for member in members:
            member.leave()
        for stranger in silent:
            assert stranger.recv(1) == b""  # sent away when all had come
            stranger.close()


def test_silence_is_ended_by_the_timeout() -> None:
    left, right = socket.socketpair()
    left.setblocking(False)
    with left, right, pytest.raises(Lost) as caught:
        exchange({1: left}, {}, {1: (bytearray(1),)}, 0.01)
    assert caught.value.rank == 1
