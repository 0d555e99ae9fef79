"""Collective operations between members on different nodes: every member has a connection to every other.

`MeshMember` has the interface of the native `GroupMember`, so `weft.train.Group` is the same over both. Each operation
begins with a message of everyone to everyone that says what is asked for, with small arrays in it: then all know
whether all agree. Large reductions follow in two steps: each member gets its part of the array from all others, reduces
it in the order of the ranks (GRP-2), and hands the result to all. So each member sends 2(N-1)/N of its array, as in a
ring, but in two steps instead of 2(N-1).

MESH-1  A member that fails says in its last message who was the cause, and closes its connections: the others fail.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.train.mesh_links import Buffers, Lost, exchange
from weft.train.shares import share_of
from weft.util.shared_block import GONE, OPERATIONS, reduce_arrays

__all__ = ["MeshMember"]

Request = tuple[int, int, int, int, tuple[int, ...]]
Failure = tuple[Any, ...]

SMALL_BYTES = 32 << 10
"""Up to here an array is in the first message, and every member reduces everything itself."""
MOST_DIMENSIONS = 8
# Operation, element, reduction, root, how many dimensions; the shape; how many bytes of an array follow.
_HEAD = struct.Struct(f"<5I{MOST_DIMENSIONS}qI")
_GOODBYE = 1 << 30
"""In place of an operation: this member is going. "element" is why, "root" because of whom."""


class MeshMember:
    """One thread may use it at a time."""

    def __init__(self, rank: int, size: int, sockets: Mapping[int, socket.socket], timeout_s: float) -> None:
        self._rank, self._size, self._sockets = rank, size, dict(sockets)
        self._others = [other for other in range(size) if other != rank]
        self._timeout_s: float | None = timeout_s
        self._failure: Failure | None = None
        self._scratch = np.empty(0, np.uint8)
        """The others' terms; kept, since fresh memory costs a page fault every 4 KiB."""

    def set_timeout(self, timeout_s: float) -> None:
        """How long to wait for others without any progress; without bound when negative."""
        self._timeout_s = None if timeout_s < 0 else timeout_s

    def sees_loss(self) -> bool:
        """Whether somebody's end of a connection is closed. The next operation says who was the cause."""
        if self._failure is not None:
            return True
        watched = select.poll()
        for link in self._sockets.values():
            watched.register(link.fileno(), select.POLLRDHUP)
        return bool(watched.poll(0))

    def leave(self) -> None:
        self._end(("gone", self._rank, GONE.index("left"), None, None))

    def __del__(self) -> None:
        self.leave()

    def _end(self, failure: Failure) -> Failure:
        """Tell the others why, as far as they listen, and close."""
        if self._failure is None:
            self._failure = failure
            goodbye = _HEAD.pack(_GOODBYE, failure[2], 0, failure[1], 0, *[0] * MOST_DIMENSIONS, 0)
            for link in self._sockets.values():
                with contextlib.suppress(OSError):
                    link.send(goodbye)
                link.close()
            self._sockets.clear()
        return self._failure

    def perform(
        self,
        operation: int,
        element: int,
        reduction: int,
        root: int,
        shape: Sequence[int],
        source: Any,
        target: Any,
        peer: int = -1,
    ) -> Failure | None:
        """As of the native member: None, or why it failed."""
        if self._failure is not None:
            return self._failure
        if len(shape) > MOST_DIMENSIONS:
            raise ValueError(f"an array has at most {MOST_DIMENSIONS} dimensions here, but got {len(shape)}")
        request = (operation, element, reduction, root, tuple(shape))
        try:
            if OPERATIONS[operation] == "send":
                return self._between_two(request, source, target, peer)
            return self._among_all(request, source, target)
        except Lost as lost:
            what = "timed out" if GONE[lost.why] == "timed out" and lost.is_first else "gone"
            return self._end((what, lost.rank, lost.why, None, None))
        except BaseException:
            self._end(("gone", self._rank, GONE.index("was interrupted"), None, None))
            raise

    def _exchange(self, outgoing: Mapping[int, Buffers], incoming: Mapping[int, Buffers]) -> None:
        exchange(self._sockets, outgoing, incoming, self._timeout_s)

    # ---- agreement ----

    def _among_all(self, request: Request, source: Any, target: Any) -> Failure | None:
        name = OPERATIONS[request[0]]
        is_small = name in ("all_reduce", "reduce") and target.nbytes <= SMALL_BYTES
        found = self._agree(request, _view(target) if is_small else b"")
        if isinstance(found, tuple):
            return found
        if is_small:
            if name == "all_reduce" or request[3] == self._rank:
                self._reduce_terms(request, found, _view(target), _view(target))
        elif name not in ("barrier", "join", "refused"):
            getattr(self, f"_{name}")(request, source, target)
        return None

    def _agree(self, request: Request, small: Any) -> Failure | dict[int, Any]:
        """Tell all what is asked for; the others' small arrays, if all ask for the same."""
        head = _packed(request, len(small))
        heads = {rank: bytearray(_HEAD.size) for rank in self._others}
        self._exchange(dict.fromkeys(self._others, (head, small)), {rank: (heads[rank],) for rank in self._others})
        asked = {rank: _unpacked(heads[rank]) for rank in self._others}
        arrays = {rank: bytearray(length) for rank, (_, length) in asked.items()}
        self._exchange({}, {rank: (arrays[rank],) for rank in self._others})
        requests = {self._rank: request, **{rank: other for rank, (other, _) in asked.items()}}
        for rank in range(1, self._size):
            if requests[rank] != requests[0]:
                return "mismatch", rank, 0, requests[0], requests[rank]
        return arrays

    def _between_two(self, request: Request, source: Any, target: Any, peer: int) -> Failure | None:
        answer = bytearray(_HEAD.size)
        self._exchange({peer: (_packed(request, 0),)}, {peer: (answer,)})
        other, _ = _unpacked(answer)
        if other != request:
            is_sending = source is not None
            first, second = (request, other) if is_sending else (other, request)
            return "mismatch", peer if is_sending else self._rank, 0, first, second
        if source is not None:
            self._exchange({peer: (_view(source),)}, {})
        else:
            self._exchange({}, {peer: (_view(target),)})
        return None

    # ---- operations on large arrays ----

    def _parts(self, flat: memoryview, width: int) -> list[memoryview]:
        shares = [share_of(len(flat) // width, rank, self._size) for rank in range(self._size)]
        return [flat[share.start * width : share.stop * width] for share in shares]

    def _reduce_terms(self, request: Request, terms: Mapping[int, Any], own: Any, out: Any) -> None:
        arrays = [own if rank == self._rank else terms[rank] for rank in range(self._size)]
        reduce_arrays(request[1], request[2], arrays, out)

    def _reduce_parts(self, request: Request, parts: Sequence[memoryview], out: Any) -> None:
        """Part r of every member to rank r; this member's is reduced into `out`."""
        length = len(parts[self._rank])
        if self._scratch.nbytes < length * len(self._others):
            self._scratch = np.empty(length * len(self._others), np.uint8)
        terms = {
            rank: self._scratch[number * length : (number + 1) * length] for number, rank in enumerate(self._others)
        }
        self._exchange({rank: (parts[rank],) for rank in self._others}, {rank: (terms[rank],) for rank in self._others})
        self._reduce_terms(request, terms, parts[self._rank], out)

    def _all_reduce(self, request: Request, source: Any, target: Any) -> None:
        parts = self._parts(_view(target), target.itemsize)
        self._reduce_parts(request, parts, parts[self._rank])
        mine = dict.fromkeys(self._others, (parts[self._rank],))
        self._exchange(mine, {rank: (parts[rank],) for rank in self._others})

    def _reduce(self, request: Request, source: Any, target: Any) -> None:
        parts, root = self._parts(_view(target), target.itemsize), request[3]
        mine = parts[self._rank] if root == self._rank else np.empty(len(parts[self._rank]), np.uint8)
        self._reduce_parts(request, parts, mine)
        if root == self._rank:
            self._exchange({}, {rank: (parts[rank],) for rank in self._others})
        else:
            self._exchange({root: (mine,)}, {})

    def _reduce_scatter(self, request: Request, source: Any, target: Any) -> None:
        self._reduce_parts(request, _rows(source, self._size), _view(target))

    def _all_gather(self, request: Request, source: Any, target: Any) -> None:
        rows, mine = _rows(target, self._size), _view(source)
        rows[self._rank][:] = mine
        self._exchange(dict.fromkeys(self._others, (mine,)), {rank: (rows[rank],) for rank in self._others})

    def _gather(self, request: Request, source: Any, target: Any) -> None:
        if request[3] == self._rank:
            rows = _rows(target, self._size)
            rows[self._rank][:] = _view(source)
            self._exchange({}, {rank: (rows[rank],) for rank in self._others})
        else:
            self._exchange({request[3]: (_view(source),)}, {})

    def _scatter(self, request: Request, source: Any, target: Any) -> None:
        if request[3] == self._rank:
            rows = _rows(source, self._size)
            _view(target)[:] = rows[self._rank]
            self._exchange({rank: (rows[rank],) for rank in self._others}, {})
        else:
            self._exchange({}, {request[3]: (_view(target),)})

    def _broadcast(self, request: Request, source: Any, target: Any) -> None:
        """The root hands out parts, and all hand theirs on: the root sends each byte twice, and not N-1 times."""
        parts, root = self._parts(_view(target), 1), request[3]
        if root == self._rank:
            self._exchange({rank: (parts[rank],) for rank in self._others}, {})
        else:
            self._exchange({}, {root: (parts[self._rank],)})
        takers = [rank for rank in self._others if rank != root]
        takes = {} if root == self._rank else {rank: (parts[rank],) for rank in self._others}
        self._exchange(dict.fromkeys(takers, (parts[self._rank],)), takes)

    def _all_to_all(self, request: Request, source: Any, target: Any) -> None:
        given = _rows(source.copy() if np.may_share_memory(source, target) else source, self._size)
        taken = _rows(target, self._size)
        taken[self._rank][:] = given[self._rank]
        self._exchange({rank: (given[rank],) for rank in self._others}, {rank: (taken[rank],) for rank in self._others})


def _view(array: Any) -> memoryview:
    return memoryview(array.reshape(-1).view(np.uint8))


def _rows(array: Any, size: int) -> list[memoryview]:
    flat = _view(array)
    each = len(flat) // size
    return [flat[rank * each : (rank + 1) * each] for rank in range(size)]


def _packed(request: Request, length: int) -> bytes:
    *numbers, shape = request
    return _HEAD.pack(*numbers, len(shape), *shape, *[0] * (MOST_DIMENSIONS - len(shape)), length)


def _unpacked(head: bytearray) -> tuple[Request, int]:
    operation, element, reduction, root, dimensions, *rest = _HEAD.unpack(head)
    if operation == _GOODBYE:
        raise Lost(root, element, is_first=False)
    if dimensions > MOST_DIMENSIONS or rest[-1] > SMALL_BYTES:
        raise ValueError("what another member of the group says makes no sense: do all run the same version of Weft?")
    return (operation, element, reduction, root, tuple(rest[:dimensions])), rest[-1]
