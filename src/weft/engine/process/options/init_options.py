"""The arguments of `init`, checked. Ray's private and retired ones are accepted and have no effect. Pure.

>>> InitOptions.of("local", {"num_cpus": 2}).num_cpus
2
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from weft.engine.process.options.option_checks import namespace as check_namespace
from weft.engine.process.options.option_checks import resource_amount

_TYPES: dict[str, tuple[type, ...]] = {
    "num_cpus": (int, float),
    "num_gpus": (int, float),
    "resources": (dict,),
    "labels": (dict,),
    "object_store_memory": (int, float),
    "storage": (str,),
    "namespace": (str,),
    "runtime_env": (dict,),
    "log_to_driver": (bool,),
    "ignore_reinit_error": (bool,),
    "local_mode": (bool,),
}
SMALLEST_STORE_BYTES = 1 << 20
"""Less holds next to no object that is large enough to go there."""
OF_A_NODE = frozenset(("num_cpus", "num_gpus", "resources", "object_store_memory", "labels", "storage"))
"""What describes a node that is to be started."""
_MOST_OF_A_RESOURCE = 1e9
ADDRESS_VARIABLES = ("WEFT_ADDRESS", "RAY_ADDRESS")
JOB_ENVIRONMENT = "WEFT_JOB_RUNTIME_ENV"
"""What a submitted job's runtime environment has for workers, in JSON (see `weft.jobs`)."""
_WITHOUT_EFFECT = frozenset(
    "include_dashboard dashboard_host dashboard_port job_config enable_object_reconstruction "
    "enable_resource_isolation system_reserved_cpu system_reserved_memory proxy_server_url allow_multiple "
    "cluster_metadata".split()
)
_OF_LOGGING = frozenset(("logging_config", "configure_logging", "logging_level", "logging_format"))


@dataclass(frozen=True)
class InitOptions:
    """What a driver asked for. `address` is empty for a node of its own."""

    address: str = ""
    num_cpus: float | None = None
    num_gpus: float | None = None
    resources: dict[str, float] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    object_store_bytes: int | None = None
    storage: str = ""
    """Where values of put(durable=True) are kept; empty: below TMPDIR."""
    namespace: str = ""
    runtime_env: str = ""
    log_to_driver: bool = True
    ignore_reinit_error: bool = False
    local_mode: bool = False
    logging_config: Any = None
    """A LoggingConfig, or None."""
    own_logging: Any = None
    """An OwnLogging, or None: of Weft's own loggers."""
    given: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, address: str | None, given: Mapping[str, Any]) -> InitOptions:
        """Check all of them. RuntimeError for an unknown one, TypeError or ValueError for a wrong value."""
        known = {*_TYPES, *_WITHOUT_EFFECT, *_OF_LOGGING}
        unknown = [name for name in given if name not in known and name[0] != "_"]
        if unknown:
            from weft.engine.process.options.call_options import near

            hint = near(unknown[0], [*_TYPES, "address"])
            raise RuntimeError(f"Unknown keyword argument(s): {', '.join(unknown)}.{hint}")
        values = {name: given[name] for name in _TYPES if given.get(name) is not None}
        if (of_job := os.environ.get(JOB_ENVIRONMENT)) and "runtime_env" not in values:
            values["runtime_env"] = json.loads(of_job)
        for name, value in values.items():
            if not isinstance(value, _TYPES[name]) or (isinstance(value, bool) and bool not in _TYPES[name]):
                wanted = " or ".join(kind.__name__ for kind in _TYPES[name])
                raise TypeError(f"{name} must be {wanted}, but got {value!r}")
        check_resources(values)
        if "namespace" in values:
            check_namespace("namespace", values["namespace"])
        chosen = _address(address)
        if chosen and set(values) & OF_A_NODE:
            raise ValueError(
                f"When connecting to an existing node, {', '.join(sorted(set(values) & OF_A_NODE))} must not be "
                "provided: the node that is there has its own."
            )
        _check_private(given, chosen)
        if chosen and values.get("local_mode"):
            raise ValueError(f"local_mode runs all in this process, so leave address out, but got {address!r}")
        memory = values.get("object_store_memory")
        return cls(
            address=chosen,
            num_cpus=values.get("num_cpus"),
            num_gpus=values.get("num_gpus"),
            resources={name: float(amount) for name, amount in values.get("resources", {}).items()},
            labels=values.get("labels", {}),
            object_store_bytes=None if memory is None else int(memory),
            storage=values.get("storage", ""),
            namespace=values.get("namespace", ""),
            runtime_env=_runtime_env(values),
            log_to_driver=values.get("log_to_driver", True),
            local_mode=values.get("local_mode", False),
            ignore_reinit_error=values.get("ignore_reinit_error", False),
            logging_config=_logging_config(given.get("logging_config")),
            own_logging=_own_logging(given),
            given=dict(given),
        )


def _check_private(given: Mapping[str, Any], address: str) -> None:
    """Of Ray's private arguments what would be wrong there, too."""
    if address and given.get("_system_config"):
        raise ValueError("_system_config is for a node that is started: it cannot be given with the address of one")
    folder = given.get("_temp_dir")
    if folder is not None and not os.path.isabs(folder):
        raise ValueError(f"_temp_dir must be an absolute path, but got {folder!r}")


def _runtime_env(values: Mapping[str, Any]) -> str:
    if not values.get("runtime_env"):
        return ""
    from weft.engine.process.options.call_options import canonical_env, settled

    return canonical_env(settled(values, of_job=True).get("runtime_env"))


def check_resources(values: Mapping[str, Any]) -> None:
    for name in ("num_cpus", "num_gpus"):
        if name in values:
            resource_amount(name, values[name])
            if values[name] > _MOST_OF_A_RESOURCE:
                raise ValueError(f"{name} must be at most {_MOST_OF_A_RESOURCE:g}, but got {values[name]}")
    if values.get("num_gpus", 0) != int(values.get("num_gpus", 0)):
        raise ValueError(f"num_gpus must be a whole number of devices, but got {values['num_gpus']}")
    for key, value in values.get("labels", {}).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"labels must map strings to strings, but got {key!r}: {value!r}")
    for name, amount in values.get("resources", {}).items():
        if name in ("CPU", "GPU"):
            raise ValueError(f"Use num_cpus and num_gpus instead of {name!r} in resources")
        if not isinstance(name, str) or isinstance(amount, bool) or not isinstance(amount, int | float):
            raise TypeError(f"resources must map names to numbers, but got {name!r}: {amount!r}")
        resource_amount(name, amount)
    store = values.get("object_store_memory", SMALLEST_STORE_BYTES)
    if not store >= SMALLEST_STORE_BYTES:
        raise ValueError(f"object_store_memory must be at least {SMALLEST_STORE_BYTES} bytes (1 MiB), but got {store}")


def _logging_config(given: Any) -> Any:
    if given is None and not os.environ.get("WEFT_LOGGING"):
        return None  # logging is not even imported
    from weft.engine.process.telling.logging_config import LoggingConfig

    if given is None:
        return LoggingConfig.of_text(os.environ["WEFT_LOGGING"])
    if not isinstance(given, LoggingConfig):
        raise TypeError(f"logging_config must be a weft.LoggingConfig, but got {given!r}")
    return given


def _own_logging(given: Mapping[str, Any]) -> Any:
    """Of Weft's own loggers, unless configure_logging=False; the variables hold where nothing is said."""
    configures = given.get("configure_logging")
    if configures is not None and not isinstance(configures, bool):
        raise TypeError(f"configure_logging must be bool, but got {configures!r}")
    level, form = given.get("logging_level"), given.get("logging_format")
    if level is None and form is None and not os.environ.get("WEFT_LOGGING_LEVEL"):
        return None  # logging is not even imported
    from weft.engine.process.telling.own_logging import OwnLogging

    found = OwnLogging.of(level, form)
    return None if configures is False else found


def _address(address: str | None) -> str:
    if address is not None and not isinstance(address, str):
        raise TypeError(f"address must be a string, but got {address!r}")
    if address is None:
        address = next(filter(None, map(os.environ.get, ADDRESS_VARIABLES)), "local")
    return "" if address in ("local", "") else address
