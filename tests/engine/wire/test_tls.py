"""Encrypted links: nobody reads them, nobody sits in between, and who does not encrypt is told so."""

from __future__ import annotations

import gc
import os
import socket
import weakref

import pytest
from test_link import Bulk, End, Pair

from weft.engine.wire import link_messages as lm
from weft.engine.wire.link import CHUNK_BYTES
from weft.net.auth import Refused
from weft.net.loop import Loop
from weft.net.tls import Certificate, TlsSession


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    return Certificate()


class TlsPair(Pair):
    """As Pair, encrypted; what passes on the wire is kept."""

    def __init__(self, accepting: TlsSession | None, connecting: TlsSession | None) -> None:
        self.loop = Loop()
        one, between = socket.socketpair()
        back, other = socket.socketpair()
        self._ends = (between, back)
        self.wire = bytearray()
        for source, target in ((between, back), (back, between)):
            source.setblocking(False)
            self.loop.watch(source.fileno(), lambda source=source, target=target: self._pass(source, target))
        self.acceptor = End(self.loop, one, b"token", True, accepting)
        self.connector = End(self.loop, other, b"token", False, connecting)

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        data = source.recv(1 << 16)
        if not data:
            self.loop.unwatch(source.fileno())
            target.shutdown(socket.SHUT_WR)
            return
        self.wire += data
        target.setblocking(True)
        target.sendall(data)
        target.setblocking(False)

    def close(self) -> None:
        self.acceptor.link.close()
        self.connector.link.close()
        for end in self._ends:
            self.loop.unwatch(end.fileno())
            end.close()
        self.loop.close()


def test_messages_and_bulk_bytes_pass_encrypted(certificate: Certificate) -> None:
    pair = TlsPair(TlsSession(certificate), TlsSession(None, certificate.fingerprint))
    pair.run_until(lambda: pair.acceptor.is_ready and pair.connector.is_ready)
    secret = os.urandom(32)
    data = os.urandom(2 * CHUNK_BYTES + 5) + secret
    pair.acceptor.bytes = bytearray(len(data))
    for message in (lm.BundlesSet(secret, True, 1), lm.BundlesSet(os.urandom(3_000_000), True, 1), lm.Ping(1)):
        pair.connector.link.send(message)
    pair.connector.link.send_bulk(Bulk(7, data))
    pair.acceptor.link.send(lm.BundlesSet(secret, False, 2))
    pair.run_until(lambda: pair.acceptor.arrived == len(data) and len(pair.acceptor.messages) == 3)
    pair.run_until(lambda: pair.connector.messages == [lm.BundlesSet(secret, False, 2)])
    assert pair.acceptor.bytes == data
    assert secret not in pair.wire and len(pair.wire) > len(data)
    pair.close()


def test_another_certificate_than_the_expected_one_is_refused(certificate: Certificate) -> None:
    pair = TlsPair(TlsSession(certificate), TlsSession(None, "00" * 32))
    pair.run_until(lambda: bool(pair.connector.ends))
    assert "it is another node" in pair.connector.ends[0]
    assert not pair.acceptor.is_ready
    pair.close()


def test_whoever_sits_in_between_is_refused_even_where_no_fingerprint_is_expected(certificate: Certificate) -> None:
    """He has a certificate of his own, decrypts what comes and encrypts it anew, but does not know the token."""
    loop = Loop()
    to_him, his_front = socket.socketpair()
    his_back, to_acceptor = socket.socketpair()
    victim = End(loop, to_him, b"token", False, TlsSession(None))
    acceptor = End(loop, to_acceptor, b"token", True, TlsSession(certificate))
    sessions = {his_front: TlsSession(Certificate()), his_back: TlsSession(None)}
    sessions[his_back].start()
    kept: dict[socket.socket, bytes] = {his_front: b"", his_back: b""}

    def pass_on(source: socket.socket, target: socket.socket) -> None:
        data = source.recv(1 << 16)
        kept[target] += sessions[source].feed(data) if data else b""
        for end in (source, target):
            if sessions[end].is_open and kept[end]:
                sessions[end].encrypt(memoryview(kept[end]))
                kept[end] = b""
            end.sendall(sessions[end].take_output())

    his_back.sendall(sessions[his_back].take_output())
    for source, target in ((his_front, his_back), (his_back, his_front)):
        loop.watch(source.fileno(), lambda source=source, target=target: pass_on(source, target))
    for _ in range(1000):
        loop.run_once(0.01)
        if acceptor.ends:
            break
    assert acceptor.ends == ["refused: the token is wrong"]
    assert not acceptor.is_ready and not victim.is_ready
    for end in (his_front, his_back):
        loop.unwatch(end.fileno())
        end.close()
    victim.link.close()
    loop.close()


def test_who_does_not_encrypt_is_refused_with_a_reason(certificate: Certificate) -> None:
    pair = TlsPair(TlsSession(certificate), None)
    pair.run_until(lambda: bool(pair.acceptor.ends))
    assert pair.acceptor.ends == ["refused: the other side does not speak Weft's protocol: it does not encrypt"]
    pair.close()


def test_a_certificate_is_made_when_somebody_speaks_and_not_when_he_only_connects() -> None:
    made = Certificate()
    pair = TlsPair(TlsSession(made), None)
    assert not made.is_made
    pair.close()
    pair = TlsPair(TlsSession(made), TlsSession(None))
    pair.run_until(lambda: pair.acceptor.is_ready and pair.connector.is_ready)
    assert made.is_made
    pair.close()


@pytest.mark.parametrize("junk", [b"\x16", b"\x16\x03\x01\x02\x00" + bytes(512), b"\x16" + os.urandom(4000)])
def test_garbage_that_looks_like_tls_is_refused(certificate: Certificate, junk: bytes) -> None:
    loop = Loop()
    ours, theirs = socket.socketpair()
    end = End(loop, theirs, b"token", True, TlsSession(certificate))
    ours.sendall(junk)
    ours.shutdown(socket.SHUT_WR)
    for _ in range(1000):
        loop.run_once(0.01)
        if end.ends:
            break
    assert end.ends and not end.is_ready
    ours.close()
    loop.close()


def test_no_openssl_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    made = Certificate()
    with pytest.raises(RuntimeError, match="openssl"):
        _ = made.context
    with pytest.raises(Refused, match="openssl"):
        TlsSession(made).feed(b"\x16")


def test_a_closed_connection_gives_the_memory_of_its_encryption_back_at_once(certificate: Certificate) -> None:
    ours, theirs = socket.socketpair()
    loop, hello = Loop(), TlsSession(None)
    end = End(loop, ours, b"token", True, tls := TlsSession(certificate))
    hello.start()
    theirs.sendall(hello.take_output()[:100])
    loop.run_once(1.0)
    session = weakref.ref(tls._session)
    assert session() is not None
    gc.disable()
    try:
        end.link.close()
        assert session() is None, "strangers fill the memory of a node until its next collection"
    finally:
        gc.enable()
        theirs.close()
        loop.close()
