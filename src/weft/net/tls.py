"""Encryption of links: each node makes a certificate of its own, when it starts or first needs it.

Nobody signs these certificates. The handshake of `auth`, which runs inside the encrypted stream, proves the token over
the certificate that the connecting side sees and that the accepting side has: whoever sits in between has another one,
and is refused. The head's fingerprint, which `weft start --head` prints, is checked even before that.

Where the user names files of his own, they are used instead, and each side must show a certificate that the named
authority has signed, beside the token.

A certificate is made by the program `openssl`. A node that other machines reach makes it when it starts; one on
loopback when somebody comes who is not of its user (`endpoint`).
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, NamedTuple

from weft.net.auth import Refused

if TYPE_CHECKING:
    import ssl

VARIABLES = ("WEFT_TLS_CERT", "WEFT_TLS_KEY", "WEFT_TLS_CA")
"""Paths of a certificate and a key of one's own, and of the authority that has signed those of all nodes."""
FIRST_BYTE = b"\x16"
"""Of every TLS connection; no other protocol that comes by mistake begins with it."""
_MAKE = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj /CN=weft "
    "-keyout key.pem -out certificate.pem"
).split()


class Files(NamedTuple):
    """Certificates of one's own: paths of PEM files."""

    certificate: str
    key: str
    authority: str
    """Whose signature the other side's certificate must have."""

    @property
    def version(self) -> tuple[int, ...]:
        """Another one after any of them has changed."""
        return tuple(os.stat(path).st_mtime_ns for path in self)


def own_files() -> Files | None:
    """What the environment names, for all processes of a node; ValueError where it names a part."""
    given = Files(*(os.environ.get(name, "") for name in VARIABLES))
    if not any(given):
        return None
    if not all(given):
        raise ValueError(f"{', '.join(VARIABLES)} belong together, but only some of them are set")
    return given


def connecting_context() -> ssl.SSLContext:
    """RuntimeError when one's own files cannot be used."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the token's proof covers the certificate
    if (files := own_files()) is not None:
        _load(context, files)
    return context


def _load(context: ssl.SSLContext, files: Files) -> None:
    import ssl

    try:
        context.load_cert_chain(files.certificate, files.key)
        context.load_verify_locations(files.authority)
    except (OSError, ssl.SSLError) as error:
        raise RuntimeError(f"the certificates {', '.join(files)} cannot be used: {error}") from None
    context.verify_mode = ssl.CERT_REQUIRED


class Certificate:
    """A node's own, and the key to it: from files that the user names, else made, and in memory only."""

    def __init__(self) -> None:
        self._made: tuple[ssl.SSLContext, bytes] | None = None
        self._version: tuple[int, ...] = ()

    @property
    def is_made(self) -> bool:
        return self._made is not None

    @property
    def context(self) -> ssl.SSLContext:
        """To accept by it. It is made now if it is not there, and read again when its file has changed. RuntimeError
        when there is no `openssl`, or the files cannot be used."""
        return self.current()[0]

    @property
    def digest(self) -> bytes:
        return self.current()[1]

    def current(self) -> tuple[ssl.SSLContext, bytes]:
        """`context` and `digest` of one certificate."""
        files = own_files()
        if files is None:
            self._made = self._made or _make()
            return self._made
        try:
            version = files.version
        except OSError as error:
            raise RuntimeError(f"the certificate cannot be used: {error}") from None
        if self._made is None or version != self._version:
            self._made, self._version = _read(files), version
        return self._made

    @property
    def fingerprint(self) -> str:
        return self.digest.hex()


def _read(files: Files) -> tuple[ssl.SSLContext, bytes]:
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    _load(context, files)
    with open(files.certificate) as file:
        text = file.read()
    begin, end = text.index(ssl.PEM_HEADER), text.index(ssl.PEM_FOOTER) + len(ssl.PEM_FOOTER)
    return context, hashlib.sha256(ssl.PEM_cert_to_DER_cert(text[begin:end])).digest()


def _make() -> tuple[ssl.SSLContext, bytes]:
    import shutil
    import ssl
    import subprocess
    import tempfile

    if shutil.which("openssl") is None:
        raise RuntimeError(
            "connections over a network are encrypted, and the program openssl, which makes the certificate, is not "
            "installed (it is in the package openssl of every distribution)"
        )
    with tempfile.TemporaryDirectory(prefix="weft-certificate-") as folder:
        made = subprocess.run(_MAKE, cwd=folder, capture_output=True, text=True, umask=0o077)
        if made.returncode:
            raise RuntimeError(f"openssl could not make a certificate: {made.stderr.strip()}")
        path, key = os.path.join(folder, "certificate.pem"), os.path.join(folder, "key.pem")
        with open(path) as file:
            digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(file.read())).digest()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(path, key)
        return context, digest


class TlsSession:
    """One encrypted connection, without its socket: bytes in, bytes out. Every failure is a Refused."""

    def __init__(self, certificate: Certificate | None, fingerprint: str = "") -> None:
        """With a certificate: the accepting side. Without: the connecting one, which may expect a fingerprint."""
        self._certificate = certificate
        self._fingerprint = fingerprint
        self._digest = b""
        self._session: ssl.SSLObject | None = None
        """Once something is to be said or has come: who only knocks costs nothing."""
        self._is_over = False
        self.is_open = False

    def start(self) -> None:
        self._begin()
        self._go_on()

    def _begin(self) -> ssl.SSLObject:
        import ssl

        self._ssl = ssl
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        try:
            context = connecting_context() if self._certificate is None else self._certificate.context
        except (RuntimeError, ValueError) as error:
            raise Refused(str(error)) from None
        if self._certificate is not None:
            self._digest = self._certificate.digest  # of what this connection began with
        self._session = context.wrap_bio(self._in, self._out, server_side=self._certificate is not None)
        return self._session

    def drop(self) -> None:
        """Its memory is given back now: what strangers left behind would else lie there until the next collection."""
        self._is_over = True
        if self._session is not None:
            self._session = None
            self._in = self._out = self._ssl.MemoryBIO()

    def take_output(self) -> bytes:
        """What is to be sent."""
        return b"" if self._session is None else self._out.read()

    def feed(self, data: bytes) -> bytes:
        """What came; decrypted. Empty until the session is open, and when no whole record is there."""
        if self._is_over:
            raise Refused("the connection is closed")
        if self._session is None and data[:1] != FIRST_BYTE:
            raise Refused("the other side does not speak Weft's protocol: it does not encrypt")
        session = self._session or self._begin()
        self._in.write(data)
        if not self.is_open and not self._go_on():
            return b""
        parts = []
        try:
            while part := session.read(256 << 10):
                parts.append(part)
        except self._ssl.SSLWantReadError:
            pass
        except self._ssl.SSLError as error:
            raise Refused(f"the encryption failed: {error.reason or error}") from None
        return b"".join(parts)

    def encrypt(self, data: memoryview) -> None:
        """`take_output` gives it."""
        assert self._session is not None
        self._session.write(data)

    def binding(self) -> bytes:
        """The digest of the accepting side's certificate, as this side knows it."""
        if self._certificate is not None:
            return self._digest
        assert self._session is not None
        return hashlib.sha256(self._session.getpeercert(binary_form=True) or b"").digest()

    def _go_on(self) -> bool:
        assert self._session is not None
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
