"""`@weft.remote` on a function. `f.remote` is the native submitter itself; Python only prepares it, once a session.

A call's arguments are checked where it is made: the native submitter lets pass what surely fits and asks
`parameters.Check` about the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, TypeVar

from weft import _native
from weft.engine.process import call_limit, context_state, export, generator, options, serialize, session, tracing
from weft.engine.process.options import TaskOptions
from weft.engine.process.parameters import Parameters, check_for

if TYPE_CHECKING:
    from weft.engine.process.typed_calls import Submit

P = ParamSpec("P")
R = TypeVar("R", covariant=True)

_VARIANTS_KEPT = 256
"""Of one function: options that are made up anew for each call must not heap up."""
_COROUTINE, _GENERATOR, _ASYNC_GENERATOR = 0x80, 0x20, 0x200


class Submitter:
    """Prepares one native RemoteCall: exports the function and defines the shape, in each new session.

    It knows nothing of the RemoteFunction or the RemoteCall, so that neither is kept alive in a cycle."""

    __slots__ = ("_function", "_name", "_options", "_subject")

    def __init__(self, function: Callable[..., Any], name: str, task_options: TaskOptions) -> None:
        self._function = function
        self._name = name
        self._options = task_options
        self._subject = f"the remote function {function.__module__}.{getattr(function, '__qualname__', name)}"

    def prepare(self, call: _native.RemoteCall) -> Callable[..., Any] | None:
        """Bind the call; in local mode instead return what takes its place."""
        session.ensure()
        if context_state.state.local is not None:
            from weft.engine.process.local.tasks import LocalTask

            return LocalTask(self._function, self._name, self._options)
        function = self._function
        if tracing.is_on():
            function = tracing.TracedFunction(function)
        if self._options.max_calls:
            function = call_limit.LimitedCalls(function, self._options.max_calls)
        exported = export.export(export.pickle_definition(function, self._subject))
        call.bind(exported.key, export.define_shape(self._options, self._name))
        return None

    def make_call(self) -> Any:
        """The submitter: native, or one that wraps the ref of a generator task."""
        chosen = self._options
        streams = isinstance(chosen.num_returns, str)
        check = check_for(getattr(self._function, "__name__", self._name), Parameters.of(self._function))
        is_traced = tracing.is_on()
        call: Any = _native.RemoteCall(
            self.prepare,
            self._name,
            -1 if isinstance(chosen.num_returns, str) else chosen.num_returns,
            chosen.max_retries,
            chosen.retry_exceptions,
            serialize.dumps(chosen.retry_types) if chosen.retry_types else b"",
            generator.window(chosen.backpressure),
            None if is_traced else check,
        )
        if is_traced:
            call = tracing.TracedCall(call, self._name, check)
        return generator.StreamCall(call) if streams else call


class RemoteFunction(Generic[P, R]):
    """A function whose calls are tasks.

    >>> @weft.remote
    ... def double(x: int) -> int:
    ...     return 2 * x
    >>> weft.get(double.remote(4))
    8
    """

    if TYPE_CHECKING:

        @property
        def remote(self) -> Submit[P, R]:
            """Submit a task; the ref of its result."""
            ...

    def __init__(self, function: Callable[P, R], given: Mapping[str, Any]) -> None:
        check_function(function)
        options.validate(given, "tasks")
        self._function = function
        self._given = options.settled(given)
        self._adopt()

    def _adopt(self) -> None:
        function = self._function
        self._options = options.task_options(_with_returns(function, self._given))
        self._name = self._options.name or getattr(function, "__name__", type(function).__name__)
        self._variants: dict[Any, RemoteFunctionVariant[P, R]] = {}
        self.__name__ = getattr(function, "__name__", self._name)
        self.__qualname__ = getattr(function, "__qualname__", self._name)
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    def __getattr__(self, name: str) -> Any:
        """`remote` is made at its first use and kept: from then on its look-up is a plain attribute's."""
        if name == "remote" and "_function" in self.__dict__:
            call = Submitter(self._function, self._name, self._options).make_call()
            self.__dict__["remote"] = call
            return call
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        name = f"{self.__module__}.{self.__qualname__}"
        raise TypeError(
            f"Remote functions cannot be called directly. Instead of running '{name}()', try '{name}.remote()'."
        )

    def options(self, **given: Any) -> RemoteFunctionVariant[P, R]:
        """The same function with other options, for calls made through the result.

        >>> double = weft.remote(lambda x: 2 * x)
        >>> weft.get(double.options(num_cpus=2, name="big").remote(4))
        8
        """
        try:
            key = tuple((name, type(value), value) for name, value in sorted(given.items()))
            known = self._variants.get(key)
        except TypeError:  # a dict or a list among the values
            key, known = None, None
        if known is None:
            options.validate(given, "tasks", in_options=True)
            known = RemoteFunctionVariant(self._function, options.merge(self._given, given))
            if key is not None:
                if len(self._variants) >= _VARIANTS_KEPT:
                    self._variants.clear()
                self._variants[key] = known
        return known

    def bind(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not there: Weft has no lazy graphs, a call's refs are passed on instead."""
        raise NotImplementedError("lazy graphs (.bind) are not supported; call .remote()")

    def __repr__(self) -> str:
        return f"RemoteFunction({self.__module__}.{self.__qualname__})"

    def __getstate__(self) -> dict[str, Any]:
        return {"_function": self._function, "_given": self._given}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._adopt()


class RemoteFunctionVariant(Generic[P, R]):
    """What `f.options(...)` returns."""

    if TYPE_CHECKING:

        @property
        def remote(self) -> Submit[P, R]: ...

    def __init__(self, function: Callable[P, R], given: Mapping[str, Any]) -> None:
        chosen = options.task_options(_with_returns(function, given))
        name = chosen.name or getattr(function, "__name__", type(function).__name__)
        self._submitter = Submitter(function, name, chosen)

    def __getattr__(self, name: str) -> Any:
        if name == "remote" and "_submitter" in self.__dict__:
            call = self._submitter.make_call()
            self.__dict__["remote"] = call
            return call
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError("Remote functions cannot be called directly: write f.options(...).remote(...).")

    def bind(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError("lazy graphs (.bind) are not supported; call .remote()")


def check_function(function: Any) -> None:
    """Only plain functions can be tasks."""
    if code_flags(function) & _COROUTINE:
        raise ValueError(
            f"'async def' should not be used for remote tasks, but {function.__qualname__} is a coroutine function. "
            "Wrap it: def f(): return asyncio.run(g()). Or make it a method of an actor."
        )


def is_generator(function: Any) -> bool:
    return bool(code_flags(function) & (_GENERATOR | _ASYNC_GENERATOR))


def code_flags(function: Any) -> int:
    """What kind of function it is, without importing inspect."""
    while hasattr(function, "__wrapped__") and not hasattr(function, "__code__"):
        function = function.__wrapped__
    function = getattr(function, "__func__", function)
    return getattr(getattr(function, "__code__", None), "co_flags", 0)


def _with_returns(function: Any, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """A generator function streams unless told otherwise."""
    if given.get("num_returns") is None and is_generator(function):
        return {**given, "num_returns": "streaming"}
    return given
