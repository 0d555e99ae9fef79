"""What `weft serve deploy` reads: a file that says all that a cluster should serve. Pure.

    http: {port: 8000}
    grpc: {port: 9000, servicers: ["shop_pb2_grpc:add_ShopServicer_to_server"]}
    applications:
      - import_path: shop:app
        name: shop
        route_prefix: /shop
        args: {size: 3}
        deployments:
          - {name: Model, num_replicas: 3, user_config: {threshold: 0.5}}

`import_path` names what `bind()` returned, or a function that returns it and is given `args`. The settings under
`deployments` go before those in the code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from weft.library.checks import did_you_mean
from weft.serve.config import DeploymentConfig
from weft.serve.grpc.options import GRPCOptions
from weft.serve.http.messages import HTTPOptions


class BadConfig(ValueError):
    """The file does not say what it should; the message says where."""


@dataclass(frozen=True)
class WantedApplication:
    import_path: str
    name: str = "default"
    route_prefix: str | None = "/"
    args: Mapping[str, Any] = field(default_factory=dict)
    deployments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Settings by the deployment's name."""


@dataclass(frozen=True)
class WantedServing:
    applications: tuple[WantedApplication, ...]
    http: HTTPOptions = field(default_factory=HTTPOptions)
    grpc: GRPCOptions | None = None


def parse(document: Any) -> WantedServing:
    """
    >>> parse({"applications": [{"import_path": "shop:app"}]}).applications[0].name
    'default'
    """
    found = _mapping(document, "the file", ("applications", "grpc", "http"))
    listed = found.get("applications")
    if not isinstance(listed, list) or not listed:
        raise BadConfig("the file must have a list of applications, with at least one")
    applications = tuple(_application(one, f"applications[{number}]") for number, one in enumerate(listed))
    for what in ("name", "route_prefix"):
        taken = [getattr(one, what) for one in applications if getattr(one, what) is not None]
        twice = next((one for one in taken if taken.count(one) > 1), None)
        if twice is not None:
            raise BadConfig(f"two applications have the {what} {twice!r}: give each its own")
    http = _mapping(found.get("http") or {}, "http", tuple(HTTPOptions.__dataclass_fields__))
    return WantedServing(applications, _checked("http", HTTPOptions, http), _grpc(found.get("grpc")))


def differences(old: Any, new: Any, where: str = "") -> Iterator[str]:
    """What a second file says otherwise, a line each. Applications and deployments are compared by name.

    >>> old = {"applications": [{"name": "shop", "args": {"size": 3}}, {"name": "blog"}]}
    >>> list(differences(old, {"applications": [{"name": "shop", "args": {"size": 4}}], "http": {"port": 1}}))
    ["- applications.blog: {'name': 'blog'}", '~ applications.shop.args.size: 3 -> 4', "+ http: {'port': 1}"]
    """
    old, new = _by_name(old), _by_name(new)
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        if old != new:
            yield f"~ {where}: {old!r} -> {new!r}"
        return
    for key in sorted({*old, *new}, key=str):
        path = f"{where}.{key}" if where else str(key)
        if key not in new:
            yield f"- {path}: {old[key]!r}"
        elif key not in old:
            yield f"+ {path}: {new[key]!r}"
        else:
            yield from differences(old[key], new[key], path)


def _by_name(value: Any) -> Any:
    """A list of mappings that have names, as a mapping; anything else as it is."""
    if not isinstance(value, list) or not value or not all(isinstance(one, Mapping) for one in value):
        return value
    return {one.get("name", "default"): one for one in value}


def _grpc(document: Any) -> GRPCOptions | None:
    if document is None:
        return None
    found = _mapping(document, "grpc", tuple(GRPCOptions.__dataclass_fields__))
    options: GRPCOptions = _checked("grpc", GRPCOptions, found)
    return options


def _application(document: Any, where: str) -> WantedApplication:
    found = _mapping(document, where, tuple(WantedApplication.__dataclass_fields__))
    if not isinstance(found.get("import_path"), str):
        raise BadConfig(f"{where} must have an import_path of the form MODULE:APP")
    listed = found.get("deployments") or []
    if not isinstance(listed, list):
        raise BadConfig(f"{where}.deployments must be a list, but got {listed!r}")
    settings = {}
    for number, one in enumerate(listed):
        here = f"{where}.deployments[{number}]"
        given = dict(_mapping(one, here, None))
        if not isinstance(given.get("name"), str):
            raise BadConfig(f"{here} must have a name")
        name = given.pop("name")
        _checked(here, DeploymentConfig().changed, given)
        settings[name] = given
    args = _mapping(found.get("args") or {}, f"{where}.args", None)
    return WantedApplication(**{**found, "deployments": settings, "args": args})


def _mapping(document: Any, where: str, known: tuple[str, ...] | None) -> Mapping[str, Any]:
    if not isinstance(document, Mapping) or not all(isinstance(key, str) for key in document):
        raise BadConfig(f"{where} must be a mapping, but got {document!r}")
    unknown = sorted(set(document) - set(known)) if known is not None else []
    if unknown:
        hint = did_you_mean(unknown[0], known or ()) or ";"
        raise BadConfig(f"{where} has no field {unknown[0]!r}{hint} it has {sorted(known or ())}")
    return document


def _checked(where: str, make: Any, given: Mapping[str, Any]) -> Any:
    try:
        return make(**given)
    except (TypeError, ValueError) as error:
        raise BadConfig(f"{where}: {error}") from None
