"""For `MODIN_ENGINE=weft` (or `MODIN_BACKEND=weft`) with a plain `import modin.pandas`: registers the engine while
Modin is loaded, its name after Modin's configuration and its I/O after Modin's list of factories.

Modin looks for no plug-ins by itself. A line in `weft_modin.pth`, which Python runs when it starts, calls `install`,
and only where one of these variables names Weft; nothing of Modin or pandas is loaded before the program does it.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from weft.pandas.modin import registration

_AFTER: dict[str, Callable[[], object]] = {
    "modin.config": registration.name_engine,
    "modin.core.execution.dispatching.factories.factories": registration.add_factory,
}


class _RegisteringFinder(importlib.abc.MetaPathFinder):
    """Finds the modules where everybody finds them, and has something done when they have been loaded."""

    def __init__(self) -> None:
        self._awaited = dict(_AFTER)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        follow_up = self._awaited.pop(fullname, None)
        if follow_up is None:
            return None
        if not self._awaited:
            sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _RegisteringLoader(spec.loader, follow_up)
        return spec


class _RegisteringLoader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader, follow_up: Callable[[], object]) -> None:
        self._loader = loader
        self._follow_up = follow_up

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._follow_up()


def install() -> None:
    """Watch for Modin, which must not be loaded yet; once, although Python may read a .pth file twice."""
    if not any(isinstance(finder, _RegisteringFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _RegisteringFinder())
