"""Answers HTTP in a replica as Ray 2.60 does: `__call__` gets the request, and may return a response of Starlette's.

Importing it, which a replica does as it reads its deployment, lets constructors find the replica's event loop.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping
from typing import Any

from weft.serve.http import bodies
from weft.serve.user_code import UserCode, _is_async, _is_generator


def app_of(instance: Any) -> Any:
    """The ASGI app that answers with the instance. Plain code runs one call at a time, beside the loop."""
    call = instance.__call__
    takes_request = _takes_request(call)
    one_at_a_time = asyncio.Lock()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        from starlette.requests import Request
        from starlette.responses import StreamingResponse

        args = (Request(scope, receive),) if takes_request else ()
        response: Any
        if _is_generator(call):
            response = StreamingResponse(call(*args), media_type="text/plain")
        elif _is_async(call):
            response = _response(await call(*args))
        else:
            async with one_at_a_time:
                value = await asyncio.to_thread(call, *args)
            response = _response(await value if inspect.isawaitable(value) else value)
        await response(scope, receive, send)

    return app


def _takes_request(call: Any) -> bool:
    try:
        inspect.signature(call).bind(None)
    except TypeError:
        return False
    return True


def _response(value: Any) -> Any:
    from starlette.responses import Response, StreamingResponse

    if isinstance(value, Response):
        return value
    if inspect.isgenerator(value) or inspect.isasyncgen(value):
        items: Any = value
        return StreamingResponse(items, media_type="text/plain")
    if isinstance(value, Mapping) and not isinstance(value, dict):
        value = dict(value)
    answer = bodies.encoded(value, "")
    headers = {name.decode(): given.decode() for name, given in answer.headers}
    return Response(answer.body, answer.status, headers)


async def _construct(self: UserCode, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A constructor may be a coroutine; a plain one finds the loop running, though it does not run on its thread."""
    is_class = inspect.isclass(target)
    if not is_class:
        await _plain_construct(self, target, args, kwargs)
        return
    if inspect.iscoroutinefunction(target.__init__):
        self.instance = target.__new__(target)
        await self.instance.__init__(*args, **kwargs)
        return
    loop = asyncio.get_running_loop()

    def make() -> Any:
        asyncio._set_running_loop(loop)
        try:
            return target(*args, **kwargs)
        finally:
            asyncio._set_running_loop(None)

    self.instance = await self._lane.run(make)


_plain_construct = UserCode.construct
UserCode.construct = _construct  # type: ignore[method-assign]
