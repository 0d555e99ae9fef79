"""Who may talk to a node: the right token, the right protocol, nothing else; and that nothing else does harm."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable

import psutil
import pytest

import weft
from waiting import wait_until
from weft.cluster_utils import Cluster
from weft.engine.cluster import launch
from weft.engine.node.config import ClusterConfig, NodeConfig
from weft.engine.wire import link_codec
from weft.engine.wire import link_messages as lm
from weft.engine.wire.link import CHUNK, HEADER, MESSAGE
from weft.net import auth, endpoint
from weft.net.auth import Handshake, Refused
from weft.net.tls import FIRST_BYTE


def connect(cluster: Cluster) -> socket.socket:
    host, _, port = cluster.address.rpartition(":")
    return socket.create_connection((host, int(port)), 10)


def connect_locally(cluster: Cluster) -> socket.socket:
    """As a process of the same user does."""
    connection = endpoint.connect_locally(cluster.address)
    assert connection is not None
    connection.settimeout(10)
    return connection


def ends(connection: socket.socket) -> bool:
    """Whether the node closes the connection, whatever it says before."""
    connection.settimeout(15)
    try:
        while connection.recv(4096):
            pass
    except ConnectionError:
        pass
    return True


def is_well(cluster: Cluster) -> bool:
    return len(launch.ask_nodes(cluster.address, cluster._token).members) == 1


def test_a_wrong_token_is_refused_with_a_reason(cluster: Cluster) -> None:
    with pytest.raises(Refused, match="the token is wrong"):
        launch.ask_nodes(cluster.address, b"guessed")
    with pytest.raises(RuntimeError, match="cannot be joined: refused: the token is wrong"):
        launch.start(NodeConfig(num_cpus=1), b"guessed", ClusterConfig(-1, head=cluster.address, is_leashed=True))
    assert is_well(cluster)


def test_another_version_is_refused_with_a_reason(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, connect_locally(cluster) as connection:
        patch.setattr(auth, "VERSION", 99)
        handshake = Handshake(cluster._token, accepts=False, binding=endpoint.LOCAL_BINDING)
        connection.sendall(handshake.take_output())
        answer = b""
        while part := connection.recv(4096):
            answer += part
    assert b"run the same Weft on all nodes" in answer
    assert is_well(cluster)


@pytest.mark.parametrize(
    "junk",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\xff\xff" + bytes(300),
        b"\x15" + os.urandom(5000),
        bytes(100),
    ],
    ids=["http", "tls", "random", "zeros"],
)
@pytest.mark.parametrize("way", [connect, connect_locally])
def test_garbage_is_refused(cluster: Cluster, junk: bytes, way: Callable[[Cluster], socket.socket]) -> None:
    assert cluster.head_node is not None
    with way(cluster) as connection:
        connection.sendall(junk)
        assert ends(connection)
    assert is_well(cluster)  # it answers after it has written the line, which it may do after it hung up
    is_tls = way is connect and junk.startswith(FIRST_BYTE)
    why = "no encrypted connection" if is_tls else "the other side does not speak Weft's protocol"
    assert f"refused: {why}" in cluster.head_node.log()


@pytest.mark.parametrize(
    "frame",
    [
        HEADER.pack(5, 77) + b"hello",
        HEADER.pack(5, MESSAGE) + b"hello",
        HEADER.pack(0xFFFFFFFF, MESSAGE),
        HEADER.pack(0xFFFFFFFF, CHUNK),
        HEADER.pack(3, CHUNK) + b"abc",
        HEADER.pack(1, MESSAGE) + b"\x90",
    ],
)
def test_a_broken_frame_of_someone_with_the_token_ends_its_link_only(cluster: Cluster, frame: bytes) -> None:
    with connect_locally(cluster) as connection:
        handshake = Handshake(cluster._token, accepts=False, binding=endpoint.LOCAL_BINDING)
        connection.sendall(handshake.take_output())
        while not handshake.is_done:
            handshake.feed(connection.recv(4096))
            connection.sendall(handshake.take_output())
        connection.sendall(frame)
        assert ends(connection)
    assert is_well(cluster)


def test_half_a_handshake_is_ended_with_a_reason(cluster: Cluster) -> None:
    assert cluster.head_node is not None
    with connect_locally(cluster) as connection:
        connection.sendall(Handshake(b"token", accepts=False).take_output()[:20])
        connection.shutdown(socket.SHUT_WR)
        assert ends(connection)
    assert is_well(cluster)  # what came before it is written by then
    assert "a link was not made: it left before it had proved who it is" in cluster.head_node.log()


@weft.remote
def nothing() -> None: ...


def test_ten_thousand_connections_keep_nobody_out_and_fill_no_log(cluster: Cluster) -> None:
    assert cluster.head_node is not None
    daemon = psutil.Process(cluster.head_node.pid)
    before = daemon.num_fds()
    weft.init(address=cluster.address)
    try:
        for wave in range(20):
            crowd = [connect(cluster) for _ in range(500)]
            for number, connection in enumerate(crowd):
                if number % 3:
                    with contextlib.suppress(OSError):  # it may have been sent away before it speaks
                        connection.send(b"GET / HTTP/1.1\r\n\r\n" if number % 3 == 1 else os.urandom(100))
            weft.get([nothing.remote() for _ in range(10)], timeout=30)
            assert daemon.num_fds() < before + 500, f"strangers of wave {wave} were not sent away"
            for connection in crowd:
                connection.close()
        cluster.wait_for_nodes()
        assert is_well(cluster)
    finally:
        weft.shutdown()
    wait_until(lambda: "more links were not made" in cluster.head_node.log())
    assert len(cluster.head_node.log().splitlines()) < 1000


@pytest.mark.parametrize("is_local", [True, False])
def test_who_has_proved_the_token_is_pushed_out_by_no_crowd(
    cluster: Cluster, is_local: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_local:
        monkeypatch.setenv(endpoint.VARIABLE, "0")
    with contextlib.ExitStack() as crowd, endpoint.BlockingStream(cluster.address, 10) as honest:
        launch.prove(honest, cluster._token)
        for _ in range(2 * endpoint.MOST_STRANGERS):
            crowd.enter_context(connect(cluster))
        body = link_codec.encode(lm.Call(1, "status", {}))
        honest.send(HEADER.pack(len(body), MESSAGE) + body)
        assert honest.receive()


def test_each_side_must_have_the_token() -> None:
    impostor, victim = Handshake(b"other", accepts=True), Handshake(b"right", accepts=False)
    impostor.feed(victim.take_output())
    victim.feed(impostor.take_output())
    with pytest.raises(Refused, match="the token is wrong"):
        impostor.feed(victim.take_output())
    with pytest.raises(Refused, match="the token is wrong"):
        victim.feed(impostor.take_output())
    forged = Handshake(b"right", accepts=False)
    opening = Handshake(b"other", accepts=True).take_output()
    forged.feed(opening)
    with pytest.raises(Refused, match="does not have the token"):
        forged.feed(b"Y" + bytes(32))


def test_a_handshake_may_come_byte_by_byte() -> None:
    one, other = Handshake(b"token", accepts=True), Handshake(b"token", accepts=False)
    rest = b""
    while not (one.is_done and other.is_done):
        for byte in other.take_output():
            rest += one.feed(bytes([byte]))
        for byte in one.take_output():
            rest += other.feed(bytes([byte]))
    assert rest == b""
