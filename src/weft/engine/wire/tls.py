"""Encryption of links between machines: each node makes a certificate of its own when it starts.

Nobody signs these certificates. The handshake of `auth`, which runs inside the encrypted stream, proves the token over
the certificate that the connecting side sees and that the accepting side has: whoever sits in between has another one,
and is refused. The head's fingerprint, which `weft start --head` prints, is checked even before that.

A certificate is made by the program `openssl`; only nodes that others reach over a network need one.
"""

from __future__ import annotations

import hashlib
import os
import socket
from typing import TYPE_CHECKING

from weft.engine.wire.auth import Refused

if TYPE_CHECKING:
    import ssl

FIRST_BYTE = 0x16
"""Of every TLS connection; no Weft handshake begins with it."""
_MAKE = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj /CN=weft "
    "-keyout key.pem -out certificate.pem"
).split()


class Certificate:
    """A node's own, and the key to it, in memory only."""

    def __init__(self) -> None:
        """Make one. RuntimeError when there is no `openssl`."""
        import shutil
        import ssl
        import subprocess
        import tempfile

        if shutil.which("openssl") is None:
            raise RuntimeError(
                "links between machines are encrypted, and the program openssl, which makes the certificate, is not "
                "installed (it is in the package openssl of every distribution)"
            )
        with tempfile.TemporaryDirectory(prefix="weft-certificate-") as folder:
            made = subprocess.run(_MAKE, cwd=folder, capture_output=True, text=True, umask=0o077)
            if made.returncode:
                raise RuntimeError(f"openssl could not make a certificate: {made.stderr.strip()}")
            path, key = os.path.join(folder, "certificate.pem"), os.path.join(folder, "key.pem")
            with open(path) as file:
                self.digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(file.read())).digest()
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.minimum_version = ssl.TLSVersion.TLSv1_3
            self.context.load_cert_chain(path, key)

    @property
    def fingerprint(self) -> str:
        return self.digest.hex()


class TlsSession:
    """One encrypted connection, without its socket: bytes in, bytes out. Every failure is a Refused."""

    def __init__(self, certificate: Certificate | None, fingerprint: str = "") -> None:
        """With a certificate: the accepting side. Without: the connecting one, which may expect a fingerprint."""
        import ssl

        self._ssl = ssl
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._certificate = certificate
        self._fingerprint = fingerprint
        if certificate is not None:
            context = certificate.context
        else:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE  # the token's proof covers the certificate
        self._session: ssl.SSLObject = context.wrap_bio(self._in, self._out, server_side=certificate is not None)
        self.is_open = False

    def start(self) -> None:
        self._go_on()

    def take_output(self) -> bytes:
        """What is to be sent."""
        return self._out.read()

    def feed(self, data: bytes) -> bytes:
        """What came; decrypted. Empty until the session is open, and when no whole record is there."""
        self._in.write(data)
        if not self.is_open and not self._go_on():
            return b""
        parts = []
        try:
            while part := self._session.read(256 << 10):
                parts.append(part)
        except self._ssl.SSLWantReadError:
            pass
        except self._ssl.SSLError as error:
            raise Refused(f"the encryption failed: {error.reason or error}") from None
        return b"".join(parts)

    def encrypt(self, data: memoryview) -> None:
        """`take_output` gives it."""
        self._session.write(data)

    def binding(self) -> bytes:
        """The digest of the accepting side's certificate, as this side knows it."""
        if self._certificate is not None:
            return self._certificate.digest
        return hashlib.sha256(self._session.getpeercert(binary_form=True) or b"").digest()

    def _go_on(self) -> bool:
        try:
            self._session.do_handshake()
        except self._ssl.SSLWantReadError:
            return False
        except self._ssl.SSLError as error:
            raise Refused(f"no encrypted connection: {error.reason or error}") from None
        self.is_open = True
        found = self.binding().hex()
        if self._fingerprint and found != self._fingerprint:
            raise Refused(f"its certificate has the fingerprint {found}, not {self._fingerprint}: it is another node")
        return True


def is_loopback(host: str) -> bool:
    """Whether what is sent there never leaves the machine.

    >>> is_loopback("127.0.0.1"), is_loopback("10.0.0.1")
    (True, False)
    """
    return host.startswith("127.") or host == "localhost"


class BlockingStream:
    """A connection of a client that waits, encrypted where it leaves the machine."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        """OSError or Refused when there is none."""
        self._socket = socket.create_connection((host, port), timeout_s)
        self._tls = None if is_loopback(host) else TlsSession(None)
        try:
            if self._tls is not None:
                self._tls.start()
                while not self._tls.is_open:
                    self._socket.sendall(self._tls.take_output())
                    self._tls.feed(self._receive())
                self._socket.sendall(self._tls.take_output())
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> BlockingStream:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def binding(self) -> bytes:
        return b"" if self._tls is None else self._tls.binding()

    def settimeout(self, timeout_s: float | None) -> None:
        self._socket.settimeout(timeout_s)

    def send(self, data: bytes) -> None:
        if self._tls is not None and data:
            self._tls.encrypt(memoryview(data))
            data = self._tls.take_output()
        self._socket.sendall(data)

    def receive(self) -> bytes:
        """Some bytes. ConnectionError at the end."""
        if self._tls is None:
            return self._receive()
        while not (data := self._tls.feed(self._receive())):
            pass
        return data

    def _receive(self) -> bytes:
        data = self._socket.recv(1 << 16)
        if not data:
            raise ConnectionError("the node closed the connection")
        return data
