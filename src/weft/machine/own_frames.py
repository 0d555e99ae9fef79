"""Which frames of a stack are Weft's own around a call of the user's: a traceback for its author leaves them out."""

from __future__ import annotations

import os

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_AROUND_CALLS = ("engine/process", "environments", "local", "replay", "values")
_FOLDERS = tuple(os.path.join(_PACKAGE, *name.split("/"), "") for name in _AROUND_CALLS)


def is_own(filename: str) -> bool:
    return filename.startswith(_FOLDERS)
