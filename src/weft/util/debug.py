"""Say a thing once.

>>> [log_once("a key of the debug example") for _ in range(2)]
[True, False]
"""

from __future__ import annotations

import time

__all__ = ["disable_log_once_globally", "enable_periodic_logging", "log_once", "reset_log_once"]

PERIOD_S = 60.0

_said: dict[str, float] = {}
_is_disabled = False
_is_periodic = False


def log_once(key: str) -> bool:
    """Whether this is the first call with this key in this process; also the first in a minute, where that is wanted.

    Write `if log_once("slow_disk"): logger.warning(...)`.

    >>> [log_once("slow_disk") for _ in range(3)]
    [True, False, False]
    """
    if _is_disabled:
        return False
    now = time.monotonic()
    if key in _said and not (_is_periodic and now - _said[key] > PERIOD_S):
        return False
    _said[key] = now
    return True


def disable_log_once_globally() -> None:
    """From now on `log_once` is False in this process."""
    global _is_disabled
    _is_disabled = True


def enable_periodic_logging() -> None:
    """From now on `log_once` is True again once per minute for each key."""
    global _is_periodic
    _is_periodic = True


def reset_log_once(key: str | None = None) -> None:
    """Forget that the key was used; all keys when None."""
    if key is None:
        _said.clear()
    else:
        _said.pop(key, None)
