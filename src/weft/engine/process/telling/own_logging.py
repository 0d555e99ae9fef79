"""Weft's own loggers (`weft`, `weft.tune`, ...): `logging_level=` and `logging_format=` of `init`.

In the driver and in all workers of its job; user code's loggers are `logging_config`'s. WEFT_LOGGING_LEVEL and
WEFT_LOGGING_FORMAT do the same from outside, and carry it to the workers. Where nothing is said, loggers are as Python
makes them, warnings of the engine are printed as they are, and `logging` is not imported for it.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from weft.engine.process.telling.logging_config import TEXT_FORMAT, level

LEVEL_VARIABLE = "WEFT_LOGGING_LEVEL"
FORMAT_VARIABLE = "WEFT_LOGGING_FORMAT"
LOGGER = logging.getLogger("weft")


@dataclass(frozen=True)
class OwnLogging:
    """Checked."""

    level: int
    format: str

    @classmethod
    def of(cls, given: Any, form: Any, variables: Mapping[str, str] = os.environ) -> OwnLogging:
        """What was said to `init`, then the variables, then Ray's defaults. TypeError or ValueError."""
        if given is None:
            given = variables.get(LEVEL_VARIABLE) or logging.INFO
        if isinstance(given, bool) or not isinstance(given, int | str):
            raise TypeError(f"logging_level must be a level of logging such as 'INFO' or 10, but got {given!r}")
        if form is None:
            form = variables.get(FORMAT_VARIABLE) or TEXT_FORMAT
        if not isinstance(form, str):
            raise TypeError(f"logging_format must be str, but got {form!r}")
        logging.Formatter(form)  # which refuses what is no format
        return cls(level(given, "logging_level"), form)

    def variables(self) -> dict[str, str]:
        """For the workers."""
        return {LEVEL_VARIABLE: str(self.level), FORMAT_VARIABLE: self.format}


class _Shown(logging.StreamHandler):  # type: ignore[type-arg]
    """To the standard error of the moment; silent where the root logger has handlers, which then show it."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter(form))

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            self.stream = sys.stderr
            super().emit(record)


def apply(chosen: OwnLogging) -> None:
    """To this process."""
    withdraw()
    LOGGER.setLevel(chosen.level)
    LOGGER.addHandler(_Shown(chosen.format))


def withdraw() -> None:
    """The session is over: the loggers are as Python makes them again."""
    for handler in [one for one in LOGGER.handlers if isinstance(one, _Shown)]:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(logging.NOTSET)


def apply_here(variables: Mapping[str, str] = os.environ) -> None:
    """In a worker: what its job asks for. A value that makes no sense is told and changes nothing."""
    try:
        apply(OwnLogging.of(None, None, variables))
    except ValueError as error:
        print(f"weft: {LEVEL_VARIABLE} has no effect: {error}", file=sys.stderr)


def is_chosen() -> bool:
    return any(isinstance(one, _Shown) for one in LOGGER.handlers)
