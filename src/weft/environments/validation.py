"""What may be written in a runtime environment, and its normal form: made of JSON values, paths absolute, files read.

Checking happens where the environment is written and raises there: TypeError for a wrong type, ValueError for a wrong
value or an unknown field. Reads requirement files and looks whether paths exist; writes nothing.

>>> normalise({"env_vars": {"A": "1"}, "pip": ["six", "six"]})
{'env_vars': {'A': '1'}, 'pip': {'packages': ['six'], 'pip_check': False}}
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from weft.environments import hook

ARCHIVES = (".zip", ".whl")
_UNSUPPORTED = ("conda", "container", "image_uri", "java_jars", "_nsight", "nsight", "_rocprof_sys", "rocprof_sys")
_WITHOUT_EFFECT = ("_ray_release", "_ray_commit", "_inject_current_ray")
_INSTALLERS = {
    "pip": ("packages", "pip_check", "pip_version", "pip_install_options"),
    "uv": ("packages", "uv_check", "uv_version", "uv_pip_install_options"),
}


def normalise(env: Mapping[str, Any], of_job: bool = False) -> dict[str, Any]:
    """The environment in its normal form. A task's or an actor's may name no relative paths: they run elsewhere."""
    made = {}
    for name, value in env.items():
        if name in _WITHOUT_EFFECT or value is None:
            continue
        check = _FIELDS.get(name)
        if check is None:
            raise ValueError(_why_unknown(name))
        found = check(name, value, of_job)
        if found is not None:
            made[name] = found
    if "pip" in made and "uv" in made:
        raise ValueError("runtime_env can have the field 'pip' or the field 'uv', not both: put all packages in one")
    return made


def _why_unknown(name: object) -> str:
    if name in _UNSUPPORTED:
        return f"runtime_env field {name!r} is not supported. Supported ones are {', '.join(_FIELDS)}."
    return f"runtime_env has no field {name!r}. Its fields are {', '.join(_FIELDS)}."


def _env_vars(name: str, value: Any, of_job: bool) -> dict[str, str] | None:
    if not isinstance(value, Mapping):
        raise TypeError(f"runtime_env['env_vars'] must be a dict of strings, but got {value!r}")
    for key, text in value.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise TypeError(f"runtime_env['env_vars'] must map strings to strings, but got {key!r}: {text!r}")
        if not key or "=" in key or "\0" in key + text:
            raise ValueError(f"runtime_env['env_vars'] has {key!r}, which cannot name a variable")
    return dict(value) or None


def _working_dir(name: str, value: Any, of_job: bool) -> str:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, str):
        raise TypeError(f"runtime_env['working_dir'] must be a path, but got {value!r}")
    path = local_path("working_dir", value, of_job)
    if not os.path.isdir(path) and not path.endswith(ARCHIVES[0]):
        raise ValueError(f"runtime_env['working_dir'] must be a folder or a .zip file, but got {value!r}")
    return path


def _py_modules(name: str, value: Any, of_job: bool) -> list[str] | None:
    if not isinstance(value, list | tuple):
        raise TypeError(f"runtime_env['py_modules'] must be a list of paths or modules, but got {value!r}")
    return [_py_module(entry, of_job) for entry in value] or None


def _py_module(entry: Any, of_job: bool) -> str:
    if hasattr(entry, "__path__"):
        entry = next(iter(entry.__path__), "")
    elif getattr(entry, "__file__", None):
        entry = entry.__file__
    elif isinstance(entry, os.PathLike):
        entry = os.fspath(entry)
    if not isinstance(entry, str):
        raise TypeError(f"runtime_env['py_modules'] must be a list of paths or modules, but it has {entry!r}")
    path = local_path("py_modules", entry, of_job)
    if not os.path.isdir(path) and not path.endswith((".py", *ARCHIVES)):
        raise ValueError(f"runtime_env['py_modules'] takes folders, .py, .zip and .whl files, but got {entry!r}")
    return path


def local_path(field: str, text: str, of_job: bool) -> str:
    """The absolute path of a folder or file that exists."""
    scheme, mark, rest = text.partition("://")
    if mark and scheme != "file":
        raise ValueError(
            f"runtime_env[{field!r}] cannot be fetched from {text!r}: only paths of this machine are supported. "
            "Download it and give the path of the folder or archive."
        )
    path = os.path.expanduser(rest if mark else text)
    if not os.path.isabs(path) and not of_job:
        raise ValueError(
            f"runtime_env[{field!r}] of a task or an actor must be an absolute path, but got {text!r}: a relative one "
            "would mean another folder in each process. Use os.path.abspath(), or pass it to weft.init()."
        )
    path = os.path.abspath(path)
    if not os.path.exists(path):
        raise ValueError(f"runtime_env[{field!r}] is {text!r}, but {path} does not exist")
    return path


def _installer(name: str, value: Any, of_job: bool) -> dict[str, Any] | None:
    given = dict(value) if isinstance(value, Mapping) else {"packages": value}
    known = _INSTALLERS[name]
    unknown = [key for key in given if key not in known]
    if unknown:
        raise ValueError(f"runtime_env[{name!r}] can only have the fields {', '.join(known)}, but got {unknown}")
    if "packages" not in given:
        raise ValueError(f"runtime_env[{name!r}] must include the field 'packages', but got {value!r}")
    packages = given["packages"]
    if isinstance(packages, str):
        packages = _requirements(name, packages, of_job)
    if not isinstance(packages, list | tuple) or not all(isinstance(entry, str) for entry in packages):
        raise TypeError(
            f"runtime_env[{name!r}] must be a list of requirements, the path of a requirements file, or a dict, "
            f"but got {value!r}"
        )
    check, version, options = f"{name}_check", f"{name}_version", known[3]
    if not isinstance(given.get(check, False), bool):
        raise TypeError(f"runtime_env[{name!r}][{check!r}] must be a bool, but got {given[check]!r}")
    if not isinstance(given.get(version, ""), str):
        raise TypeError(f"runtime_env[{name!r}][{version!r}] must be a string, but got {given[version]!r}")
    wanted = given.get(options, [])
    if not isinstance(wanted, list) or not all(isinstance(entry, str) for entry in wanted):
        raise TypeError(f"runtime_env[{name!r}][{options!r}] must be a list of strings, but got {wanted!r}")
    if not packages:
        return None
    return {**given, "packages": list(dict.fromkeys(packages)), check: given.get(check, False)}


def _requirements(name: str, text: str, of_job: bool) -> list[str]:
    """The lines of a requirements file, without comments. Paths in it count from the file's own folder."""
    path = os.path.abspath(os.path.expanduser(text))
    if not os.path.isfile(path):
        raise ValueError(f"runtime_env[{name!r}] is {text!r}, but there is no such requirements file")
    with open(path, encoding="utf-8") as file:
        lines = [line.strip() for line in file.read().replace("\\\n", " ").splitlines()]
    return [line.partition(" #")[0].strip() for line in lines if line and not line.startswith("#")]


def _py_executable(name: str, value: Any, of_job: bool) -> str:
    if not isinstance(value, str) or not value.strip():
        raise TypeError(f"runtime_env['py_executable'] must be a command, but got {value!r}")
    return value


def _excludes(name: str, value: Any, of_job: bool) -> list[str] | None:
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise TypeError(f"runtime_env['excludes'] must be a list of patterns, but got {value!r}")
    return list(value) or None


def check_config(value: Any) -> dict[str, Any]:
    """The field `config`: how the environment is made, not what is in it."""
    if not isinstance(value, Mapping):
        raise TypeError(f"runtime_env['config'] must be a dict or a RuntimeEnvConfig, but got {value!r}")
    unknown = [key for key in value if key not in ("setup_timeout_seconds", "eager_install", "log_files")]
    if unknown:
        raise ValueError(f"runtime_env['config'] has no field {unknown[0]!r}; it has setup_timeout_seconds")
    timeout = value.get("setup_timeout_seconds", -1)
    if isinstance(timeout, bool) or not isinstance(timeout, int):
        raise TypeError(f"setup_timeout_seconds must be of type int, but got {timeout!r}")
    if timeout <= 0 and timeout != -1:
        raise ValueError(f"setup_timeout_seconds must be greater than zero or equal to -1, but got {timeout}")
    if not isinstance(value.get("eager_install", True), bool):
        raise TypeError(f"eager_install must be a boolean, but got {value['eager_install']!r}")
    files = value.get("log_files") or []
    if not isinstance(files, list) or not all(isinstance(entry, str) for entry in files):
        raise TypeError(f"log_files must be a list of strings, but got {files!r}")
    return dict(value)


_FIELDS: dict[str, Callable[[str, Any, bool], Any]] = {
    "env_vars": _env_vars,
    "working_dir": _working_dir,
    "py_modules": _py_modules,
    "excludes": _excludes,
    "pip": _installer,
    "uv": _installer,
    "py_executable": _py_executable,
    "worker_process_setup_hook": lambda name, value, of_job: hook.to_wire(value),
    "config": lambda name, value, of_job: check_config(value),
}
FIELDS = tuple(_FIELDS)
