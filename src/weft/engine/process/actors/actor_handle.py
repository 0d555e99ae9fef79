"""Handles to actors and their methods. `handle.method.remote` is the native submitter itself.

A method's object is made at its first use and kept on the handle, so that the look-up is a plain attribute's. It holds
the actor's token and not the handle, so there is no cycle: the last handle's end is seen at once.
"""

from __future__ import annotations

import threading
from typing import Any, Generic, NoReturn, TypeVar

from weft import _native
from weft.engine.process.actors.actor_description import (
    SPECIAL,
    SYSTEM_GROUP,
    ActorDescription,
    MethodDescription,
    pickled_types,
)
from weft.engine.process.calls import calls_made, generator, introspection
from weft.engine.process.calls.parameters import check_for
from weft.engine.process.options import call_options
from weft.engine.process.session import context_state
from weft.engine.process.telling import tracing
from weft.exceptions import PendingCallsLimitExceeded
from weft.ids import ActorID

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class ActorHandle(Generic[T_co]):
    """A counted reference to an actor. When the last one is gone the actor finishes its calls and ends.

    Handles can be passed to tasks and other actors, compared, and used as keys.

    >>> @weft.remote
    ... class Counter:
    ...     def __init__(self): self.value = 0
    ...     def add(self, amount): self.value += amount; return self.value
    >>> @weft.remote
    ... def add_two(counter):
    ...     return weft.get(counter.add.remote(2))
    >>> counter = Counter.remote()
    >>> weft.get(counter.add.remote(1))
    1
    >>> weft.get(add_two.remote(counter))
    3
    """

    def __init__(self, token: _native.ActorToken, description: ActorDescription) -> None:
        self.__dict__["_weft_token"] = token
        self.__dict__["_weft_description"] = description

    _weft_token: _native.ActorToken
    _weft_description: ActorDescription

    def __getattr__(self, name: str) -> Any:
        description = self.__dict__.get("_weft_description")
        if description is None:
            raise AttributeError(name)
        method = ActorMethod(self._weft_token, description, name, description.method(name))
        self.__dict__[name] = method
        return method

    def __setattr__(self, name: str, value: Any) -> None:
        """Where a handle was written to, its actor would be meant, which would never learn of it."""
        raise AttributeError(
            f"{name!r} cannot be set on a handle: the state of actor {self._weft_description.class_name} is in its "
            "own process. Write a method that sets it, and call that."
        )

    def __dir__(self) -> list[str]:
        """What can be called: the actor's methods."""
        return sorted({"__init__", *self._weft_description.methods})

    @property
    def _actor_id(self) -> ActorID:
        return ActorID(self._weft_token.binary())

    @property
    def _ray_actor_id(self) -> ActorID:
        return self._actor_id

    def _repr_html_(self) -> str:
        """For notebooks: what can be called."""
        import html

        known = [name for name in self._weft_description.methods if not name.startswith("_")]
        called = "".join(f"<li><code>handle.{html.escape(name)}.remote(...)</code></li>" for name in known)
        return f"<code>{html.escape(repr(self))}</code><ul>{called}</ul>"

    def __repr__(self) -> str:
        return f"Actor({self._weft_description.class_name}, {self._weft_token.binary().hex()})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ActorHandle) and other._weft_token.binary() == self._weft_token.binary()

    def __hash__(self) -> int:
        return hash(self._weft_token.binary())

    def __reduce__(self) -> tuple[Any, ...]:
        return ActorHandle, (self._weft_token, self._weft_description)


def typed(handle: ActorHandle[T]) -> T:
    """The handle itself, which type checkers see as an instance of its class: methods with `@weft.method` then have
    their signatures and result types.

    >>> @weft.remote
    ... class Counter:
    ...     @weft.method
    ...     def add(self, amount: int) -> int: return amount
    >>> weft.get(typed(Counter.remote()).add.remote(2))
    2
    """
    if not isinstance(handle, ActorHandle):
        raise TypeError(f"typed() wants an actor's handle, but got {handle!r}")
    return handle  # type: ignore[return-value]


class _Doc(str):
    """Of ActorMethod itself; a method shows the doc of its own function where the class is known here."""

    def __get__(self, method: ActorMethod | None, owner: type) -> str | None:
        function = None if method is None else method._function()
        return str(self) if function is None else function.__doc__


class ActorMethod:
    """`handle.method`: its `remote` submits a call.

    >>> @weft.remote
    ... class Oven:
    ...     def bake(self, minutes): return f"baked for {minutes} minutes"
    >>> oven = Oven.remote()
    >>> weft.get(oven.bake.options(name="lunch").remote(20))
    'baked for 20 minutes'
    """

    __slots__ = ("_description", "_method", "_name", "_token", "remote")
    __doc__ = _Doc(__doc__)

    def __init__(
        self, token: _native.ActorToken, description: ActorDescription, name: str, method: MethodDescription
    ) -> None:
        self._token = token
        self._description = description
        self._name = name
        self._method = method
        self.remote: Any = make_call(token, description, name, method, "")

    def options(self, **given: Any) -> ActorMethodVariant:
        """The same method with other options: num_returns, name, concurrency_group, max_task_retries..."""
        call_options.validate(given, "methods", in_options=True)
        changed = self._method
        returns = given.get("num_returns")
        if returns is not None:
            changed = changed._replace(num_returns=returns)
        if given.get("concurrency_group") is not None:
            self._description.check_group(given["concurrency_group"])
            changed = changed._replace(concurrency_group=given["concurrency_group"])
        if given.get("max_task_retries") is not None:
            changed = changed._replace(max_task_retries=given["max_task_retries"])
        if given.get("_generator_backpressure_num_objects") is not None:
            changed = changed._replace(backpressure=given["_generator_backpressure_num_objects"])
        if "retry_exceptions" in given:
            changed = changed._replace(
                retry_exceptions=bool(given["retry_exceptions"]), retry_types=pickled_types(given["retry_exceptions"])
            )
        if "writable_args" in given:
            changed = changed._replace(writable_args=given["writable_args"])
        chosen = "concurrency_group" in given
        return ActorMethodVariant(
            make_call(self._token, self._description, self._name, changed, given.get("name") or "", chosen)
        )

    def bind(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not there: Weft has no lazy graphs, a call's refs are passed on instead."""
        raise NotImplementedError("lazy graphs (.bind) are not supported; call .remote()")

    def _function(self) -> Any:
        """The method of the class, for its signature and doc; None where the class is not known by its name here."""
        return introspection.method_of(self._description.qualified_name, self._name)

    @property
    def __signature__(self) -> Any:
        return introspection.signature_of(self._function(), self._method.parameters, 1)

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            f"Actor methods cannot be called directly. Instead of running 'object.{self._name}()', "
            f"try 'object.{self._name}.remote()'."
        )

    def __repr__(self) -> str:
        return f"ActorMethod({self._description.class_name}.{self._name})"

    def __reduce__(self) -> tuple[Any, ...]:
        return ActorMethod, (self._token, self._description, self._name, self._method)


class ActorMethodVariant:
    """What `handle.method.options(...)` returns."""

    __slots__ = ("remote",)

    def __init__(self, call: Any) -> None:
        self.remote = call

    def bind(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError("lazy graphs (.bind) are not supported; call .remote()")


def make_call(
    token: _native.ActorToken,
    description: ActorDescription,
    name: str,
    method: MethodDescription,
    shown: str,
    chose_group: bool = False,
) -> Any:
    """The native submitter of one method. A group that the caller chose travels as `name:group`."""
    if context_state.state.local is not None:
        return LocalMethodCall(token, description, name, method, shown)
    streams = isinstance(method.num_returns, str)
    retries = description.max_task_retries if method.max_task_retries is None else method.max_task_retries
    beside = method.concurrency_group == SYSTEM_GROUP
    is_traced = description.is_traced and name not in SPECIAL
    check = check_for(name, method.parameters)
    title = shown or f"{description.class_name}.{name}"
    target = f"{name}:{method.concurrency_group}" if beside or (chose_group and description.is_concurrent) else name
    call: Any = _native.ActorCall(
        token,
        target,
        -1 if isinstance(method.num_returns, str) else method.num_returns,
        retries,
        method.retry_exceptions,
        title,
        generator.window(method.backpressure),
        None if is_traced else check,
        description.is_ordered and not beside,
        method.retry_types,
        method.writable_args,
    )
    if is_traced:
        call = tracing.TracedMethodCall(call, title, check)
    if description.max_pending_calls > 0:
        call = BoundedCall(call, _pending_of(token), description.max_pending_calls)
    if isinstance(method.num_returns, str):
        call = generator.StreamCall(call, method.num_returns)
    if context_state.state.records_calls:
        call = calls_made.NotedCall(call, token.binary(), name, streams)
    return call


class LocalMethodCall:
    """A submitter in local mode. It holds the token, so that a handle's method keeps the actor alive."""

    def __init__(
        self,
        token: _native.ActorToken,
        description: ActorDescription,
        name: str,
        method: MethodDescription,
        shown: str,
    ) -> None:
        self._token = token
        self._name = name
        self._method = method
        self._shown = shown or f"{description.class_name}.{name}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        local = context_state.state.local
        if local is None:
            raise RuntimeError(f"the handle of {self._shown} is of a local session that has ended")
        if self._method.parameters is not None:
            self._method.parameters.check(self._name, args, kwargs)
        return local.actors.call(self._token.binary(), self._name, self._method, self._shown, args, kwargs)


class PendingCalls:
    """How many calls of this process to one actor are unfinished."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0

    def one_less(self) -> None:
        with self.lock:
            self.count -= 1


_pending: dict[bytes, PendingCalls] = {}


def _pending_of(token: _native.ActorToken) -> PendingCalls:
    return _pending.setdefault(token.binary(), PendingCalls())


class BoundedCall:
    """A submitter that refuses when `max_pending_calls` are unfinished."""

    def __init__(self, call: _native.ActorCall, pending: PendingCalls, limit: int) -> None:
        self._call = call
        self._pending = pending
        self._limit = limit

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        pending = self._pending
        with pending.lock:
            if pending.count >= self._limit:
                raise PendingCallsLimitExceeded(
                    f"The actor has {pending.count} unfinished calls of this process, as many as max_pending_calls "
                    "allows. Wait for some of them with weft.wait() before you submit more."
                )
            pending.count += 1
        try:
            refs = self._call(*args, **kwargs)
        except BaseException:
            pending.one_less()
            raise
        first = refs[0] if isinstance(refs, list) else refs
        if first is None:
            pending.one_less()
        else:
            _native.on_ready(first, pending.one_less)
        return refs
