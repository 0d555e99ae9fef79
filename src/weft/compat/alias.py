"""`import ray` finds Weft: in this process by a finder, in its children by a folder on PYTHONPATH.

The folder `on_path` holds a module `ray`, which installs the finder where it is imported, and the metadata of a
distribution `ray`, so that `importlib.metadata.version("ray")` answers. A worker on another machine has that folder at
another place: the engine imports `weft.compat.in_worker` there, as WEFT_WORKER_IMPORTS asks.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import Distribution

API_LEVEL = "2.60.0"
"""The version of Ray whose words are spoken; `ray.__version__`, and that of the metadata."""
VARIABLE = "RAY_MEANS_WEFT"
ON_ZERO = "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"
"""Ray's workers that asked for no GPU see what the driver sees, unless this is 1."""
ON_PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "on_path")
_WORKER_IMPORTS = ("WEFT_WORKER_IMPORTS", "weft.compat.in_worker")
_OURS = ("weft", "weft.compat.ray")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a module under another name: the very same module object."""

    def home(self, name: str) -> str | None:
        """The module that stands behind the name."""
        raise NotImplementedError

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        found = self.home(fullname)
        return None if found is None else importlib.machinery.ModuleSpec(fullname, self, origin=found, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        assert spec.origin is not None
        module = importlib.import_module(spec.origin)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state  # the import system has put the alias's there


class RayFinder(_Finder):
    """Resolves `ray.x` to `weft.compat.ray.x` where that is, else to `weft.x`."""

    def home(self, name: str) -> str | None:
        if name != "ray" and not name.startswith("ray."):
            return None
        return _first_of(f"weft.compat.ray{name[3:]}", f"weft{name[3:]}")


class BehindFinder(_Finder):
    """Resolves `weft.compat.ray.x`, which no other finder has found, to `weft.x`."""

    def home(self, name: str) -> str | None:
        package = "weft.compat.ray."
        return _first_of(f"weft.{name[len(package) :]}") if name.startswith(package) else None


def stand_before_weft() -> None:
    """`weft.compat.ray` has every module of Weft's, also where the alias is not installed."""
    if not any(isinstance(finder, BehindFinder) for finder in sys.meta_path):
        sys.meta_path.append(BehindFinder())


def _first_of(*homes: str) -> str | None:
    for home in homes:
        try:
            if (spec := importlib.util.find_spec(home)) is not None:
                return spec.name
        except ModuleNotFoundError:  # there is not even the package that it would be in
            continue
    return None


def install_as_ray() -> None:
    """From now on `import ray` finds Weft, in this process and in those that it starts.

    Raises RuntimeError when the real Ray was imported before. Where it is installed, a warning says that it is not
    the one that is found.

    >>> weft.compat.install_as_ray()
    >>> import ray
    >>> ray.get is weft.get
    True
    """
    known = sys.modules.get("ray")
    if known is not None and known.__name__ not in _OURS:
        raise RuntimeError("ray is imported already: call install_as_ray() before anything imports ray")
    if VARIABLE not in os.environ and (real := installed_ray()) is not None:
        import warnings

        warnings.warn(
            f"Ray {real.version} is installed here ({real.locate_file('')}), but from now on `import ray` and "
            f"importlib.metadata find Weft, which offers the API of Ray {API_LEVEL}. For the real Ray run the program "
            "without weft.compat.",
            stacklevel=2,
        )
    install_quietly()


def install_quietly() -> None:
    """Without a word about a real Ray: in children, which can do nothing about it."""
    if not any(isinstance(finder, RayFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, RayFinder())
    if ON_PATH not in sys.path:
        sys.path.insert(1, ON_PATH)  # the first is the program's own folder, which some programs look for there
    os.environ.update(environment(os.environ))
    from weft.compat import addresses

    addresses.translate_variables()


def environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """The variables by which a child finds `ray`."""
    path = [entry for entry in inherited.get("PYTHONPATH", "").split(os.pathsep) if entry and entry != ON_PATH]
    variable, module = _WORKER_IMPORTS
    imports = inherited.get(variable, "").split()
    return {
        VARIABLE: "1",
        ON_ZERO: inherited.get(ON_ZERO, "0"),
        "PYTHONPATH": os.pathsep.join([ON_PATH, *path]),
        variable: " ".join(imports if module in imports else [*imports, module]),
    }


def with_alias(runtime_env: Mapping[str, Any]) -> dict[str, Any]:
    """The same environment, in which `import ray` finds Weft: on nodes that have it where this machine has it."""
    variables = dict(runtime_env.get("env_vars") or {})
    variables["PYTHONPATH"] = os.pathsep.join([ON_PATH, variables.get("PYTHONPATH", "${PYTHONPATH}")])
    return {**runtime_env, "env_vars": variables}


def take_over() -> None:
    """Called by `on_path/ray.py` as it is imported: put the real one in its place."""
    sys.modules.pop("ray", None)
    install_quietly()
    sys.modules["ray"] = importlib.import_module("weft.compat.ray")


def installed_ray() -> Distribution | None:
    """The metadata of a real Ray that this Python could import."""
    import importlib.metadata  # takes longer than all else here, and workers do not ask

    paths = [entry for entry in sys.path if os.path.abspath(entry or ".") != ON_PATH]
    return next(iter(importlib.metadata.distributions(name="ray", path=paths)), None)
