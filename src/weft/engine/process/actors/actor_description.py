"""What a handle must know about an actor's class: its name and its methods. Travels inside every handle. Pure.

The class itself does not: a handle can be used where the class cannot be imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, TypeVar, overload

from weft.engine.process.calls.parameters import Parameters
from weft.engine.process.calls.remote_function import code_flags, is_generator
from weft.engine.process.options import call_options
from weft.engine.process.telling import tracing
from weft.values import grouped_items

if TYPE_CHECKING:
    from weft.engine.process.calls.typed_calls import TypedMethod

P = ParamSpec("P")
R = TypeVar("R")
_COROUTINE, _ASYNC_GENERATOR = 0x80, 0x200
MARK = "__weft_method__"
SYSTEM_GROUP = "_ray_system"
"""The engine's own: its calls run beside all others, on every actor."""
SPECIAL = ("__ray_ready__", "__ray_call__", "__ray_terminate__")


class MethodDescription(NamedTuple):
    """One method's defaults."""

    num_returns: int | str = 1
    concurrency_group: str = ""
    max_task_retries: int | None = None
    retry_exceptions: bool = False
    retry_types: bytes = b""
    """The pickled exception types that are worth a retry; empty for all."""
    backpressure: int | None = None
    parameters: Parameters | None = None
    writable_args: bool = False


class ActorDescription(NamedTuple):
    """One actor class with the options that its callers need."""

    class_name: str
    qualified_name: str
    methods: dict[str, MethodDescription]
    is_async: bool = False
    is_concurrent: bool = False
    max_task_retries: int = 0
    max_pending_calls: int = -1
    is_ordered: bool = True
    """Whether a call waits for the arguments of the calls before it."""
    groups: tuple[str, ...] = ()
    """The names of its concurrency groups."""
    properties: tuple[str, ...] = ()
    is_traced: bool = False
    """Whether its methods take the context of their caller's span (`tracing`)."""

    def check_group(self, group: str) -> None:
        """ValueError for a concurrency group that the actor does not have."""
        if group and group != SYSTEM_GROUP and group not in self.groups:
            hint = "" if self.groups else ". Declare groups: @weft.remote(concurrency_groups={'io': 2})"
            raise ValueError(
                f"concurrency_group must be one of {[*self.groups]}, the groups of {self.class_name}, "
                f"but got {group!r}{hint}"
            )

    def method(self, name: str) -> MethodDescription:
        """Raises AttributeError that names the class and what was probably meant."""
        known = self.methods.get(name)
        if known is None and name in self.properties:
            raise AttributeError(
                f"{name!r} is a property of the actor class {self.class_name!r}, which a handle cannot read: add a "
                f"method that returns it, or call handle.__ray_call__.remote(lambda self: self.{name})"
            )
        if known is None:
            import difflib

            own = [] if name.startswith("__") else [known for known in self.methods if not known.startswith("__")]
            near = difflib.get_close_matches(name, own, n=3)
            hint = f" Did you mean {' or '.join(near)}?" if near else f" It has {', '.join(own[:10])}." if own else ""
            raise AttributeError(f"The actor class {self.class_name!r} has no method {name!r}.{hint}")
        return known


@overload
def method(function: Callable[Concatenate[Any, P], R], /) -> TypedMethod[P, R]: ...
@overload
def method(**given: Any) -> Callable[[Callable[Concatenate[Any, P], R]], TypedMethod[P, R]]: ...
def method(*args: Any, **given: Any) -> Any:
    """Options of an actor's method: num_returns, concurrency_group, max_task_retries, retry_exceptions, writable_args.

    Type checkers see the signature of a method that has it, also without options, see `weft.actor.typed`.

    >>> @weft.remote
    ... class Splitter:
    ...     @weft.method(num_returns=2)
    ...     def halves(self, text):
    ...         return text[:1], text[1:]
    """
    if len(args) == 1 and not given and callable(args[0]):
        return args[0]
    if args or not given:
        raise ValueError(
            "The @weft.method decorator must be applied using no arguments other than keywords of "
            "'num_returns', 'concurrency_group', 'max_task_retries', 'retry_exceptions', 'writable_args', for example "
            "'@weft.method(num_returns=2)'."
        )
    call_options.validate(given, "methods")

    def decorate(function: Any) -> Any:
        if (grouped := given.get(grouped_items.OPTION, 1)) != 1:
            function = grouped_items.each_alone(function, grouped)
        setattr(function, MARK, dict(given))
        return function

    return decorate


def is_async_class(cls: type) -> bool:
    """An actor with any coroutine method is an async actor."""
    return any(code_flags(function) & (_COROUTINE | _ASYNC_GENERATOR) for _, function, _ in functions_of(cls))


def functions_of(cls: type) -> list[tuple[str, Any, int]]:
    """(name, function, parameters that the call fills) of everything callable that a handle offers."""
    found: dict[str, tuple[str, Any, int]] = {}
    for base in reversed(cls.__mro__):
        if base is object or base.__module__ == "typing":
            continue
        for name, value in vars(base).items():
            function = getattr(value, "__func__", value)
            if callable(function) and not isinstance(function, type):
                found[name] = (name, function, 0 if isinstance(value, staticmethod) else 1)
    return [*found.values()]


def describe(cls: type, chosen: call_options.ActorOptions, max_concurrency: int) -> ActorDescription:
    methods = {name: _describe_method(function, skip) for name, function, skip in functions_of(cls)}
    methods.pop("__init__", None)
    methods.update({name: MethodDescription() for name in SPECIAL})
    is_async = is_async_class(cls)
    is_concurrent = is_async or max_concurrency > 1 or bool(chosen.concurrency_groups)
    described = ActorDescription(
        class_name=cls.__name__,
        qualified_name=f"{cls.__module__}.{cls.__qualname__}",
        methods=methods,
        is_async=is_async,
        is_concurrent=is_concurrent,
        max_task_retries=chosen.max_task_retries,
        max_pending_calls=chosen.max_pending_calls,
        is_ordered=not (chosen.allow_out_of_order_execution or is_concurrent),
        groups=tuple(chosen.concurrency_groups),
        properties=tuple(
            name for base in cls.__mro__ for name, value in vars(base).items() if isinstance(value, property)
        ),
        is_traced=tracing.is_on(),
    )
    for entry in methods.values():
        described.check_group(entry.concurrency_group)
    return described


def _describe_method(function: Any, skip: int) -> MethodDescription:
    given: Mapping[str, Any] = getattr(function, MARK, {})
    returns = given.get("num_returns")
    if returns is None:
        returns = "streaming" if is_generator(function) else 1
    return MethodDescription(
        num_returns=returns,
        concurrency_group=given.get("concurrency_group") or "",
        max_task_retries=given.get("max_task_retries"),
        retry_exceptions=bool(given.get("retry_exceptions", False)),
        retry_types=pickled_types(given.get("retry_exceptions")),
        backpressure=given.get("_generator_backpressure_num_objects"),
        parameters=Parameters.of(function, skip),
        writable_args=given.get("writable_args", False),
    )


def pickled_types(retry_exceptions: Any) -> bytes:
    """Of a list of exception types; nothing for True and False."""
    if not isinstance(retry_exceptions, list | tuple) or not retry_exceptions:
        return b""
    from weft.values import serialize

    return serialize.dumps(tuple(retry_exceptions))
