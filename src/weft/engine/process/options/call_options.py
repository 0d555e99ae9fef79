"""The options of tasks, actors and methods: which exist, for what, and what values they take.

Checking happens once, where the option is written (`@weft.remote(...)`, `.options(...)`), and raises there:
TypeError for a wrong type, ValueError for a wrong value or an unknown option. What comes out is a frozen
dataclass that the rest of the process package reads. Pure: no engine.

>>> task_options({"num_cpus": 2}).resources
{'CPU': 2.0}
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from weft._lazy import nearest
from weft.engine.process.actors.checkpoints import CheckpointPolicy, policy_of
from weft.engine.process.options import group_options as groups
from weft.engine.process.options.option_checks import (
    attempts,
    backpressure,
    checkpoint,
    concurrency_groups,
    count,
    fallback_strategy,
    label,
    label_selector,
    lifetime,
    namespace,
    num_returns,
    priority,
    resource_amount,
    resources,
    retry_exceptions,
    transport,
    type_name_of,
    unused_store_memory,
)

DEFAULT_MAX_RETRIES = 3
ASYNC_MAX_CONCURRENCY = 1000


@dataclass(frozen=True)
class Option:
    """One keyword. `check(name, value)` raises; None is always passed on unchecked where NoneType is allowed."""

    types: tuple[type, ...]
    check: Callable[[str, Any], None] | None = None
    tasks: bool = True
    actors: bool = True
    methods: bool = False


NONE = type(None)
NOTHING: Mapping[str, float] = MappingProxyType({})
_STRATEGIES: tuple[type, ...] = (str, NONE, object)

OPTIONS: dict[str, Option] = {
    "num_cpus": Option((float, int, NONE), resource_amount),
    "num_gpus": Option((float, int, NONE), resource_amount),
    "memory": Option((float, int, NONE), resource_amount),
    "object_store_memory": Option((int, NONE), unused_store_memory, tasks=False),
    "resources": Option((dict, NONE), resources),
    "accelerator_type": Option((str, NONE)),
    "label_selector": Option((dict, NONE), label_selector),
    "fallback_strategy": Option((list, NONE), fallback_strategy),
    "scheduling_strategy": Option(_STRATEGIES),
    "placement_group": Option(_STRATEGIES),
    "placement_group_bundle_index": Option((int,)),
    "placement_group_capture_child_tasks": Option((bool, NONE)),
    "runtime_env": Option((dict, NONE)),
    "name": Option((str, NONE), label, methods=True),
    "priority": Option((int, NONE), priority),
    "enable_task_events": Option((bool,), methods=True),
    "_labels": Option((dict, NONE), methods=True),
    "_metadata": Option((dict, NONE), methods=True),
    "num_returns": Option((int, str, NONE), num_returns, actors=False, methods=True),
    "max_retries": Option((int, NONE), attempts, actors=False),
    "max_calls": Option((int, NONE), count(False), actors=False),
    "writable_args": Option((bool,), actors=False, methods=True),
    "retry_exceptions": Option((bool, list, tuple), retry_exceptions, actors=False, methods=True),
    "_generator_backpressure_num_objects": Option((int, NONE), backpressure, actors=False, methods=True),
    "_num_objects_per_yield": Option((int,), count(False), actors=False, methods=True),
    "max_restarts": Option((int, NONE), attempts, tasks=False),
    "max_task_retries": Option((int, NONE), attempts, tasks=False, methods=True),
    "checkpoint": Option((int, CheckpointPolicy, NONE), checkpoint, tasks=False),
    "max_concurrency": Option((int, NONE), count(False), tasks=False),
    "concurrency_groups": Option((list, dict, NONE), concurrency_groups, tasks=False),
    "max_pending_calls": Option((int, NONE), count(True), tasks=False),
    "lifetime": Option((str, NONE), lifetime, tasks=False),
    "namespace": Option((str, NONE), namespace, tasks=False),
    "get_if_exists": Option((bool,), tasks=False),
    "allow_out_of_order_execution": Option((bool, NONE), tasks=False),
    "enable_tensor_transport": Option((bool, NONE), tasks=False),
    "_actor_generator_backpressure_num_objects": Option((int, NONE), backpressure, tasks=False),
    "concurrency_group": Option((str, NONE), tasks=False, actors=False, methods=True),
    "tensor_transport": Option((str, NONE), transport, tasks=False, actors=False, methods=True),
}


def near(name: str, known: Iterable[str]) -> str:
    """What was probably meant, as the end of a message.

    >>> near("num_cpu", ["num_cpus", "name"]), near("x", ["num_cpus"])
    (' Did you mean num_cpus?', '')
    """
    found = nearest(name, known)
    return f" Did you mean {found}?" if found else ""


_FOR = {
    "tasks": "remote functions",
    "actors": "actors",
    "methods": "actor methods",
}


def validate(given: Mapping[str, Any], kind: str, in_options: bool = False) -> None:
    """Raise for the first option that is unknown, not for `kind` ("tasks", "actors", "methods"), or wrong."""
    for name, value in given.items():
        option = OPTIONS.get(name)
        if option is None or not getattr(option, kind):
            valid = [known for known, entry in OPTIONS.items() if getattr(entry, kind)]
            hint = near(name, valid)
            raise ValueError(f"Invalid option keyword {name} for {_FOR[kind]}.{hint} Valid ones are {valid}.")
        if not isinstance(value, option.types) or (isinstance(value, bool) and bool not in option.types):
            raise TypeError(
                f"The type of keyword '{name}' must be {type_name_of(option.types)}, "
                f"but received type {type(value)}: got {value!r}"
            )
        if option.check is not None and value is not None:
            option.check(name, value)
    if in_options and kind == "tasks" and "max_calls" in given:
        raise ValueError("Setting 'max_calls' is not supported in '.options()'.")
    if in_options and "_num_objects_per_yield" in given:
        raise ValueError("Setting '_num_objects_per_yield' is not supported in '.options()': the generator has it.")
    if in_options and kind == "actors" and given.get("concurrency_groups") is not None:
        raise ValueError("Setting 'concurrency_groups' is not supported in '.options()'.")


@dataclass(frozen=True)
class Placement:
    """Where a task or an actor may run and what it holds there."""

    resources: dict[str, float]
    runtime_env: str = ""
    strategy: dict[str, str | int | bool] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskOptions(Placement):
    """A remote function's options, defaults filled in."""

    name: str = ""
    num_returns: int | str = 1
    max_retries: int = DEFAULT_MAX_RETRIES
    max_calls: int = 0
    retry_exceptions: bool = False
    retry_types: tuple[type, ...] = ()
    backpressure: int | None = None
    priority: int = 0
    writable_args: bool = False


@dataclass(frozen=True)
class ActorOptions(Placement):
    """An actor's options. `resources` is held while it lives, `placement_resources` only decides where."""

    placement_resources: dict[str, float] = field(default_factory=dict)
    name: str = ""
    namespace: str | None = None
    detached: bool = False
    get_if_exists: bool = False
    max_restarts: int = 0
    max_task_retries: int = 0
    max_concurrency: int | None = None
    concurrency_groups: dict[str, int] = field(default_factory=dict)
    max_pending_calls: int = -1
    allow_out_of_order_execution: bool | None = None
    checkpoint: CheckpointPolicy | None = None


def task_options(given: Mapping[str, Any], who: str = "a task") -> TaskOptions:
    """From options that `validate` has passed; `who` is named in errors."""
    retry = given.get("retry_exceptions") or False
    returns = given.get("num_returns")
    held = _resources(given, default_cpus=1.0)
    return TaskOptions(
        resources=held,
        runtime_env=canonical_env(given.get("runtime_env")),
        strategy=strategy_of(given, held, who),
        name=given.get("name") or "",
        num_returns=1 if returns is None else returns,
        max_retries=_or(given.get("max_retries"), DEFAULT_MAX_RETRIES),
        max_calls=_or(given.get("max_calls"), 0),
        retry_exceptions=bool(retry),
        retry_types=tuple(retry) if isinstance(retry, list | tuple) else (),
        backpressure=given.get("_generator_backpressure_num_objects"),
        priority=_or(given.get("priority"), 0),
        writable_args=given.get("writable_args", False),
    )


def actor_options(given: Mapping[str, Any], who: str = "an actor") -> ActorOptions:
    """From options that `validate` has passed; `who` is named in errors."""
    if given.get("get_if_exists") and not given.get("name"):
        raise ValueError("The actor name must be specified to use `get_if_exists`.")
    kept = policy_of(given.get("checkpoint"))
    if kept is not None and ((given.get("max_concurrency") or 1) > 1 or given.get("concurrency_groups")):
        raise ValueError("an actor with checkpoint= runs one call at a time: leave max_concurrency and groups out")
    without_end = 0 if kept is None else -1
    held = _resources(given, default_cpus=0.0)
    needed = {**held, "CPU": 1.0} if given.get("num_cpus") is None else held
    return ActorOptions(
        resources=held,
        placement_resources=needed,
        runtime_env=canonical_env(given.get("runtime_env")),
        strategy=strategy_of(given, needed, who),
        name=_actor_name(given.get("name")),
        namespace=given.get("namespace"),
        detached=given.get("lifetime") == "detached",
        get_if_exists=given.get("get_if_exists", False),
        max_restarts=_or(given.get("max_restarts"), without_end),
        max_task_retries=_or(given.get("max_task_retries"), without_end),
        max_concurrency=given.get("max_concurrency"),
        concurrency_groups=_groups(given.get("concurrency_groups")),
        max_pending_calls=_or(given.get("max_pending_calls"), -1),
        allow_out_of_order_execution=given.get("allow_out_of_order_execution"),
        checkpoint=kept,
    )


def merge(base: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """`.options(...)` over `@remote(...)`: the later wins; metadata and environment variables are joined."""
    merged = {**base, **settled(override)}
    for name in ("_metadata", "_labels"):
        if base.get(name) and override.get(name):
            merged[name] = {**base[name], **override[name]}
    return merged


def settled(given: Mapping[str, Any], of_job: bool = False) -> dict[str, Any]:
    """With the runtime environment in its normal form, which means the same in every process."""
    if not given.get("runtime_env"):
        return dict(given)
    from weft.environments.validation import normalise

    return {**given, "runtime_env": normalise(given["runtime_env"], of_job)}


def canonical_env(env: Mapping[str, Any] | None) -> str:
    """A runtime environment in its normal form as JSON that is equal for equal ones; empty for none."""
    if not env:
        return ""
    from weft.environments.merge import canonical

    return canonical(env)


def strategy_of(
    given: Mapping[str, Any], needed: Mapping[str, float] = NOTHING, who: str = "a task"
) -> dict[str, str | int | bool]:
    """The scheduling strategy as the node daemon reads it; empty for the default one. `needed` is what must fit.

    {"kind": "default"} is one that was asked for: what captures child tasks leaves it alone."""
    wire = groups.strategy_of(given, needed, who)
    strategy = given.get("scheduling_strategy")
    if isinstance(strategy, str):
        if strategy not in ("DEFAULT", "SPREAD"):
            raise ValueError(
                "scheduling_strategy must be 'DEFAULT', 'SPREAD' or an object of weft.util.scheduling_strategies, "
                f"but got {strategy!r}"
            )
        wire["kind"] = "spread" if strategy == "SPREAD" else "default"
    elif strategy is not None and not wire:
        if not hasattr(strategy, "to_wire"):
            raise TypeError(
                f"The type of keyword 'scheduling_strategy' must be str or a strategy, but received type "
                f"{type(strategy)}: got {strategy!r}"
            )
        wire.update(strategy.to_wire())
    if given.get("label_selector"):
        wire["labels"] = json.dumps(given["label_selector"], sort_keys=True)
        if given.get("fallback_strategy"):
            wire["fallbacks"] = json.dumps([entry["label_selector"] for entry in given["fallback_strategy"]])
    if given.get("priority"):
        wire["priority"] = given["priority"]
    return wire


def _resources(given: Mapping[str, Any], default_cpus: float) -> dict[str, float]:
    cpus = given.get("num_cpus")
    amounts = {
        "CPU": float(default_cpus if cpus is None else cpus),
        "GPU": float(given.get("num_gpus") or 0),
        "memory": float(int(given.get("memory") or 0)),  # bytes
        **{name: float(amount) for name, amount in (given.get("resources") or {}).items()},
    }
    if given.get("accelerator_type"):
        amounts[f"accelerator_type:{given['accelerator_type']}"] = 0.001
    return {name: amount for name, amount in amounts.items() if amount > 0}


def _actor_name(name: str | None) -> str:
    if name is not None and not name.strip():
        raise ValueError("Actor name cannot be an empty string: leave it out for an actor without a name.")
    return name or ""


def _groups(given: Any) -> dict[str, int]:
    """Ray takes a dict, or a list of {"name", "max_concurrency"}."""
    if isinstance(given, list):
        return {entry["name"]: entry["max_concurrency"] for entry in given}
    return dict(given or {})


def _or(value: Any, default: int) -> int:
    return default if value is None else int(value)
