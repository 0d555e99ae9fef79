"""Messages between external simulators and environments: JSON and NumPy arrays in frames. Nothing is unpickled.

    frame   u32 length of the header | header | bytes of the arrays one after the other    (big-endian lengths)
    header  JSON {"kind": ..., "fields": {...}, "arrays": [{"dtype": "<f4", "shape": [4]}, ...]}

In the fields {"$array": i} stands for the i-th array and {"$tuple": [...]} for a tuple. Arrays hold plain numbers. Both
sides have proved that they know the token before a frame is sent, and what flows is encrypted where it could leave the
processes of one user on one machine (`weft.util.peer_sockets`).
"""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import socket
import struct
from pathlib import Path
from typing import Any

import numpy as np

LARGEST_HEADER = 1 << 20
LARGEST_ARRAYS = 64 << 20
_LENGTH = struct.Struct(">I")
_DTYPE = re.compile(r"[<>|][biuf][1248]")


class BadFrame(ConnectionError):
    """The peer sent what is no frame. The connection is of no more use."""


def send(peer: socket.socket, kind: str, **fields: Any) -> None:
    arrays: list[np.ndarray[Any, Any]] = []
    plain = _plain(fields, arrays)
    described = [{"dtype": array.dtype.str, "shape": list(array.shape)} for array in arrays]
    header = json.dumps({"kind": kind, "fields": plain, "arrays": described}).encode()
    peer.sendall(b"".join([_LENGTH.pack(len(header)), header, *(array.tobytes() for array in arrays)]))


def receive(peer: socket.socket) -> tuple[str, dict[str, Any]]:
    """(kind, fields) of the next frame. EOFError when the peer has closed, BadFrame for what is none."""
    (length,) = _LENGTH.unpack(_exactly(peer, _LENGTH.size))
    if length > LARGEST_HEADER:
        raise BadFrame(f"a header of {length} bytes is too long")
    try:
        header = json.loads(_exactly(peer, length))
        kind, fields, described = header["kind"], header["fields"], header["arrays"]
        layouts = [_layout(array) for array in described]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise BadFrame(f"the header is malformed: {error!r}") from None
    if not isinstance(kind, str) or not isinstance(fields, dict):
        raise BadFrame("the header is malformed")
    if sum(size for _, _, size in layouts) > LARGEST_ARRAYS:
        raise BadFrame(f"arrays of more than {LARGEST_ARRAYS} bytes")
    arrays = [np.frombuffer(_exactly(peer, size), dtype).reshape(shape) for dtype, shape, size in layouts]
    try:
        return kind, {name: _restored(value, arrays) for name, value in fields.items()}
    except (IndexError, TypeError, RecursionError) as error:
        raise BadFrame(f"the fields are malformed: {error!r}") from None


def write_token(path: str | os.PathLike[str]) -> str:
    """A new token in a file that only its owner may read."""
    token = secrets.token_hex(32)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(token)
    return token


def read_token(path: str | os.PathLike[str]) -> str:
    token = Path(path).read_text().strip()
    if len(token) < 16:
        raise ValueError(f"the token in {path} must have at least 16 characters, but has {len(token)}")
    return token


def _exactly(peer: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = peer.recv(min(size, 1 << 20))
        if not part:
            raise EOFError("the peer has closed the connection")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _layout(described: Any) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    """(dtype, shape, bytes) of an array."""
    name, shape = described["dtype"], described["shape"]
    if not _DTYPE.fullmatch(name) or len(shape) > 8 or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"arrays of {name!r} and shape {shape!r} are not allowed")
    dtype = np.dtype(name)
    return dtype, tuple(shape), dtype.itemsize * math.prod(shape)


def _plain(value: Any, arrays: list[np.ndarray[Any, Any]]) -> Any:
    if isinstance(value, np.generic):
        value = np.asarray(value)
    if isinstance(value, np.ndarray):
        if not _DTYPE.fullmatch(value.dtype.str):
            raise TypeError(f"an array of {value.dtype} cannot be sent; send numbers")
        arrays.append(value)
        return {"$array": len(arrays) - 1}
    if isinstance(value, dict):
        return {str(name): _plain(part, arrays) for name, part in value.items()}
    if isinstance(value, tuple):
        return {"$tuple": [_plain(part, arrays) for part in value]}
    if isinstance(value, list):
        return [_plain(part, arrays) for part in value]
    return value


def _restored(value: Any, arrays: list[np.ndarray[Any, Any]]) -> Any:
    if isinstance(value, list):
        return [_restored(part, arrays) for part in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"$array"}:
        return arrays[value["$array"]]
    if set(value) == {"$tuple"}:
        return tuple(_restored(part, arrays) for part in value["$tuple"])
    return {name: _restored(part, arrays) for name, part in value.items()}
