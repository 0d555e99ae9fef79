"""`RuntimeEnv` and `RuntimeEnvConfig`: dictionaries that check what is put in them, in Ray's words."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

from weft.environments import validation
from weft.environments.merge import canonical

DEFAULT_TIMEOUT_S = 600


class RuntimeEnvConfig(dict[str, Any]):
    """How an environment is made.

    >>> RuntimeEnvConfig(setup_timeout_seconds=60)["setup_timeout_seconds"]
    60
    """

    def __init__(
        self,
        setup_timeout_seconds: int = DEFAULT_TIMEOUT_S,
        eager_install: bool = True,
        log_files: list[str] | None = None,
    ) -> None:
        super().__init__(
            validation.check_config(
                {
                    "setup_timeout_seconds": setup_timeout_seconds,
                    "eager_install": eager_install,
                    "log_files": log_files or [],
                }
            )
        )

    def to_dict(self) -> dict[str, Any]:
        """A plain dict of it."""
        return dict(deepcopy(self))


class RuntimeEnv(dict[str, Any]):
    """A runtime environment; a plain dict with the same fields does as well.

    Raises TypeError or ValueError for a field that is wrong or unknown.

    >>> RuntimeEnv(env_vars={"A": "1"}).to_dict()
    {'env_vars': {'A': '1'}}
    """

    def __init__(self, *, _validate: bool = True, **fields: Any) -> None:
        given = {name: value for name, value in fields.items() if value is not None}
        if _validate:
            validation.normalise(given, of_job=True)
        super().__init__({name: _typed(name, value) for name, value in given.items()})

    def __setitem__(self, name: str, value: Any) -> None:
        validation.normalise({name: value}, of_job=True)
        super().__setitem__(name, _typed(name, value))

    def set(self, name: str, value: Any) -> None:
        """As `env[name] = value`."""
        self[name] = value

    @classmethod
    def deserialize(cls, serialized_runtime_env: str) -> RuntimeEnv:
        """What `serialize` wrote."""
        return cls(_validate=False, **json.loads(serialized_runtime_env))

    def serialize(self) -> str:
        """As JSON, equal for equal environments."""
        return canonical(validation.normalise(self, of_job=True)) or "{}"

    def to_dict(self) -> dict[str, Any]:
        """A plain dict of it."""
        made = dict(deepcopy(self))
        if isinstance(made.get("config"), RuntimeEnvConfig):
            made["config"] = made["config"].to_dict()
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (dict(self),)

    # -- one field each --

    def has_working_dir(self) -> bool:
        """Whether it names one."""
        return "working_dir" in self

    def working_dir(self) -> str:
        """The folder, or an empty string."""
        return str(self.get("working_dir", ""))

    def working_dir_uri(self) -> str | None:
        """The folder or its address, or None."""
        return self.get("working_dir")

    def py_modules(self) -> list[str]:
        """The modules' folders."""
        return list(self.get("py_modules", ()))

    def py_modules_uris(self) -> list[str]:
        """The modules' folders or addresses."""
        return self.py_modules()

    def py_executable(self) -> str | None:
        """The interpreter's command, or None."""
        return self.get("py_executable")

    def env_vars(self) -> dict[str, str]:
        """The environment variables that it sets."""
        return dict(self.get("env_vars", {}))

    def has_pip(self) -> bool:
        """Whether it installs with pip."""
        return bool(self.get("pip"))

    def pip_config(self) -> dict[str, Any]:
        """What pip installs, and how."""
        return self._installer("pip")

    def has_uv(self) -> bool:
        """Whether it installs with uv."""
        return bool(self.get("uv"))

    def uv_config(self) -> dict[str, Any]:
        """What uv installs, and how."""
        return self._installer("uv")

    def _installer(self, name: str) -> dict[str, Any]:
        given = {name: self[name]} if self.get(name) else {}
        return validation.normalise(given, of_job=True).get(name, {}) if given else {}


def _typed(name: str, value: Any) -> Any:
    if name == "config" and not isinstance(value, RuntimeEnvConfig):
        return RuntimeEnvConfig(**value)
    return value


def _rebuild(fields: dict[str, Any]) -> RuntimeEnv:
    return RuntimeEnv(_validate=False, **fields)
