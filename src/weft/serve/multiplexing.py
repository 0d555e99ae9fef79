"""`@serve.multiplexed`: many models behind one deployment, of which each replica keeps the ones used last.

Requests that name a model go to a replica that had it before, if that one is not full. Runs on the replica's loop.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from weft.library.checks import above
from weft.serve.context import NO_CONTEXT, calls_of_request, get_multiplexed_model_id, request_context

_ATTRIBUTE = "_weft_serve_models"


def multiplexed(
    function: Callable[..., Any] | None = None, /, *, max_num_models_per_replica: int = 3
) -> Callable[..., Any]:
    """Keep what the loader returns, by model id, and load again only what was dropped.

    The loader is an async function or method of one argument, the model's id. Called without an id, it loads the
    request's own (`serve.get_multiplexed_model_id()`). A model that is dropped has its `close()` called, if it has one.

    >>> @multiplexed(max_num_models_per_replica=2)
    ... async def load(model_id: str) -> str: return model_id.upper()
    >>> asyncio.run(load("a"))
    'A'
    """
    above("max_num_models_per_replica", max_num_models_per_replica)

    def make(loader: Callable[..., Any]) -> Callable[..., Any]:
        if not inspect.iscoroutinefunction(loader):
            raise TypeError(f"@serve.multiplexed wants an async function, but got {loader!r}")
        is_method = next(iter(inspect.signature(loader).parameters), "") == "self"
        of_function: dict[str, Models] = {}

        @functools.wraps(loader)
        async def get(*args: Any) -> Any:
            owner, given = (args[0], args[1:]) if is_method else (None, args)
            model_id = given[0] if given else get_multiplexed_model_id()
            if not model_id:
                raise ValueError(
                    f"{loader.__qualname__} needs a model id: call the handle with .options(multiplexed_model_id=...)"
                )
            held = of_function if owner is None else owner.__dict__.setdefault(_ATTRIBUTE, {})
            if loader.__qualname__ not in held:
                call = functools.partial(loader, owner) if is_method else loader
                held[loader.__qualname__] = Models(call, max_num_models_per_replica)
            return await held[loader.__qualname__].get(model_id)

        return get

    return make if function is None else make(function)


class Models:
    """At most `most` models, the least recently used one dropped for another. A model is loaded once at a time."""

    def __init__(self, load: Callable[[str], Any], most: int) -> None:
        self._load = load
        self._most = most
        self._models: OrderedDict[str, asyncio.Future[Any]] = OrderedDict()

    async def get(self, model_id: str) -> Any:
        found = self._models.get(model_id)
        if found is None:
            found = self._models[model_id] = asyncio.ensure_future(self._loaded(model_id))
            found.add_done_callback(functools.partial(self._forget_failed, model_id))
            await self._drop_oldest()
        else:
            self._models.move_to_end(model_id)
        return await asyncio.shield(found)

    async def _loaded(self, model_id: str) -> Any:
        # For all who want the model: the deadline and the end of the first are no matter of the others.
        request_context.set(NO_CONTEXT._replace(multiplexed_model_id=model_id))
        calls_of_request.set(None)
        return await self._load(model_id)

    def _forget_failed(self, model_id: str, loaded: asyncio.Future[Any]) -> None:
        if loaded.cancelled() or loaded.exception() is not None:
            self._models.pop(model_id, None)

    async def _drop_oldest(self) -> None:
        while len(self._models) > self._most:
            _, dropped = self._models.popitem(last=False)
            try:
                model = await asyncio.shield(dropped)
            except Exception:  # it could not be loaded, which its own callers are told
                continue
            close = getattr(model, "close", None)
            if callable(close):
                closed = close()
                if inspect.isawaitable(closed):
                    await closed
