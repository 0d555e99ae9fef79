"""`@weft.remote` on a class: `.remote(...)` creates an actor and returns its handle at once.

Creation is asynchronous: the constructor's error is raised by the first call. What can be checked here is checked
here: options, the constructor's arguments, a name that is taken.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import FunctionType
from typing import Any, Generic, NoReturn, TypeVar

from weft import _native
from weft.engine.process.actors import actor_description
from weft.engine.process.actors.actor_definition import ActorDefinition
from weft.engine.process.actors.actor_description import ActorDescription
from weft.engine.process.actors.actor_handle import ActorHandle
from weft.engine.process.calls import export
from weft.engine.process.calls.parameters import Parameters
from weft.engine.process.options import call_options
from weft.engine.process.options.call_options import ASYNC_MAX_CONCURRENCY, ActorOptions
from weft.engine.process.session import attached, context_state, rpc
from weft.engine.wire.messages import ActorSpec

T = TypeVar("T")


class ActorClassInheritanceException(TypeError):
    """A class cannot inherit from an actor class."""


class ActorClass(Generic[T]):
    """A class whose instances are actors.

    >>> @weft.remote
    ... class Counter:
    ...     def __init__(self, start=0): self.value = start
    ...     def add(self, amount): self.value += amount; return self.value
    >>> counter = Counter.remote(10)
    >>> weft.get(counter.add.remote(5))
    15
    """

    def __init__(self, cls: type[T], given: Mapping[str, Any]) -> None:
        call_options.validate(given, "actors")
        self._cls = cls
        self._given = call_options.settled(given)
        self._adopt()

    def _adopt(self) -> None:
        self._creation = ActorCreation(self._cls, self._given)
        self.__name__ = self._cls.__name__
        self.__qualname__ = self._cls.__qualname__
        self.__module__ = self._cls.__module__
        self.__doc__ = self._cls.__doc__
        self.__wrapped__ = self._cls

    def remote(self, *args: Any, **kwargs: Any) -> ActorHandle[T]:
        """Create an actor; `args` go to the class's constructor."""
        return self._creation.create(args, kwargs)

    def options(self, **given: Any) -> ActorClassVariant[T]:
        """The same class with other options, for actors created through the result."""
        call_options.validate(given, "actors", in_options=True)
        return ActorClassVariant(ActorCreation(self._cls, call_options.merge(self._given, given)))

    def bind(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not there: Weft has no lazy graphs, a call's refs are passed on instead."""
        raise NotImplementedError("lazy graphs (.bind) are not supported; call .remote()")

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            f"Actors cannot be instantiated directly. Instead of '{self.__name__}()', use '{self.__name__}.remote()'."
        )

    def __getattr__(self, name: str) -> Any:
        """Class and static methods and attributes of the class, as on the plain class."""
        if name.startswith("_") or "_cls" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        found = getattr(self._cls, name)
        return _another(found) if isinstance(found, FunctionType) else found

    def __dir__(self) -> list[str]:
        """With what the plain class has."""
        return sorted({*super().__dir__(), *(name for name in dir(self._cls) if not name.startswith("_"))})

    def __mro_entries__(self, bases: tuple[Any, ...]) -> NoReturn:
        raise ActorClassInheritanceException(
            f"Inheriting from actor classes is not currently supported: '{self.__name__}' is one. Inherit from the "
            f"plain class and make only the last one an actor, or use '{self.__name__}.__wrapped__' as the base."
        )

    def __repr__(self) -> str:
        return f"ActorClass({self.__name__})"

    def __getstate__(self) -> dict[str, Any]:
        return {"_cls": self._cls, "_given": self._given}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._adopt()


def _another(function: FunctionType) -> FunctionType:
    """An equal function. The class is pickled by value, since its module has an ActorClass by that name; a method that
    is found there itself would be pickled by its name, and its `super()` be that of another copy of the class."""
    made = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    functools.update_wrapper(made, function)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


class ActorClassVariant(Generic[T]):
    """What `Class.options(...)` returns."""

    def __init__(self, creation: ActorCreation) -> None:
        self._creation = creation

    def remote(self, *args: Any, **kwargs: Any) -> ActorHandle[T]:
        return self._creation.create(args, kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError("Actors cannot be instantiated directly: write Class.options(...).remote(...).")

    def bind(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError("lazy graphs (.bind) are not supported; call .remote()")


class ActorCreation:
    """Creates actors of one class with one set of options; pickles the class once a session."""

    def __init__(self, cls: type, given: Mapping[str, Any]) -> None:
        self._cls = cls
        self._options = call_options.actor_options(given, cls.__qualname__)
        self._max_concurrency = max_concurrency(cls, self._options)
        self._description: ActorDescription | None = None
        self._parameters = constructor_parameters(cls)
        self._session = 0
        self._exported: _native.Exported | None = None

    def create(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ActorHandle[Any]:
        chosen = self._options
        self._check_order()
        self._check_arguments(args, kwargs)
        attached.ensure()
        export.effective_env(chosen.runtime_env)  # what fails, fails before a name is claimed
        description = self._describe()
        namespace = context_state.here().namespace if chosen.namespace is None else chosen.namespace
        local = context_state.state.local
        key = self._export(description, namespace) if local is None else 0
        token = _native.new_actor()
        if chosen.name:
            from weft.engine.process.actors import named_actors

            other = named_actors.claim(token.binary(), description, chosen.name, namespace, chosen.get_if_exists)
            if other is not None:
                return other
        if local is not None:
            local.actors.create(token.binary(), self._definition(description, namespace), chosen, args, kwargs)
            return ActorHandle(token, description)
        spec = self._spec(token.binary(), description, namespace, key)
        _native.create_actor(token, rpc.encode(spec), key, f"{description.class_name}.__init__", args, kwargs)
        return ActorHandle(token, description)

    def _spec(self, actor: bytes, description: ActorDescription, namespace: str, key: int) -> ActorSpec:
        from weft.engine.process.actors import named_actors

        chosen = self._options
        return ActorSpec(
            actor=actor,
            class_name=description.class_name,
            class_key=key,
            resources=chosen.resources,
            placement_resources=chosen.placement_resources,
            name=chosen.name,
            namespace=namespace,
            detached=chosen.detached,
            max_restarts=chosen.max_restarts,
            max_task_retries=chosen.max_task_retries,
            max_concurrency=self._max_concurrency,
            runtime_env=export.effective_env(chosen.runtime_env),
            strategy=export.effective_strategy(chosen.strategy),
            handle=named_actors.dump_handle(actor, description) if chosen.name else b"",
            get_if_exists=chosen.get_if_exists,
        )

    def _describe(self) -> ActorDescription:
        if self._description is None:
            self._description = actor_description.describe(self._cls, self._options, self._max_concurrency)
        return self._description

    def _export(self, description: ActorDescription, namespace: str) -> int:
        if self._exported is None or self._session != _native.session():
            definition = self._definition(description, namespace)
            payload = export.pickle_definition(definition, f"the actor {self._cls.__name__}")
            self._exported = export.export(payload)
            self._session = _native.session()
        return self._exported.key

    def _definition(self, description: ActorDescription, namespace: str) -> ActorDefinition:
        groups = {name: entry.concurrency_group for name, entry in description.methods.items()}
        return ActorDefinition(
            cls=self._cls,
            description=description,
            is_async=description.is_async,
            max_concurrency=self._max_concurrency,
            groups=self._options.concurrency_groups,
            group_of={name: group for name, group in groups.items() if group},
            name=self._options.name,
            namespace=namespace,
            checkpoint=self._options.checkpoint,
        )

    def _check_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A wrong call of the constructor is an error of this line, not of the actor."""
        if self._parameters is not None:
            self._parameters.check(f"{self._cls.__name__}.remote", args, kwargs)

    def _check_order(self) -> None:
        concurrent = self._max_concurrency > 1
        if self._options.allow_out_of_order_execution is False and concurrent:
            raise ValueError(
                "allow_out_of_order_execution must not be False for an async actor or one with max_concurrency above "
                f"1, but {self._cls.__name__} has max_concurrency={self._max_concurrency}"
            )
        if concurrent and self._options.checkpoint is not None:
            raise ValueError(
                f"an actor with checkpoint= runs one call at a time, but {self._cls.__name__} has async methods"
            )


def constructor_parameters(cls: type) -> Parameters | None:
    """What `cls(...)` takes; None when only calling it can tell."""
    makes: Any = cls
    if type(cls).__call__ is not type.__call__ or makes.__new__ is not object.__new__:
        return None
    if makes.__init__ is object.__init__:
        return Parameters((), 0, 0, (), (), False, False)
    return Parameters.of(makes.__init__, 1)


def max_concurrency(cls: type, chosen: ActorOptions) -> int:
    """1, or 1,000 for an async actor, unless chosen."""
    if chosen.max_concurrency is not None:
        return max(1, chosen.max_concurrency)
    return ASYNC_MAX_CONCURRENCY if actor_description.is_async_class(cls) else 1
