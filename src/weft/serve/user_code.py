"""Runs the user's class or function inside a replica: plain code on one thread of its own, async code on the loop.

Plain methods of one replica run one at a time, so that they need no locks; more replicas make them parallel. The loop
never runs plain code of the user's, so a long call delays neither health checks nor the answers of others.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

from weft.serve.errors import MethodMissingError
from weft.serve.grpc.input import TALK, talk
from weft.serve.http.answering import HttpCalls
from weft.serve.http.messages import HTTP_METHODS
from weft.serve.inboxes import Inboxes
from weft.serve.lane import Lane

_END = object()


class UserCode:
    """The instance, or the function itself. Used on the replica's loop."""

    def __init__(self, name: str) -> None:
        self._lane = Lane(f"weft-{name}")
        self._side_lane = Lane(f"weft-{name}-health")
        self.instance: Any = None
        self.inboxes = Inboxes()
        self.hold: Callable[[], None] = _nothing
        self.release: Callable[[], None] = _nothing
        """Called around what goes on after a request has its answer."""
        self._is_function = False
        self._http: HttpCalls | None = None
        self._found: dict[str, tuple[Callable[..., Any], bool]] = {}
        """By method: the callable, and whether it is async."""

    async def construct(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if isinstance(target, type):
            self.instance = await self._lane.run(partial(target, *args, **kwargs))
        else:
            self.instance, self._is_function = target, True

    async def reconfigure(self, user_config: Any) -> None:
        method = getattr(self.instance, "reconfigure", None)
        if user_config is None:
            return
        if method is None or self._is_function:
            raise TypeError(
                f"a deployment with a user_config must have a method reconfigure(user_config): {self.instance!r}"
            )
        await self._run(self._lane, method, (user_config,), {})
        self._found.clear()

    async def check_health(self) -> None:
        method = None if self._is_function else getattr(self.instance, "check_health", None)
        if method is not None:
            await self._run(self._side_lane, method, (), {})

    def async_method(self, method: str) -> Callable[..., Any] | None:
        """The method, if it is async and runs on this loop; None if it must go through `call`."""
        known = self._found.get(method)
        if known is None:
            found = self._find(method)
            known = self._found[method] = (found, _is_async(found))
        return known[0] if known[1] else None

    async def call(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        found = self.async_method(method)
        if found is not None:
            return await found(*args, **kwargs)
        value = await self._run(self._lane, self._found[method][0], args, kwargs)
        if inspect.isgenerator(value) or inspect.isasyncgen(value):
            raise TypeError(f"{method} is a generator: call it with handle.options(stream=True)")
        return value

    async def stream(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> AsyncIterator[Any]:
        """The items of a generator; a plain method's one value."""
        found = self._find(method)
        items = found(*args, **kwargs) if _is_generator(found) else await self._run(self._lane, found, args, kwargs)
        if inspect.isasyncgen(items):
            try:
                async for item in items:
                    yield item
            finally:
                await items.aclose()
        elif inspect.isgenerator(items):
            try:
                while (item := await self._lane.run(partial(next, items, _END))) is not _END:
                    yield item
            finally:
                await self._lane.run(items.close)
        else:
            yield items

    async def close(self) -> None:
        """Run the user's `close`, if there is one, and end the threads."""
        method = None if self._is_function else getattr(self.instance, "close", None)
        if callable(method):
            await self._run(self._lane, method, (), {})
        self._lane.close()
        self._side_lane.close()

    def _find(self, method: str) -> Callable[..., Any]:
        if method in HTTP_METHODS:
            if self._http is None:
                self._http = HttpCalls(self)
            answers: Callable[..., Any] = self._http.methods[method]
            return answers
        if method == TALK:
            return partial(talk, self)
        if self._is_function:
            if method != "__call__":
                raise MethodMissingError(f"the deployment is a function and has no method {method!r}")
            found: Callable[..., Any] = self.instance
            return found
        found = getattr(self.instance, method, None)  # type: ignore[assignment]
        if not callable(found):
            raise MethodMissingError(f"{type(self.instance).__name__} has no method {method!r}")
        return found

    async def _run(self, lane: Lane, found: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if _is_async(found):
            return await found(*args, **kwargs)
        value = await lane.run(partial(found, *args, **kwargs))
        return await value if inspect.isawaitable(value) else value


def _nothing() -> None:
    pass


def _unwrapped(found: Callable[..., Any]) -> Any:
    while isinstance(found, partial):
        found = found.func
    if not (inspect.isfunction(found) or inspect.ismethod(found)):
        found = getattr(type(found), "__call__", found)  # noqa: B004
    return found


def _is_async(found: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(_unwrapped(found))


def _is_generator(found: Callable[..., Any]) -> bool:
    return inspect.isasyncgenfunction(_unwrapped(found)) or inspect.isgeneratorfunction(_unwrapped(found))
