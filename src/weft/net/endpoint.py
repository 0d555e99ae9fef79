"""How processes of Weft connect: over a local socket within one user of one machine, over TLS everywhere else.

Beside each port lies a Unix socket whose name contains the port's address. The kernel says who is at its other end
(SO_PEERCRED), so nobody else can be on it, and what passes over it is plain. A name that another user has taken is as
if it were not there. Everything else goes over TCP and is encrypted, on loopback, too: there any user of the machine
may listen on a port that a dead node had, and relay between whoever comes and a living one.

Runs in the loop's thread.

Invariants:
    END-1  nothing is sent or believed in plain over TCP.
    END-2  a local socket counts only when both of its ends are of one user.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
from collections.abc import Callable

from weft.net import pulse
from weft.net.credentials import peer_pid
from weft.net.loop import OUT_OF_DESCRIPTORS, Loop
from weft.net.tls import Certificate, TlsSession

LOCAL_BINDING = b"local"
"""In place of a certificate's digest, where a connection is no TLS."""
VARIABLE = "WEFT_LOCAL_LINKS"
"""0: all connections go over TCP, as if each process were on a machine of its own; for tests of networks."""
MOST_STRANGERS = 256
_ACCEPTED_AT_ONCE = 64
_BACKLOG = 4096
_SILENT_S = 1
"""So long the kernel keeps to itself who sends nothing: the connecting side speaks first."""
_LOCAL_BYTES = 1 << 20
"""Of a local socket's buffer; the kernel does not fit it to the connection, as it does with TCP."""
Accepted = Callable[[socket.socket, TlsSession | None], None]


class Endpoint:
    """A port that others connect to, and the local socket beside it."""

    def __init__(self, host: str, port: int, is_shared: bool = False) -> None:
        """OSError when the port cannot be had. `is_shared`: other processes of this user may listen there, too."""
        self._loop: Loop | None = None
        self._tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            self._tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            self._tcp.bind((host, port))
            self._tcp.listen(_BACKLOG)
        except BaseException:
            self._tcp.close()
            raise
        host, port = self._tcp.getsockname()
        self.address = f"{own_ip() if host == '0.0.0.0' else host}:{port}"
        """What others connect to."""
        self.certificate = Certificate()
        self._local: socket.socket | None = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            self._local.bind(_local_name(self.address))
            self._local.listen(_BACKLOG)
        except OSError:  # another user has taken the name: then all comes over TCP
            self._local.close()
            self._local = None

    def open(self, loop: Loop, accepted: Accepted) -> None:
        """Each connection is handed over from now on, with its TLS session where it comes over TCP."""
        self._loop = loop
        self._tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, _SILENT_S)
        loop.watch(self._tcp.fileno(), lambda: self._accept(self._tcp, loop, accepted))
        if (local := self._local) is not None:
            loop.watch(local.fileno(), lambda: self._accept(local, loop, accepted))

    def listeners(self) -> list[socket.socket]:
        """For who waits without a loop."""
        return [self._tcp] if self._local is None else [self._tcp, self._local]

    def accept(self, listener: socket.socket) -> socket.socket | None:
        """One connection; None when nobody waits there, or many strangers did."""
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                connection, _ = listener.accept()
            except BlockingIOError:
                return None
            is_stranger = not _is_own(connection) if listener is self._local else _has_left(connection)
            if not is_stranger:
                return connection
            connection.close()
        return None

    def close(self) -> None:
        for listener in (self._tcp, self._local):
            if listener is not None:
                if self._loop is not None:
                    self._loop.unwatch(listener.fileno())
                listener.close()

    def _accept(self, listener: socket.socket, loop: Loop, accepted: Accepted) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                connection = self.accept(listener)
            except OSError as error:  # he left meanwhile; or there is no descriptor now, and he waits
                if error.errno in OUT_OF_DESCRIPTORS:
                    loop.rest(listener.fileno())
                return
            if connection is None:
                return
            accepted(connection, TlsSession(self.certificate) if listener is self._tcp else None)


def _has_left(connection: socket.socket) -> bool:
    """It only knocked. To encrypt with each that does would take so long that the line fills up."""
    try:
        return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def dial(address: str, is_narrow: bool = False, fingerprint: str = "") -> tuple[socket.socket, int, TlsSession | None]:
    """A socket that is connecting to host:port, the error number where it has failed already, and the TLS session where
    it is not local. OSError when there is no descriptor. `is_narrow`: by small packets."""
    if (local := connect_locally(address)) is not None:
        local.setblocking(False)
        return local, 0, None
    host, _, port = address.rpartition(":")
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    if is_narrow:
        pulse.narrow(connection)
    error = connection.connect_ex((host, int(port)))
    return connection, 0 if error == errno.EINPROGRESS else error, TlsSession(None, fingerprint)


def connect_locally(address: str) -> socket.socket | None:
    """To a process of this user on this machine that listens at that address; None when there is none."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    name = _local_name(address)
    if name and connection.connect_ex(name) == 0 and _is_own(connection):
        return connection
    connection.close()
    return None


class BlockingStream:
    """A connection of a client that waits."""

    def __init__(self, address: str, timeout_s: float) -> None:
        """OSError or Refused when there is none. All that comes until `settimeout` must come within `timeout_s`: who is
        there may be a stranger, and say a byte now and then without end."""
        local = connect_locally(address)
        host, _, port = address.rpartition(":")
        self._deadline: float | None = time.monotonic() + timeout_s
        self._socket = socket.create_connection((host, int(port)), timeout_s) if local is None else local
        self._socket.settimeout(timeout_s)
        self._tls = TlsSession(None) if local is None else None
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
        return binding_of(self._tls)

    def settimeout(self, timeout_s: float | None) -> None:
        """So long the other side, which has proved who it is, may be silent."""
        self._deadline = None
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
        if self._deadline is not None:
            if (left_s := self._deadline - time.monotonic()) <= 0:
                raise TimeoutError("the other side did not prove in time who it is")
            self._socket.settimeout(left_s)
        data = self._socket.recv(1 << 16)
        if not data:
            raise ConnectionError("the node closed the connection")
        return data


def binding_of(tls: TlsSession | None) -> bytes:
    """What the proof of the token covers (`auth`) beside the challenges."""
    return LOCAL_BINDING if tls is None else tls.binding()


def most_strangers() -> int:
    """How many connections may be open that have proved nothing: a quarter of the process's descriptors at most."""
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_STRANGERS if soft < 0 else max(1, min(MOST_STRANGERS, soft // 4))


def own_ip() -> str:
    """Of the interface that leads to other machines; loopback's when there is none. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # an address that is nobody's
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def _local_name(address: str) -> str:
    """Of the local socket beside a port; empty where there shall be none."""
    return "" if os.environ.get(VARIABLE) == "0" else f"\0weft-port-{os.getuid()}-{address}"


def _is_own(connection: socket.socket) -> bool:
    """Whether a process of this user is at the other end."""
    try:
        peer_pid(connection)
    except OSError:
        return False
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LOCAL_BYTES)
    return True
