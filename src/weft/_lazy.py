"""A package whose names are loaded at their first use, so that importing it costs next to nothing."""

from __future__ import annotations

TYPE_CHECKING = False  # not from typing, which takes longer to import than all of this

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from types import ModuleType


class LazyNames:
    """What a library's `__init__` needs: `load` as `__getattr__`, `listed` as `__dir__`, and `names` for `__all__`.

    `homes` has for each module of the package the names that are taken from it. `needs` are the packages that the
    library's extra installs: without one of them, the error says how to get it. `elsewhere` has names that people know
    from other libraries, each with what to write here."""

    def __init__(
        self,
        package: str,
        homes: Mapping[str, str],
        submodules: Collection[str] = (),
        needs: Collection[str] = (),
        elsewhere: Mapping[str, str] | None = None,
    ) -> None:
        self._package = package
        self._home_of = {name: home for home, names in homes.items() for name in names.split()}
        self._submodules = submodules
        self._needs = needs
        self._elsewhere = elsewhere or {}
        self.names = [*sorted(self._home_of), *sorted(submodules)]

    def load(self, name: str) -> object:
        import sys

        if name in self._elsewhere:
            raise AttributeError(f"{self._package} has no {name}: {self._elsewhere[name]}")
        if name not in self.names:
            raise missing(self._package, name, self.names)
        is_module = name in self._submodules
        value: object = self.module(name) if is_module else getattr(self.module(self._home_of[name]), name)
        setattr(sys.modules[self._package], name, value)
        return value

    def module(self, name: str) -> ModuleType:
        """A module of the package. ModuleNotFoundError that says how to get what it needs."""
        import importlib

        try:
            return importlib.import_module(f"{self._package}.{name}")
        except ModuleNotFoundError as error:
            if error.name not in self._needs:
                raise
            extra = self._package.rpartition(".")[2]
            text = f"{self._package} needs {error.name}: pip install 'weft[{extra}]'"
            raise ModuleNotFoundError(text, name=error.name) from None

    def listed(self) -> list[str]:
        return listed(self._package, self.names)


def missing(package: str, name: str, known: Collection[str]) -> AttributeError:
    """What to raise for a name that a package does not have, with the one that was probably meant."""
    text = f"module {package!r} has no attribute {name!r}"
    if name.startswith("_"):  # a protocol or a submodule is asked for
        return AttributeError(text)
    import difflib  # costs milliseconds, and only a mistake needs it

    near = difflib.get_close_matches(name, known, n=1)
    return AttributeError(f"{text}. Did you mean {package}.{near[0]}?" if near else text)


def listed(package: str, known: Collection[str]) -> list[str]:
    """What `dir` shows of a package: what users are meant to find, and the attributes that every module has."""
    import sys

    here = vars(sys.modules[package])
    made_here = (type(listed), type)  # functions and classes; a module's attributes would be looked up by itself
    own = (name for name, value in here.items() if isinstance(value, made_here) and value.__module__ == package)
    return sorted({*known, *(name for name in own if name[0] != "_"), *(name for name in here if name[:2] == "__")})
