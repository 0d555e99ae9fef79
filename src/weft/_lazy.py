"""A package whose names are loaded at their first use, so that importing it costs next to nothing."""

from __future__ import annotations

TYPE_CHECKING = False  # not from typing, which takes longer to import than all of this

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


class LazyNames:
    """What a library's `__init__` needs: `load` as `__getattr__`, `listed` as `__dir__`, and `names` for `__all__`.

    `homes` has for each module of the package the names that are taken from it. `needs` are the packages that the
    library's extra installs: without one of them, the error says how to get it."""

    def __init__(
        self, package: str, homes: Mapping[str, str], submodules: Collection[str] = (), needs: Collection[str] = ()
    ) -> None:
        self._package = package
        self._home_of = {name: home for home, names in homes.items() for name in names.split()}
        self._submodules = submodules
        self._needs = needs
        self.names = [*sorted(self._home_of), *sorted(submodules)]

    def load(self, name: str) -> object:
        import importlib
        import sys

        if name not in self.names:
            raise AttributeError(f"module {self._package!r} has no attribute {name!r}")
        try:
            if name in self._submodules:
                value: object = importlib.import_module(f"{self._package}.{name}")
            else:
                value = getattr(importlib.import_module(f"{self._package}.{self._home_of[name]}"), name)
        except ModuleNotFoundError as error:
            if error.name not in self._needs:
                raise
            extra = self._package.rpartition(".")[2]
            text = f"{self._package} needs {error.name}: pip install 'weft[{extra}]'"
            raise ModuleNotFoundError(text, name=error.name) from None
        setattr(sys.modules[self._package], name, value)
        return value

    def listed(self) -> list[str]:
        import sys

        return sorted({*vars(sys.modules[self._package]), *self.names})
