"""OpenTelemetry spans for tasks, with the context of who submits carried through `.remote`.

On where WEFT_TRACING names a function, `module:function`: each process calls it once, to set up its provider and
exporter, before the first span. Then submitting a task makes a span, and running it another, its child, on whichever
process and node it runs; what the task's own code traces lies below that. Off, nothing of this is on a task's way.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable
from typing import Any

from weft.engine.process import current

VARIABLE = "WEFT_TRACING"
Check = tuple[Callable[..., object], int, int] | None


def is_on() -> bool:
    return bool(os.environ.get(VARIABLE))


@functools.cache
def _tracer() -> Any:
    """This process's. RuntimeError, with what to do, when it can not be set up."""
    module, _, name = os.environ[VARIABLE].partition(":")
    try:
        from opentelemetry import trace
    except ModuleNotFoundError as error:
        raise RuntimeError(f"{VARIABLE} is set, but OpenTelemetry is missing: pip install opentelemetry-sdk") from error
    if not name:
        raise RuntimeError(f"{VARIABLE} must be module:function, but is {os.environ[VARIABLE]!r}")
    getattr(importlib.import_module(module), name)()
    return trace.get_tracer("weft")


class TracedCall:
    """A submitter that makes a span of each submission and sends its context along."""

    __slots__ = ("_call", "_check", "_name")

    def __init__(self, call: Callable[..., Any], name: str, check: Check) -> None:
        self._call, self._name, self._check = call, name, check

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from opentelemetry import propagate
        from opentelemetry.trace import SpanKind

        if self._check is not None:
            self._check[0](*args, **kwargs)
        carrier: dict[str, str] = {}
        with _tracer().start_as_current_span(f"submit {self._name}", kind=SpanKind.PRODUCER):
            propagate.inject(carrier)
            return self._call(carrier, *args, **kwargs)


class TracedFunction:
    """A task's function, run inside a span whose parent is the submission."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        self.__qualname__ = getattr(function, "__qualname__", self.__name__)
        self.__module__ = function.__module__
        self.__wrapped__ = function

    def __call__(self, carrier: dict[str, str], *args: Any, **kwargs: Any) -> Any:
        from opentelemetry import propagate
        from opentelemetry.trace import SpanKind

        task, attempt, name, _ = current.task()
        attributes = {"weft.task_id": task.hex(), "weft.attempt": attempt + 1, "process.pid": os.getpid()}
        with _tracer().start_as_current_span(
            name or self.__name__, propagate.extract(carrier), SpanKind.CONSUMER, attributes
        ):
            return self._function(*args, **kwargs)
