"""Every public name says what it is, and is on a page of the API reference."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import weft

FOLDER = Path(__file__).parent
REFERENCE = "\n".join(page.read_text() for page in sorted((FOLDER.parents[1] / "docs/api").glob("*.md")))
PUBLIC = sorted({"weft", "weft.pandas", *re.findall(r"automodule:: (\S+)", REFERENCE)})


# In a process of its own: the libraries import JAX and the like, which must not stay with other tests.
def test_every_public_name_has_a_docstring() -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER / "public_names.py"), *PUBLIC],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.split()) == (0, [])


def test_a_name_without_a_docstring_is_found(tmp_path: Path) -> None:
    (tmp_path / "weft_like.py").write_text(
        '"""A module."""\n'
        "from dataclasses import dataclass\n"
        "@dataclass\nclass Bare:\n    x: int\n"
        'class Told:\n    """Told."""\n    def method(self): ...\n    @property\n    def value(self): ...\n'
        "def function(): ...\n"
        "for each in (Bare, Told, function):\n    each.__module__ = 'weft.like'\n"
    )
    done = subprocess.run(
        [sys.executable, str(FOLDER / "public_names.py"), "weft_like"], env={"PYTHONPATH": str(tmp_path)},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.stdout.split() == [
        "weft_like.Bare",
        "weft_like.Told.method",
        "weft_like.Told.value",
        "weft_like.function",
        "weft_like.each",
    ]


def test_every_name_of_the_core_is_in_the_reference() -> None:
    assert [name for name in weft.__all__ if not name.startswith("_") and not is_in_the_reference(name)] == []


def is_in_the_reference(name: str) -> bool:
    """By itself, as another name of one that is, or with all of its module."""
    value = getattr(weft, name)
    home = value.__name__ if isinstance(value, ModuleType) else value.__module__
    own_name = value.__name__.split(".")[-1]
    return re.search(rf":: (weft\.{own_name}|{re.escape(home)})$", REFERENCE, re.MULTILINE) is not None
