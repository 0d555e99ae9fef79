"""The finder that makes `import ray` find Weft; see `weft.compat`. Installed in drivers on request, in workers when
the variable that it leaves in the driver's environment says so.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Sequence

VARIABLE = "RAY_MEANS_WEFT"


class RayFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Resolves `ray` and `ray.x.y` to `weft` and `weft.x.y`: the very same module objects."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "ray" and not fullname.startswith("ray."):
            return None
        if importlib.util.find_spec(_target(fullname)) is None:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = importlib.import_module(_target(spec.name))
        self._spec = module.__spec__
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has put the alias's there


def install_as_ray() -> None:
    """From now on `import ray` finds Weft, in this process and in the workers of sessions started later.

    Raises RuntimeError when the real Ray was imported before.

    >>> weft.compat.install_as_ray()
    >>> import ray
    >>> ray is weft
    True
    """
    known = sys.modules.get("ray")
    if known is not None and known.__name__ != "weft":
        raise RuntimeError("ray is imported already: call install_as_ray() before anything imports ray")
    if not any(isinstance(finder, RayFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, RayFinder())
    os.environ[VARIABLE] = "1"


def _target(name: str) -> str:
    return "weft" + name[len("ray") :]
