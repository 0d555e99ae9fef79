"""Local sockets beside ports: taken within one user, ignored where somebody else has the name."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator

import pytest

from weft.net import endpoint
from weft.net.credentials import peer_pid
from weft.net.endpoint import BlockingStream, Endpoint, connect_locally, dial
from weft.net.loop import Loop
from weft.net.tls import TlsSession


@pytest.fixture
def port() -> Iterator[Endpoint]:
    made = Endpoint("127.0.0.1", 0)
    yield made
    made.close()


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is at the other end of a local socket is said to be another user."""

    def refuse(connection: socket.socket) -> int:
        raise PermissionError("process 1 belongs to another user")

    monkeypatch.setattr(endpoint, "peer_pid", refuse)


def accepted_by(port: Endpoint, rounds: int = 1) -> list[TlsSession | None]:
    loop = Loop()
    came: list[TlsSession | None] = []

    def take(connection: socket.socket, tls: TlsSession | None) -> None:
        connection.close()
        came.append(tls)

    port.open(loop, take)
    for _ in range(rounds):
        loop.run_once(1.0)
    port.close()
    loop.close()
    return came


def test_processes_of_one_user_meet_without_encryption_and_over_no_port(port: Endpoint) -> None:
    connection, error, tls = dial(port.address)
    with connection:
        assert (connection.family, error, tls) == (socket.AF_UNIX, 0, None)
        assert accepted_by(port) == [None]


def test_a_listener_of_another_user_is_not_connected_to(port: Endpoint, stranger: None) -> None:
    assert connect_locally(port.address) is None
    connection, _, tls = dial(port.address)
    with connection:
        assert connection.family == socket.AF_INET and tls is not None


def test_another_user_is_not_accepted_over_the_local_socket(port: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    local = connect_locally(port.address)
    assert local is not None
    with local:
        monkeypatch.setattr(endpoint, "peer_pid", lambda _: (_ for _ in ()).throw(PermissionError()))
        assert accepted_by(port) == []
        assert local.recv(1, socket.MSG_DONTWAIT) == b""


def test_who_has_only_knocked_costs_no_encryption(port: Endpoint) -> None:
    """A port that makes a session for each is full of them, and an honest one is told so only after seconds."""
    host, _, number = port.address.rpartition(":")
    with contextlib.ExitStack() as stack:
        for knock in range(100):
            made = stack.enter_context(socket.create_connection((host, int(number))))
            if knock == 50:
                made.sendall(b"\x16")
            else:
                made.close()
        assert len(accepted_by(port)) == 1


def test_who_sends_nothing_is_left_to_the_kernel_for_a_while(port: Endpoint) -> None:
    host, _, number = port.address.rpartition(":")
    loop = Loop()
    came: list[bytes] = []

    def take(connection: socket.socket, _: TlsSession | None) -> None:
        with connection:
            came.append(connection.recv(1))

    port.open(loop, take)
    with socket.create_connection((host, int(number))), socket.create_connection((host, int(number))) as speaks:
        speaks.sendall(b"\x16")
        loop.run_once(5.0)
    assert came == [b"\x16"]
    port.close()
    loop.close()


def test_a_port_whose_local_name_is_taken_is_served_over_tls() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        number = probe.getsockname()[1]
    with socket.socket(socket.AF_UNIX) as squatter:
        squatter.bind(endpoint._local_name(f"127.0.0.1:{number}"))
        port = Endpoint("127.0.0.1", number)
        connection, _, tls = dial(port.address)
        with connection:
            assert tls is not None
            connection.setblocking(True)
            tls.start()
            connection.sendall(tls.take_output())
            (came,) = accepted_by(port)
            assert came is not None


def test_a_listener_whose_queue_is_full_does_not_hold_up_whoever_connects() -> None:
    with socket.socket(socket.AF_UNIX) as full, socket.socket(socket.AF_UNIX) as first:
        full.bind(endpoint._local_name("127.0.0.1:1"))
        full.listen(0)
        first.connect(full.getsockname())
        connection, _, _ = dial("127.0.0.1:1")
        with connection:
            assert connection.family == socket.AF_INET


@pytest.mark.skipif(os.getuid() != 0, reason="takes the rights to become another user")
def test_the_kernel_tells_a_real_stranger_from_oneself(port: Endpoint) -> None:
    """A child that has become another user listens under a name of ours, and connects to us."""
    name = f"\0weft-test-of-strangers-{os.getpid()}"
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as caller:
            listener.bind(name)
            listener.listen()
            caller.connect(f"\0weft-port-0-{port.address}")
            os.write(ready[1], b"!")
            os.read(go[0], 1)
        os._exit(0)
    try:
        os.read(ready[0], 1)
        assert accepted_by(port) == []
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(name)
            with pytest.raises(PermissionError, match="65534"):
                peer_pid(caller)
    finally:
        os.write(go[1], b"!")
        os.waitpid(child, 0)
        for end in (*ready, *go):
            os.close(end)


def test_a_stranger_that_says_a_byte_now_and_then_holds_no_client_up() -> None:
    """Without end it would: here he gives up after four times as long."""

    def drip(listener: socket.socket) -> None:
        peer, _ = listener.accept()
        with peer, contextlib.suppress(OSError):
            for byte in b"\x16\x03\x03\x40\x00" + bytes(15):
                peer.send(bytes([byte]))
                is_over.wait(0.1)

    is_over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stranger = threading.Thread(target=drip, args=[listener])
        stranger.start()
        with pytest.raises(TimeoutError):
            BlockingStream("{}:{}".format(*listener.getsockname()), 0.5)
        is_over.set()
        stranger.join()
