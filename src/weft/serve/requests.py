"""One request on its way to a replica, as the process that sent it sees it."""

from __future__ import annotations

import contextlib
import threading
from asyncio import AbstractEventLoop
from concurrent.futures import CancelledError, Future, InvalidStateError
from typing import Any

import weft
from weft.serve.context import RequestContext
from weft.serve.errors import DeadlineExceededError


class Request:
    """Ends once, by `end`, in any thread."""

    __slots__ = ("args", "context", "kwargs", "method", "peer", "ref", "router")

    def __init__(self, context: RequestContext, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.context = context
        self.method = method
        self.args = args
        self.kwargs = kwargs
        self.ref: Any = None
        """Of the attempt under way, if it has a call of its own; None while it waits and when it has ended."""
        self.peer: Any = None
        """Who has that attempt."""
        self.router: Any = None
        """Whose request it is, once it was submitted."""

    @property
    def is_abandoned(self) -> bool:
        raise NotImplementedError

    def end(self, value: Any, error: BaseException | None) -> None:
        raise NotImplementedError


class AwaitedRequest(Request):
    """Somebody may wait for its outcome: the value, or a `Stream`. A thread that took the answer itself finds it here;
    others have it by a future, which is made at the first need: it costs more than all the rest of a call."""

    __slots__ = ("_future", "_outcome", "is_given_up", "streams")

    def __init__(
        self, context: RequestContext, method: str, args: tuple[Any, ...], kwargs: dict[str, Any], streams: bool
    ) -> None:
        super().__init__(context, method, args, kwargs)
        self.streams = streams
        self.is_given_up = False
        self._future: Future[Any] | None = None
        self._outcome: tuple[Any, BaseException | None] | None = None

    @property
    def is_abandoned(self) -> bool:
        return self.is_given_up

    @property
    def is_done(self) -> bool:
        return self._outcome is not None

    def outcome(self) -> Any:
        """The value of one that is done; raises its error."""
        assert self._outcome is not None
        value, error = self._outcome
        if error is not None:
            raise error
        return value

    @property
    def future(self) -> Future[Any]:
        with _outcomes:
            future = self._future
            if future is None:
                future = self._future = Future()
                if self._outcome is not None:
                    _settle(future, *self._outcome)
        if self.router is not None:
            self.router.watch(self)
        return future

    def end(self, value: Any, error: BaseException | None) -> None:
        outcome = (value, error)
        with _outcomes:
            if self._outcome is not None:
                return
            self._outcome = outcome
            future = self._future
        if future is not None:
            _settle(future, value, error)

    def renew(self) -> None:
        """For another attempt of a stream."""
        with _outcomes:
            self._future, self._outcome = None, None
        if self.is_given_up:
            self.end(None, CancelledError())

    @property
    def has_ended(self) -> bool:
        return self._outcome is not None and (not self.streams or self.is_given_up or self._outcome[1] is not None)

    def give_up(self) -> None:
        """Nobody waits any more: it is not begun, or what runs is cancelled. In any thread, and again is harmless."""
        self.is_given_up = True
        self.end(None, CancelledError())
        self._recall()

    def expire(self) -> None:
        """Its deadline has come: whoever waits is told."""
        self.is_given_up = True
        self.end(None, DeadlineExceededError(self.router.key))
        self._recall()

    def drop(self) -> None:
        """Nobody will ever read the stream: by the collector of garbage, which may run in the midst of anything."""
        self.is_given_up = True
        self.end(None, CancelledError())
        if self._outcome is not None and self._outcome[1] is None:
            self._outcome[0].drop()

    def _recall(self) -> None:
        """From the queue or from the replica."""
        if self.router is not None:
            self.router.withdraw(self)
        if (ref := self.ref) is not None:
            weft.cancel(ref)
            self.router.watch(self)
        if self.streams and self._outcome is not None and self._outcome[1] is None:
            self._outcome[0].close()


_outcomes = threading.RLock()
"""Held while an outcome is set or a future made; reentrant, since garbage that is collected meanwhile may `drop`."""


class BundledRequest(Request):
    """One of many from one event loop: travels with others in one call. Its value comes on the loop."""

    __slots__ = ("bundler", "is_given_up", "loop", "number")

    def __init__(self, loop: AbstractEventLoop, context: RequestContext, method: str, args: tuple[Any, ...]) -> None:
        self.context = context
        self.method = method
        self.args = args
        self.kwargs = {}
        self.ref = None
        self.peer = None
        self.router = None
        self.loop = loop
        self.is_given_up = False
        self.number = 0
        """In its bundler, while a replica has it."""
        self.bundler: Any = None

    @property
    def is_abandoned(self) -> bool:
        return self.is_given_up

    def give_up(self) -> None:
        """On the loop: nobody waits any more. What runs already is cancelled."""
        self.is_given_up = True
        if self.bundler is not None:
            self.bundler.give_up(self)
        elif self.router is not None:
            self.router.withdraw(self)


def _settle(future: Future[Any], value: Any, error: BaseException | None) -> None:
    """Whoever awaits it may have cancelled it."""
    if isinstance(error, CancelledError):
        future.cancel()
        return
    with contextlib.suppress(InvalidStateError):
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)
