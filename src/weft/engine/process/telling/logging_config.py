"""How verbose a job's own loggers are, in its driver and in all its workers: `weft.LoggingConfig`.

>>> context = weft.init(logging_config=weft.LoggingConfig(encoding="JSON", log_level="DEBUG"))

WEFT_LOGGING does the same from outside: `debug`, `json:info`. It concerns the root logger of Python's `logging`;
handlers that user code has added keep working, and then none is added. What a logger writes goes the way of all output:
to the driver, the node's logs and the dashboard, under the task's name.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from weft.engine.process.calls import current
from weft.engine.process.session import context_state

VARIABLE = "WEFT_LOGGING"
ENCODINGS = ("TEXT", "JSON")
TEXT_FORMAT = "%(asctime)s %(levelname)s %(name)s -- %(message)s"
_ALWAYS = ("asctime", "levelname", "name", "message", "filename", "lineno", "process")


@dataclass(frozen=True)
class LoggingConfig:
    """`log_level` is a level of `logging`, a name or a number. With `encoding="JSON"` a record is a line of JSON that
    also tells the task, the actor and the job, and those of a LogRecord's attributes that are named.

    >>> LoggingConfig(encoding="JSON", log_level="WARNING").encoding
    'JSON'
    """

    encoding: str = "TEXT"
    log_level: int | str = "INFO"
    additional_log_standard_attrs: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.encoding not in ENCODINGS:
            raise ValueError(f"encoding must be one of {[*ENCODINGS]}, but got {self.encoding!r}")
        level(self.log_level)
        wrong = [name for name in self.additional_log_standard_attrs if not name.isidentifier()]
        if wrong:
            raise ValueError(f"additional_log_standard_attrs must name attributes of a LogRecord, but got {wrong}")

    def text(self) -> str:
        """As WEFT_LOGGING has it."""
        return f"{self.encoding}:{level(self.log_level)}:{','.join(self.additional_log_standard_attrs)}"

    @classmethod
    def of_text(cls, text: str) -> LoggingConfig:
        """`debug`, `json:info` or what `text` made. ValueError for anything else."""
        words = text.split(":")
        if words[0].upper() not in ENCODINGS:
            words.insert(0, "TEXT")
        if len(words) > 3:
            raise ValueError(f"{VARIABLE} must be LEVEL or ENCODING:LEVEL, but is {text!r}")
        names = words[2].split(",") if len(words) == 3 and words[2] else []
        return cls(words[0].upper(), words[1] if len(words) > 1 else "INFO", tuple(names))


def level(given: int | str, name: str = "log_level") -> int:
    """As a number. ValueError for a name that `logging` does not know."""
    if isinstance(given, str) and given.isdigit():
        return int(given)
    found = logging.getLevelName(given.upper()) if isinstance(given, str) else given
    if isinstance(found, bool) or not isinstance(found, int):
        raise ValueError(f"{name} must be a level of logging such as 'INFO' or 10, but got {given!r}")
    return found


def apply(config: LoggingConfig) -> None:
    """To this process's root logger."""
    root = logging.getLogger()
    root.setLevel(level(config.log_level))
    if root.handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        JsonFormatter(config.additional_log_standard_attrs)
        if config.encoding == "JSON"
        else logging.Formatter(TEXT_FORMAT)
    )
    root.addHandler(handler)


def apply_here(variables: Mapping[str, str] = os.environ) -> None:
    """In a worker: what its job asks for. A value that makes no sense is told, once per worker, and changes nothing."""
    if not variables.get(VARIABLE):
        return
    try:
        apply(LoggingConfig.of_text(variables[VARIABLE]))
    except ValueError as error:
        print(f"weft: {VARIABLE} has no effect: {error}", file=sys.stderr)


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON."""

    def __init__(self, more: Sequence[str] = ()) -> None:
        super().__init__()
        self._names = (*_ALWAYS, *more)

    def format(self, record: logging.LogRecord) -> str:
        import json

        record.message = record.getMessage()
        record.asctime = self.formatTime(record)
        row = {name: getattr(record, name, None) for name in self._names}
        state = context_state.here()
        task, _, name, actor = current.task()
        row |= {"job_id": state.job, "task_name": name, "task_id": task.hex()}
        if any(actor):
            row["actor_id"] = actor.hex()
        if record.exc_info:
            row["exc_text"] = self.formatException(record.exc_info)
        return json.dumps(row, default=str)
