"""`@serve.ingress(app)`: a FastAPI, Starlette or any other ASGI app answers a deployment's HTTP requests.

Routes of a FastAPI app may be methods of the class: in the replica they are bound to its instance.
"""

from __future__ import annotations

import contextlib
import copyreg
import inspect
import typing
from collections.abc import Callable
from typing import Any, TypeVar

from weft.serve.http.answering import INGRESS

Class = TypeVar("Class", bound=type)


def ingress(app: Any) -> Callable[[Class], Class]:
    """Have the app answer what the class's deployment gets over HTTP. Stands under `@serve.deployment`."""
    if not callable(app):
        raise TypeError(f"@serve.ingress wants an ASGI app, but got {app!r}")

    _teach_pickling()

    def decorate(cls: Class) -> Class:
        if not isinstance(cls, type):
            raise TypeError(f"@serve.ingress is for classes and stands under @serve.deployment, but got {cls!r}")
        _resolve_annotations(app, cls)
        setattr(cls, INGRESS, staticmethod(lambda instance: _bound(app, instance)))
        return cls

    return decorate


def _resolve_annotations(app: Any, cls: type) -> None:
    """Of the routes that are methods: `_bound` reads them again in the replica, where a class that was pickled by value
    lacks the names that only annotations use."""
    endpoints = {getattr(route, "endpoint", None) for route in getattr(app, "routes", ())}
    for function in vars(cls).values():
        if inspect.isfunction(function) and function in endpoints:
            with contextlib.suppress(NameError, TypeError):  # FastAPI tells in its own words
                function.__annotations__ = typing.get_type_hints(function, include_extras=True)


def _teach_pickling() -> None:
    """An app's `state` can be pickled but not read back: Starlette's `__getattr__` looks for what is not there yet."""
    with contextlib.suppress(ImportError):  # then it is no app of Starlette's
        from starlette.datastructures import State

        copyreg.pickle(State, lambda state: (State, (dict(state._state),)))


def _bound(app: Any, instance: Any) -> Any:
    """The app, with routes that are functions of the instance's class as its methods."""
    found = [(name, one) for base in type(instance).__mro__ for name, one in vars(base).items()]
    methods = {one: name for name, one in found if inspect.isfunction(one)}
    mine = [one for one in getattr(app, "routes", ()) if getattr(one, "endpoint", None) in methods]
    if not mine:
        return app
    from fastapi import APIRouter

    router = APIRouter()
    for route in mine:
        app.router.routes.remove(route)
        route.endpoint = getattr(instance, methods[route.endpoint])
        router.routes.append(route)
    app.include_router(router)  # makes each route anew, from its endpoint's signature, which has no `self` now
    return app
