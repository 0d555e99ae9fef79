"""Makes functions, classes and shapes known to the engine, once per session each.

A function or class is named by a 64-bit hash of its pickle, so equal ones have one name everywhere and a redefined
one has a new name. A shape (resources, environment, strategy) is numbered by this process. Both are forgotten
when the session ends: a closure may have changed by the next one.

Runs on whichever thread submits first.
"""

from __future__ import annotations

import hashlib
import threading
import warnings
from typing import Any

import msgspec

from weft import _native
from weft.engine.process.options.call_options import Placement
from weft.engine.process.session import context_state, rpc
from weft.engine.wire import kinds
from weft.engine.wire.messages import DefineShape
from weft.exceptions import WeftError
from weft.values import serialize

WARN_BYTES = 10 * 2**20
MOST_BYTES = 95 * 2**20

_lock = threading.Lock()
_session = 0
_shapes: dict[Any, int] = {}
_defined: dict[int, DefineShape] = {}


def pickle_definition(value: object, subject: str) -> bytes:
    """The pickle of a function or class. `subject` is "the remote function m.f" or "the actor A", for messages."""
    try:
        payload = serialize.dumps(value)
    except WeftError:
        raise
    except Exception as error:
        # An actor's definition is a wrapper; the part that a person knows is the class in it.
        known = getattr(value, "cls", value)
        from weft.values import culprit

        raise culprit.explain(known, getattr(known, "__name__", "f"), f" captured by {subject}", error) from error
    check_size(len(payload), subject)
    return payload


def check_size(size: int, subject: str) -> None:
    """A definition is sent to each worker that needs it, so a large one is a mistake."""
    advice = (
        "Does it capture a large array or object by its closure or a global? Put that in the object memory with "
        "weft.put() and pass the ref as an argument."
    )
    if size > MOST_BYTES:
        raise ValueError(
            f"{subject[0].upper()}{subject[1:]} is too large ({size >> 20} MiB > {MOST_BYTES >> 20} MiB). {advice}"
        )
    if size > WARN_BYTES:
        warnings.warn(f"{subject[0].upper()}{subject[1:]} is very large ({size >> 20} MiB). {advice}", stacklevel=4)


def export(payload: bytes) -> _native.Exported:
    """Its key, known to the core for as long as the answer lives."""
    key = int.from_bytes(hashlib.blake2b(payload, digest_size=8).digest(), "little")
    return _native.Exported(key, payload)


def effective_env(asked: str) -> str:
    """What runs with this environment inherits from what this process runs in."""
    if not asked:
        return context_state.here().runtime_env
    from weft.engine.process.runtime_env.effective import effective

    return effective(asked)


def effective_strategy(asked: dict[str, str | int | bool]) -> dict[str, str | int | bool]:
    """What a task submits is in the task's placement group, if that captures child tasks and nothing else was asked."""
    if asked.get("kind") == "default":
        return {name: value for name, value in asked.items() if name != "kind"}
    state = context_state.here()
    if "kind" in asked or not state.captures_child_tasks:
        return asked
    inherited: dict[str, str | int | bool] = {
        "kind": "placement_group",
        "group": state.placement_group,
        "bundle": -1,
        "capture_child_tasks": True,
    }
    return {**asked, **inherited}


def define_shape(placement: Placement, name: str) -> int:
    """The number of what a lease for it must hold; told to the daemon at its first use in a session."""
    global _session
    runtime_env = effective_env(placement.runtime_env)
    strategy = effective_strategy(placement.strategy)
    key = (
        tuple(sorted(placement.resources.items())),
        runtime_env,
        tuple(sorted(strategy.items())),
    )
    with _lock:
        if _session != _native.session():
            _session = _native.session()
            _shapes.clear()
            _defined.clear()
        shape = _shapes.get(key)
        if shape is None:
            shape = _define(key, DefineShape(0, placement.resources, runtime_env, strategy, name))
    return shape


def _define(key: Any, definition: DefineShape) -> int:
    shape = len(_shapes) + 1
    if shape >= kinds.ADOPTED_SHAPES:
        raise RuntimeError(f"a process can ask for {shape - 1} different sets of resources and no more")
    _defined[shape] = msgspec.structs.replace(definition, shape=shape)
    rpc.send(_defined[shape])
    _shapes[key] = shape
    return shape


def retry_with_more_memory(payload: bytes) -> None:
    """A task's worker was stopped for memory: it is tried again where more is free.

    In a placement group it is tried again as it was: its bundle has what it has."""
    cookie, shape, peak_bytes = kinds.WANTS_MEMORY_BODY.unpack(payload)
    try:
        with _lock:
            if (known := _defined.get(shape)) is not None and known.strategy.get("kind") != "placement_group":
                shape = _larger(known, peak_bytes)
    finally:
        _native.retry_in(cookie, shape)


def _larger(known: DefineShape, peak_bytes: int) -> int:
    from weft.engine.state.memory_pressure import more_memory

    wanted = more_memory(known.resources.get("memory", 0.0), peak_bytes)
    resources = {**known.resources, "memory": float(wanted)}
    key = ("memory", known.shape, wanted)
    found = _shapes.get(key)
    return found or _define(key, msgspec.structs.replace(known, resources=resources, is_memory_soft=True))
