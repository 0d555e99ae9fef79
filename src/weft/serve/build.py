"""Turns a bound application into the list of its deployments, with handles where applications were arguments. Pure."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from weft import cloudpickle
from weft.serve.config import DeploymentConfig
from weft.serve.deployments import Application
from weft.serve.http.answering import INGRESS
from weft.serve.http.messages import Kind


@dataclass(frozen=True)
class BuiltDeployment:
    name: str
    code: bytes
    """Pickled: (target, args, kwargs)."""
    version: str
    """Two of the same version can stand in for each other; settings that replicas take on live do not count."""
    config: DeploymentConfig
    kind: Kind = Kind.WHOLE


def build(
    application: Application, handle_for: Callable[[str], Any], settings: Mapping[str, Mapping[str, Any]] | None = None
) -> list[BuiltDeployment]:
    """Those that others use come first; the application's own is the last. `settings` by name go before the code's."""
    others = dict(settings or {})
    built: dict[int, str] = {}
    found: list[BuiltDeployment] = []
    names: set[str] = set()

    def visit(node: Application) -> Any:
        if id(node) not in built:
            args = tuple(_replaced(value, visit) for value in node.args)
            kwargs = {name: _replaced(value, visit) for name, value in node.kwargs.items()}
            name = _free_name(node.deployment.name, names)
            names.add(name)
            built[id(node)] = name
            code = cloudpickle.dumps((node.deployment.target, args, kwargs))
            config = node.deployment.config.changed(**others.pop(name, {}))
            found.append(BuiltDeployment(name, code, _version(code, config), config, _kind(node.deployment.target)))
        return handle_for(built[id(node)])

    visit(application)
    if others:
        raise LookupError(f"the application has no deployment {min(others)!r}; it has {sorted(names)}")
    return found


def _kind(target: Any) -> Kind:
    if hasattr(target, INGRESS):
        return Kind.APP
    function = getattr(target, "__call__", None) if isinstance(target, type) else target  # noqa: B004
    is_generator = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    return Kind.PIECES if is_generator else Kind.WHOLE


def _replaced(value: Any, visit: Callable[[Application], Any]) -> Any:
    if isinstance(value, Application):
        return visit(value)
    if type(value) in (list, tuple):
        return type(value)(_replaced(one, visit) for one in value)
    if type(value) is dict:
        return {name: _replaced(one, visit) for name, one in value.items()}
    return value


def _free_name(name: str, taken: set[str]) -> str:
    """Two bindings of one deployment are two deployments."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free


def _version(code: bytes, config: DeploymentConfig) -> str:
    neutral = replace(
        DeploymentConfig(),
        actor_options=dict(config.actor_options),
        max_ongoing_requests=config.max_ongoing_requests,
        placement_group_bundles=config.placement_group_bundles,
        placement_group_strategy=config.placement_group_strategy,
    )
    return hashlib.sha256(code + repr(neutral).encode()).hexdigest()[:16]
