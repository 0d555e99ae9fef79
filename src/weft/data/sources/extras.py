"""Libraries that only some formats need: they are imported where they are used, and installed by who uses them."""

from __future__ import annotations

import importlib
from typing import Any


def library(name: str, package: str, what: str) -> Any:
    """The module; ModuleNotFoundError says what to install."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != name.partition(".")[0]:
            raise
        raise ModuleNotFoundError(f"{what} needs {package}: pip install {package}", name=error.name) from None
