"""A package whose names are loaded at their first use, so that importing it costs next to nothing.

The names are listed once, in the package's `__init__.pyi`: type checkers read it as a stub, and so does this module.
"""

from __future__ import annotations

TYPE_CHECKING = False  # not from typing, which takes longer to import than all of this

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from types import ModuleType


class LazyNames:
    """What a library's `__init__` needs: `load` as `__getattr__`, `listed` as `__dir__`, and `names` for `__all__`.

    `needs` are the packages that the library's extra installs: without one of them, the error says how to get it."""

    def __init__(self, package: str, needs: Collection[str] = ()) -> None:
        import sys

        self._package = package
        self._needs = needs
        with open(f"{sys.modules[package].__path__[0]}/__init__.pyi", encoding="utf-8") as stub:
            self._home_of = homes_of(stub)
        self.names = sorted(self._home_of)
        self.submodules = [name for name, home in self._home_of.items() if home == package]

    def load(self, name: str) -> object:
        import sys

        if name not in self._home_of:
            raise missing(self._package, name, self.names)
        home = self._home_of[name]
        value: object = self.module(f"{home}.{name}") if name in self.submodules else getattr(self.module(home), name)
        setattr(sys.modules[self._package], name, value)
        return value

    def module(self, name: str) -> ModuleType:
        """A module. ModuleNotFoundError that says how to get what it needs."""
        import importlib

        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name not in self._needs:
                raise
            extra = self._package.rpartition(".")[2]
            text = f"{self._package} needs {error.name}: pip install 'weft[{extra}]'"
            raise ModuleNotFoundError(text, name=error.name) from None

    def listed(self) -> list[str]:
        return listed(self._package, self.names)


def homes_of(stub: Iterable[str]) -> dict[str, str]:
    """The module of each name in a stub whose lines are `from weft.tune.space import choice as choice`.

    >>> homes_of(["from weft.tune.space import choice as choice"])
    {'choice': 'weft.tune.space'}
    """
    words = (line.split() for line in stub if line.startswith("from weft"))
    return {name: module for _, module, _, name, *_ in words}


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """What was probably meant by a name that is not known.

    >>> nearest("num_cpu", ["num_cpus", "name"])
    'num_cpus'
    """
    import difflib  # costs milliseconds, and only a mistake needs it

    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)), None)


def missing(package: str, name: str, known: Collection[str]) -> AttributeError | ImportError:
    """What to raise for a name that a package does not have, with what to write instead. To be called in its
    `__getattr__`: of an AttributeError there, `from package import name` would drop the text."""
    import sys

    from weft._elsewhere import WRITE_INSTEAD

    text = f"module {package!r} has no attribute {name!r}"
    if name.startswith("_"):  # a protocol or a submodule is asked for
        return AttributeError(text)
    instead = WRITE_INSTEAD.get(package, {}).get(name)
    near = None if instead else nearest(name, known)
    text += f": {instead}" if instead else f". Did you mean {package}.{near}?" if near else ""
    asking = sys._getframe(2)
    is_import = asking.f_code.co_code[asking.f_lasti] == _import_from()
    return ImportError(text, name=package) if is_import and (instead or near) else AttributeError(text)


def _import_from() -> int:
    import opcode

    return opcode.opmap["IMPORT_FROM"]


def listed(package: str, known: Collection[str]) -> list[str]:
    """What `dir` shows of a package: what users are meant to find, and the attributes that every module has."""
    import sys

    here = vars(sys.modules[package])
    made_here = (type(listed), type)  # functions and classes; a module's attributes would be looked up by itself
    own = (name for name, value in here.items() if isinstance(value, made_here) and value.__module__ == package)
    return sorted({*known, *(name for name in own if name[0] != "_"), *(name for name in here if name[:2] == "__")})
