"""`@weft.remote` on a function. `f.remote` is the native submitter itself; Python only prepares it, once per session.

A call's arguments are checked where it is made: the native submitter lets pass what surely fits and asks
`parameters.Check` about the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from weft import _native
from weft.engine.process.calls import call_limit, export, generator, introspection
from weft.engine.process.calls.parameters import Parameters, check_for
from weft.engine.process.options import call_options
from weft.engine.process.options.call_options import TaskOptions
from weft.engine.process.session import attached, context_state
from weft.engine.process.telling import tracing
from weft.values import grouped_items, serialize

if TYPE_CHECKING:
    from weft.engine.process.calls.mapping import Results
    from weft.engine.process.calls.typed_calls import Submit

P = ParamSpec("P")
R = TypeVar("R", covariant=True)

_VARIANTS_KEPT = 256
"""Of one function: options that are made up anew for each call must not heap up."""
_COROUTINE, _GENERATOR, _ASYNC_GENERATOR = 0x80, 0x20, 0x200
introspection.install()  # editors ask before there is a session


class Submitter:
    """Prepares one native RemoteCall: exports the function and defines the shape, in each new session.

    It knows nothing of the RemoteFunction or the RemoteCall, so that neither is kept alive in a cycle."""

    __slots__ = ("_function", "_name", "_options", "_subject")

    def __init__(self, function: Callable[..., Any], name: str, task_options: TaskOptions) -> None:
        self._function = function
        self._name = name
        self._options = task_options
        self._subject = f"the remote function {function.__module__}.{getattr(function, '__qualname__', name)}"

    @property
    def __signature__(self) -> Any:
        return introspection.signature_of(self._function, None, 0)

    def prepare(self, call: _native.RemoteCall) -> Callable[..., Any] | None:
        """Bind the call; in local mode instead return what takes its place."""
        attached.ensure()
        if context_state.state.local is not None:
            made: Callable[..., Any] = context_state.state.local.task(self._function, self._name, self._options)
            return made
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
            chosen.writable_args,
        )
        if is_traced:
            call = tracing.TracedCall(call, self._name, check)
        return generator.StreamCall(call, chosen.num_returns) if isinstance(chosen.num_returns, str) else call


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
        call_options.validate(given, "tasks")
        if (grouped := given.get(grouped_items.OPTION, 1)) != 1:
            function = grouped_items.each_alone(function, grouped)
        self._function = function
        self._given = call_options.settled(given)
        self._adopt()

    def _adopt(self) -> None:
        function = self._function
        who = getattr(function, "__qualname__", "a task")
        self._options = call_options.task_options(_with_returns(function, self._given), who)
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
        raise _no_attribute(self, name)

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
            call_options.validate(given, "tasks", in_options=True)
            known = RemoteFunctionVariant(self._function, call_options.merge(self._given, given))
            if key is not None:
                if len(self._variants) >= _VARIANTS_KEPT:
                    self._variants.clear()
                self._variants[key] = known
        return known

    def map(
        self,
        *iterables: Iterable[Any],
        order: bool = True,
        chunk: int | None = None,
        progress: bool | str | None = None,
    ) -> Results[R]:
        """The function of each item, as tasks: an iterator over the results, see `weft.map`.

        >>> double = weft.remote(lambda x: 2 * x)
        >>> list(double.map([1, 2, 3]))
        [2, 4, 6]
        """
        return map_items(self, iterables, order, chunk, progress)

    def bind(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not there: Weft has no lazy graphs, a call's refs are passed on instead."""
        raise NotImplementedError("lazy graphs (.bind) are not supported; call .remote()")

    def __dir__(self) -> list[str]:
        return ["remote", *(name for name in super().__dir__() if name != "remote")]

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
        who = getattr(function, "__qualname__", "a task")
        chosen = call_options.task_options(_with_returns(function, given), who)
        name = chosen.name or getattr(function, "__name__", type(function).__name__)
        self._submitter = Submitter(function, name, chosen)
        self._function = function
        self._given = given

    def __getattr__(self, name: str) -> Any:
        if name == "remote" and "_submitter" in self.__dict__:
            call = self._submitter.make_call()
            self.__dict__["remote"] = call
            return call
        raise _no_attribute(self, name)

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError("Remote functions cannot be called directly: write f.options(...).remote(...).")

    def map(
        self,
        *iterables: Iterable[Any],
        order: bool = True,
        chunk: int | None = None,
        progress: bool | str | None = None,
    ) -> Results[R]:
        """As `f.map`, with these options."""
        return map_items(self, iterables, order, chunk, progress)

    def __dir__(self) -> list[str]:
        return ["bind", "map", "remote"]

    def bind(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError("lazy graphs (.bind) are not supported; call .remote()")


_ELSEWHERE = dict.fromkeys(("apply_async", "apply", "defer", "delay", "delayed", "run", "send", "submit"), "remote")
"""What other libraries call it."""


def _no_attribute(of: object, name: str) -> AttributeError:
    text = f"{type(of).__name__!r} object has no attribute {name!r}."
    if name.startswith("_"):
        return AttributeError(text)
    if name in _ELSEWHERE:
        return AttributeError(f"{text} Call f.{_ELSEWHERE[name]}(...), which gives a ref; weft.get(ref) is the value.")
    return AttributeError(text + call_options.near(name, dir(of)))


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
    """A generator function streams unless told otherwise; only such a one is dynamic."""
    if given.get("num_returns") is None and is_generator(function):
        return {**given, "num_returns": "streaming"}
    if given.get("num_returns") == "dynamic" and not is_generator(function):
        raise ValueError(
            f"num_returns='dynamic' can only be used with generator functions, but {function.__qualname__} has no yield"
        )
    return given


# ---- map ----


def map_items(
    function: Any, iterables: tuple[Iterable[Any], ...], order: bool, chunk: int | None, progress: bool | str | None
) -> Results[Any]:
    """`weft.map`, of a plain function or a remote one."""
    from weft.engine.process.calls import mapping

    mapping.check(iterables, order, chunk)
    name, task = _chunk_task(function, len(iterables) > 1)
    return mapping.Results(name, task, mapping.Source(iterables), order, chunk, progress)


_chunk_tasks: WeakKeyDictionary[Any, dict[bool, Any]] = WeakKeyDictionary()
"""Of each remote function that was mapped: its task, and the one that takes several arguments."""


def _chunk_task(function: Any, spreads: bool) -> tuple[str, Any]:
    """(the function's name, the remote ChunkTask)"""
    from weft.engine.process.calls.chunk_task import ChunkTask

    plain, given = _parts(function)
    name = getattr(plain, "__name__", type(plain).__name__)
    check_function(plain)
    if is_generator(plain):
        raise TypeError(f"weft.map() takes the values that {name} returns, but it yields: return a list of them")
    # A plain function's globals may have changed since the last time, so it is packed anew; a remote one is itself.
    known = {} if plain is function else _chunk_tasks.setdefault(function, {})
    task = known.get(spreads)
    if task is None:
        raises = bool(given.get("retry_exceptions"))
        chosen = call_options.merge(
            {"name": name}, {key: value for key, value in given.items() if key != "num_returns"}
        )
        task = known[spreads] = RemoteFunction(ChunkTask(plain, name, spreads, raises), chosen)
    return name, task


def _parts(function: Any) -> tuple[Any, Mapping[str, Any]]:
    """The plain function and its options."""
    if isinstance(function, RemoteFunction | RemoteFunctionVariant):
        given = function._given
        if given.get("num_returns") not in (None, 1):
            raise ValueError(f"weft.map() takes one value per call, but got num_returns={given['num_returns']!r}")
        return function._function, given
    if not callable(function):
        raise TypeError(f"weft.map() needs a function first, then the items, but got {function!r}")
    if isinstance(function, _native.RemoteCall | _native.ActorCall):
        raise TypeError("weft.map() takes the function itself: weft.map(f, items), not f.remote")
    if hasattr(function, "remote"):
        raise TypeError(
            f"weft.map() takes a function, but got {function!r}: give it a function that calls the actor, or see "
            "weft.util.ActorPool"
        )
    return function, {}
