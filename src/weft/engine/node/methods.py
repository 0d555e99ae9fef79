"""Requests as calls of typed functions: the parameters that come are checked against the function's own signature.

Pure. A function takes who asks, then what the request has; one with `**row` takes all else as it is. It returns its
answer, or a `Pending` that will have it.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from weft.engine.node.operations import Outcome, Pending
from weft.engine.state.events import Process
from weft.engine.wire.messages import Reply, Request

_known: dict[object, tuple[type[msgspec.Struct], bool]] = {}


class Asker(NamedTuple):
    process: Process
    number: int
    """Of the request."""


def answer(
    table: Mapping[str, Callable[..., object]],
    process: Process,
    request: Request,
    send: Callable[[Process, Reply], None],
) -> Reply | None:
    """None when the reply is sent later. What the function raises becomes the reply's error, under its own name."""
    function = table.get(request.method)
    if function is None:
        return Reply(request.id, error=f"the node daemon has no method {request.method!r}", error_kind="RpcError")
    try:
        value = function(Asker(process, request.id), **_checked(function, request))
    except Exception as error:
        return Reply(request.id, error=str(error) or repr(error), error_kind=type(error).__name__)
    if not isinstance(value, Pending):
        return Reply(request.id, value)

    def came(outcome: Outcome) -> None:
        send(process, Reply(request.id, outcome.value, outcome.error, outcome.error_kind))

    value.then(came)
    return None


def _checked(function: Callable[..., object], request: Request) -> dict[str, Any]:
    """ValueError, with the method's name, when something is missing or of another type."""
    parameters, takes_all = _parameters(function)
    try:
        known = msgspec.structs.asdict(msgspec.convert(request.params, parameters, builtin_types=(bytes,)))
    except msgspec.ValidationError as error:
        raise ValueError(f"{request.method}: {error}") from None
    return {**request.params, **known} if takes_all else known


def _parameters(function: Any) -> tuple[type[msgspec.Struct], bool]:
    """A struct of what it takes, and whether it takes all else. Kept by its code, which holds no daemon."""
    if (known := _known.get(function.__code__)) is not None:
        return known
    import inspect

    hints, fields, takes_all = typing.get_type_hints(function), [], False
    for one in list(inspect.signature(function).parameters.values())[1:]:
        if one.kind is one.VAR_KEYWORD:
            takes_all = True
        else:
            fields.append((one.name, hints[one.name], *(() if one.default is one.empty else (one.default,))))
    made = msgspec.defstruct("Parameters", fields, forbid_unknown_fields=not takes_all), takes_all
    _known[function.__code__] = made
    return made
