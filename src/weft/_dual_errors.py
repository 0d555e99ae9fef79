"""An error of a task that is an instance of its cause's class too: `TaskError(ValueError)`.

Such a class is made once for each cause's class. The instance never runs the user's __init__: attributes of the cause
are looked up on the cause; C-level fields such as OSError.errno are filled from its args.
"""

from __future__ import annotations

import builtins
import contextlib
import weakref
from collections.abc import Callable
from typing import Any

_HEAP_TYPE = 1 << 9
_EXCEPTION_GROUP: Any = getattr(builtins, "BaseExceptionGroup", ())


class DualErrors:
    """All of one wrapper's class, which keeps its fields in `_story` and fills them with `_fill`."""

    def __init__(
        self,
        wrapper: type[Any],
        name: Callable[[], str],
        package: Callable[[], str],
        rebuild: Callable[[dict[str, Any], bool], Any],
    ) -> None:
        """`rebuild(story, True)` makes one again where it is unpickled."""
        self._wrapper = wrapper
        self._name = name
        self._package = package
        self._rebuild = rebuild
        self._classes: weakref.WeakValueDictionary[int, type] = weakref.WeakValueDictionary()
        """By the cause class's address: a dual class keeps its cause class alive, so the address is not reused."""

    def of(self, error: Any) -> Any:
        """The dual instance, or `error` itself when there can be none."""
        cause = error.cause
        root = self._root(cause)
        dual = error
        if root is not None and not isinstance(error, type(root)):
            try:
                dual = self._instance(self._class(type(root)), root)
                dual._fill(error._story)
                dual.actor_id = getattr(root, "actor_id", None) or error.actor_id  # who has died, not who saw it
            except Exception as failure:  # a final class, or one that cannot be made without its __init__
                _warn_of_single_class(root, failure)
        dual.__cause__ = getattr(cause, "__cause__", None)
        return dual

    def _root(self, cause: Any) -> Any:
        """Of a task that failed because one that it waited for did: the error that began it."""
        while isinstance(cause, self._wrapper) and cause.cause is not None:
            cause = cause.cause
        return cause

    def _class(self, cause_class: type) -> type:
        known = self._classes.get(id(cause_class))
        if known is None:
            name = f"{self._name()}({cause_class.__name__})"

            def from_cause(dual: Any, attribute: str) -> Any:
                if attribute.startswith("__") or "_story" not in dual.__dict__:
                    raise AttributeError(attribute)
                return getattr(self._root(dual.__dict__["_story"]["cause"]), attribute)

            def reduce(dual: Any, protocol: object = None) -> tuple[Any, ...]:
                return self._rebuild, (dual.__dict__["_story"], True)

            namespace = {
                "__init__": lambda dual, *args, **kwargs: None,
                "__getattr__": from_cause,
                "__str__": self._wrapper.__str__,
                "__repr__": self._wrapper.__repr__,
                "__reduce__": reduce,
                "__reduce_ex__": reduce,
                "__eq__": object.__eq__,
                "__hash__": object.__hash__,
                "args": property(_arguments, lambda dual, value: None),
                "__module__": f"{self._package()}.exceptions",
                "__qualname__": name,
                "__doc__": cause_class.__doc__,
            }
            known = type(cause_class)(name, (self._wrapper, cause_class), namespace)
            self._classes[id(cause_class)] = known
        return known

    @staticmethod
    def _instance(dual_class: type, root: BaseException) -> Any:
        builtin: Any = next(base for base in type(root).__mro__ if not base.__flags__ & _HEAP_TYPE)
        args: Any = BaseException.__getattribute__(root, "args")
        if isinstance(root, OSError):
            args = OSError.__reduce__(root)[1]  # args leaves the file names out
        if isinstance(root, _EXCEPTION_GROUP):
            return builtin.__new__(dual_class, *args)
        made = builtin.__new__(dual_class)
        with contextlib.suppress(Exception):  # else the C-level fields stay empty; the cause has them
            builtin.__init__(made, *args)
        return made


def _arguments(dual: Any) -> tuple[Any, ...]:
    story = dual.__dict__.get("_story")
    return (story["cause"],) if story else ()


def _warn_of_single_class(root: BaseException, failure: Exception) -> None:
    import logging

    logging.getLogger("weft.exceptions").warning(
        "The class %s of what a task raised cannot be subclassed (%s). This exception is raised as RayTaskError only. "
        "You can use `ray_task_error.cause` to access the user exception.",
        type(root).__qualname__,
        failure,
    )
