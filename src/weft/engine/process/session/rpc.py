"""Questions to the node daemon that want an answer: name look-ups, cluster state. Never on a task's way.

`request` blocks the calling thread; the answer arrives on the core's callback thread (`settle`). Every request ends:
in a value, in the daemon's error, in a timeout that names the question, or in "the daemon is gone".
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import msgspec

from weft import _native
from weft.engine.process.calls import errors
from weft.engine.wire import kinds
from weft.engine.wire.messages import Message, Reply, Request
from weft.exceptions import LocalNodeDiedError, RpcError

DEFAULT_TIMEOUT_S = 60.0

_encoder = msgspec.msgpack.Encoder()
_numbers = itertools.count(1)
_waiting: dict[int, _Waiter] = {}


class _Waiter:
    """One thread that waits for one Reply. A lock is the lightest thing that can be waited for."""

    __slots__ = ("lock", "method", "reply")

    def __init__(self, method: str) -> None:
        self.method = method
        self.reply: Reply | None = None
        self.lock = threading.Lock()
        self.lock.acquire()


def send(message: Message) -> None:
    """One message to the node daemon, unanswered."""
    _native.send(kinds.CONTROL, _encoder.encode(message))


def encode(message: Message) -> bytes:
    return _encoder.encode(message)


def request(method: str, /, *, timeout_s: float = DEFAULT_TIMEOUT_S, **params: Any) -> Any:
    """The daemon's answer to `method(**params)`.

    Raises the exception that the daemon names, RpcError when it does not answer in time."""
    return _answer(_begin(method, params), timeout_s)


def begin(method: str, /, **params: Any) -> Callable[[], Any]:
    """The same for who has something to do meanwhile: the daemon is asked, and what is returned waits. It must be
    called."""
    number = _begin(method, params)
    return lambda: _answer(number, DEFAULT_TIMEOUT_S)


def _begin(method: str, params: dict[str, Any]) -> int:
    number = next(_numbers)
    _waiting[number] = _Waiter(method)
    if _native.is_lost():  # after the waiter is known: a death from now on is told to it
        del _waiting[number]
        raise LocalNodeDiedError(f"the node daemon ended, so it cannot be asked for {method!r}: call weft.init()")
    send(Request(number, method, params))
    return number


def _answer(number: int, timeout_s: float) -> Any:
    waiter = _waiting[number]
    method = waiter.method
    try:
        if not waiter.lock.acquire(timeout=timeout_s):
            raise RpcError(f"the node daemon did not answer {method!r} within {timeout_s:g} s; is it overloaded?")
    finally:
        del _waiting[number]
    reply = waiter.reply
    if reply is None:
        raise LocalNodeDiedError(f"the node daemon ended while {method!r} was under way")
    if reply.error or reply.error_kind:
        raise errors.error_from_kind(reply.error_kind, reply.error)
    return reply.value


def settle(reply: Reply) -> None:
    """An answer came. Late ones, whose asker has given up, are dropped."""
    waiter = _waiting.get(reply.id)
    if waiter is not None:
        waiter.reply = reply
        waiter.lock.release()


def fail_all() -> None:
    """The daemon is gone, or the session ends: nobody may wait any longer."""
    for waiter in list(_waiting.values()):
        if waiter.lock.locked():
            waiter.lock.release()
