"""How a driver joins a node: who may, what the two say, which descriptors pass.

Over a Unix socket that keeps message boundaries (SOCK_SEQPACKET): Join one way, Welcome or Refusal the other. A
Welcome carries the segment and the daemon's eventfd (SCM_RIGHTS). The kernel says who the peer is (SO_PEERCRED) and
nothing that it sent is looked at unless it is the same user. Afterwards the socket carries nothing: its end of file
is how each side hears of the other's death.
"""

from __future__ import annotations

import os
import socket
from typing import Any

import msgspec

PROTOCOL = 1
"""Of the handshake and of all records; both sides must have the same."""
LARGEST = 64 << 10


class Join(msgspec.Struct, tag=True):
    """The driver's only message."""

    protocol: int
    pid: int


class Welcome(msgspec.Struct, tag=True):
    """The way into the segment; comes with the segment's and the eventfd's descriptors."""

    slot: int
    generation: int
    job: int
    node_id: str
    address: str
    node_ip: str


class Question(msgspec.Struct, tag=True):
    """In place of Join: one operation (`operations`); its parameters, in MessagePack, are in a descriptor beside it.

    The answer, an Outcome, comes in a descriptor too, beside one byte: it may be longer than a socket takes."""

    protocol: int
    method: str


class Refusal(msgspec.Struct, tag=True):
    """Why not, for a person."""

    text: str


_answers = msgspec.msgpack.Decoder(Welcome | Refusal)
_joins = msgspec.msgpack.Decoder(Join | Question)


def ask(connection: socket.socket) -> None:
    """The driver's side, first half."""
    connection.send(msgspec.msgpack.encode(Join(PROTOCOL, os.getpid())))


def receive_answer(connection: socket.socket) -> tuple[Welcome, int, int]:
    """The driver's side, second half: the welcome, the segment's descriptor and the eventfd.

    EOFError when the daemon has gone, ConnectionRefusedError with its reason when it refuses."""
    data, fds, _, _ = socket.recv_fds(connection, LARGEST, 2)
    if not data:
        raise EOFError("the node daemon closed the connection")
    answer = _answers.decode(data)
    if isinstance(answer, Refusal):
        raise ConnectionRefusedError(answer.text)
    segment_fd, event_fd = fds
    return answer, segment_fd, event_fd


def read_first(connection: socket.socket) -> tuple[Join | Question | str, list[int]]:
    """The daemon's side: what the peer wants, and its descriptors; a text says why it cannot be let in.

    EOFError when it has gone."""
    data, fds, _, _ = socket.recv_fds(connection, LARGEST, 1)
    if not data:
        raise EOFError("the driver closed the connection")
    try:
        first = _joins.decode(data)
    except msgspec.DecodeError:
        return "the first message is not one of Weft's", fds
    if first.protocol != PROTOCOL:
        here, there = PROTOCOL, first.protocol
        text = f"this node speaks protocol {here}, the driver {there}: both must run the same version of Weft"
        return text, fds
    return first, fds


def send_whole(connection: socket.socket, head: bytes, data: bytes) -> None:
    """`head` as a message, and any number of bytes in a descriptor beside it."""
    fd = os.memfd_create("weft-message")
    try:
        written = 0
        while written < len(data):
            written += os.write(fd, memoryview(data)[written:])
        socket.send_fds(connection, [head], [fd])
    finally:
        os.close(fd)


def read_whole(fd: int) -> bytes:
    """All that is in such a descriptor, which is closed."""
    with open(fd, "rb") as file:
        file.seek(0)
        return file.read()


def ask_operation(connection: socket.socket, method: str, params: dict[str, Any]) -> bytes:
    """A client's side: the outcome, encoded. EOFError when the daemon goes away, ConnectionRefusedError."""
    question = msgspec.msgpack.encode(Question(PROTOCOL, method))
    send_whole(connection, question, msgspec.msgpack.encode(params))
    data, fds, _, _ = socket.recv_fds(connection, LARGEST, 1)
    if not data:
        raise EOFError("the node daemon closed the connection")
    if not fds:
        answer = _answers.decode(data)
        raise ConnectionRefusedError(answer.text if isinstance(answer, Refusal) else "it did not understand")
    return read_whole(fds[0])


def refuse(connection: socket.socket, text: str) -> None:
    connection.send(msgspec.msgpack.encode(Refusal(text)))


def welcome(connection: socket.socket, message: Welcome, segment_fd: int, event_fd: int) -> None:
    socket.send_fds(connection, [msgspec.msgpack.encode(message)], [segment_fd, event_fd])
