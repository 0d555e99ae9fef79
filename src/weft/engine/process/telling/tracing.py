"""OpenTelemetry spans for tasks and actor calls, with the context of who submits carried through `.remote`.

On where WEFT_TRACING names a function, `module:function`: each process calls it once, to set up its provider and
exporter, before the first span. Then submitting a task or call makes a span, and running it another, its child, on
whichever process and node it runs; what the task's own code traces lies below that. Off, nothing of this is on a
task's way.

A task's function is sent wrapped, and takes the context before its arguments. An actor's methods are wrapped in the
actor's own process, and take it by a keyword, so that the actor's own code can call them as before.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from weft.engine.process.calls import current

VARIABLE = "WEFT_TRACING"
CARRIER = "_weft_trace"
"""The keyword that carries the context to an actor's method."""
_COROUTINE, _GENERATOR, _ASYNC_GENERATOR = 0x80, 0x20, 0x200
Check = tuple[Callable[..., object], int, int] | None


def is_on() -> bool:
    return bool(os.environ.get(VARIABLE))


@functools.cache
def _tracer() -> Any:
    """This process's. RuntimeError, with what to do, when it cannot be set up."""
    module, _, name = os.environ[VARIABLE].partition(":")
    try:
        from opentelemetry import trace
    except ModuleNotFoundError as error:
        raise RuntimeError(f"{VARIABLE} is set, but OpenTelemetry is missing: pip install opentelemetry-sdk") from error
    if not name:
        raise RuntimeError(f"{VARIABLE} must be module:function, but is {os.environ[VARIABLE]!r}")
    getattr(importlib.import_module(module), name)()
    return trace.get_tracer("weft")


@contextlib.contextmanager
def _submission(name: str) -> Iterator[dict[str, str]]:
    """A span of it, and the context to send along."""
    from opentelemetry import propagate
    from opentelemetry.trace import SpanKind

    carrier: dict[str, str] = {}
    with _tracer().start_as_current_span(f"submit {name}", kind=SpanKind.PRODUCER):
        propagate.inject(carrier)
        yield carrier


class TracedCall:
    """A submitter that makes a span of each submission and sends its context along."""

    __slots__ = ("_call", "_check", "_name")

    def __init__(self, call: Callable[..., Any], name: str, check: Check) -> None:
        self._call, self._name, self._check = call, name, check

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._check is not None:
            self._check[0](*args, **kwargs)
        return self._submit(args, kwargs)

    def _submit(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with _submission(self._name) as carrier:
            return self._call(carrier, *args, **kwargs)


class TracedMethodCall(TracedCall):
    """The same for an actor's method; in a process that traces nothing the context is empty."""

    __slots__ = ()

    def _submit(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not is_on():
            return self._call(*args, **kwargs, **{CARRIER: {}})
        with _submission(self._name) as carrier:
            return self._call(*args, **kwargs, **{CARRIER: carrier})


def _span(carrier: dict[str, str], default_name: str) -> AbstractContextManager[Any]:
    """Of the task or call that runs here now, below the one that submitted it."""
    from opentelemetry import propagate
    from opentelemetry.trace import SpanKind

    task, attempt, name, actor = current.task()
    attributes = {"weft.task_id": task.hex(), "weft.attempt": attempt + 1, "process.pid": os.getpid()}
    if any(actor):
        attributes["weft.actor_id"] = actor.hex()
    context = propagate.extract(carrier)
    span: AbstractContextManager[Any] = _tracer().start_as_current_span(
        name or default_name, context, SpanKind.CONSUMER, attributes
    )
    return span


class TracedFunction:
    """A task's function, run inside a span whose parent is the submission."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        self.__qualname__ = getattr(function, "__qualname__", self.__name__)
        self.__module__ = function.__module__
        self.__wrapped__ = function

    def __call__(self, carrier: dict[str, str], *args: Any, **kwargs: Any) -> Any:
        with _span(carrier, self.__name__):
            return self._function(*args, **kwargs)


def trace_methods(cls: type, names: Iterable[str]) -> None:
    """Wrap these methods of the class, in this process only, once."""
    for name in names:
        found = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
        function = getattr(found, "__func__", found)
        if not callable(function) or name.startswith("__ray_") or getattr(function, "_weft_is_traced", False):
            continue
        traced = _traced(function)
        traced._weft_is_traced = True
        kind = type(found) if isinstance(found, staticmethod | classmethod) else None
        setattr(cls, name, traced if kind is None else kind(traced))


def _traced(function: Any) -> Any:
    """Of the same kind as the function: plain, coroutine, generator or both."""
    name = getattr(function, "__name__", "")

    @functools.wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        carrier = kwargs.pop(CARRIER, None)
        if carrier is None or not is_on():
            return function(*args, **kwargs)
        with _span(carrier, name):
            return function(*args, **kwargs)

    @functools.wraps(function)
    async def coroutine(*args: Any, **kwargs: Any) -> Any:
        carrier = kwargs.pop(CARRIER, None)
        with contextlib.nullcontext() if carrier is None or not is_on() else _span(carrier, name):
            return await function(*args, **kwargs)

    @functools.wraps(function)
    def generator(*args: Any, **kwargs: Any) -> Any:
        carrier = kwargs.pop(CARRIER, None)
        with contextlib.nullcontext() if carrier is None or not is_on() else _span(carrier, name):
            yield from function(*args, **kwargs)

    @functools.wraps(function)
    async def async_generator(*args: Any, **kwargs: Any) -> Any:
        carrier = kwargs.pop(CARRIER, None)
        with contextlib.nullcontext() if carrier is None or not is_on() else _span(carrier, name):
            async for item in function(*args, **kwargs):
                yield item

    flags = getattr(getattr(function, "__code__", None), "co_flags", 0)
    if flags & _ASYNC_GENERATOR:
        return async_generator
    if flags & _COROUTINE:
        return coroutine
    return generator if flags & _GENERATOR else plain
