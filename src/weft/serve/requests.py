"""One request on its way to a replica, as the process that sent it sees it."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from concurrent.futures import Future
from typing import Any

from weft.serve.context import RequestContext


class Request:
    """Ends once, by `end`, in any thread."""

    __slots__ = ("args", "context", "kwargs", "method", "peer", "ref")

    def __init__(self, context: RequestContext, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.context = context
        self.method = method
        self.args = args
        self.kwargs = kwargs
        self.ref: Any = None
        """Of the attempt under way, if it has a call of its own; None while it waits and when it has ended."""
        self.peer: Any = None
        """Who has that attempt."""

    @property
    def is_abandoned(self) -> bool:
        raise NotImplementedError

    def end(self, value: Any, error: BaseException | None) -> None:
        raise NotImplementedError


class AwaitedRequest(Request):
    """Somebody waits for its future: of the value, or of a `Stream`."""

    __slots__ = ("future", "streams")

    def __init__(
        self, context: RequestContext, method: str, args: tuple[Any, ...], kwargs: dict[str, Any], streams: bool
    ) -> None:
        super().__init__(context, method, args, kwargs)
        self.streams = streams
        self.future: Future[Any] = Future()

    @property
    def is_abandoned(self) -> bool:
        return self.future.cancelled()

    def end(self, value: Any, error: BaseException | None) -> None:
        settle(self.future, value, error)


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


def settle(future: Future[Any], value: Any, error: BaseException | None) -> None:
    """End a future that its caller may have cancelled."""
    if not future.set_running_or_notify_cancel():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)
