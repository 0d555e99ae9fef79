"""A run of a library on the dashboard's page: published every few seconds, whatever the node is busy with."""

from __future__ import annotations

import contextlib
from typing import Any

import weft
from weft.library.pace import Pace
from weft.util.board import Curve, publish, withdraw

__all__ = ["Board", "Curve", "plain"]

PUBLISH_S = 2.0
_LONGEST_VALUE = 100


class Board(Pace):
    """The board `name` of a page, where there is a session. `is_due` says when to show it again."""

    def __init__(self, page: str, name: str, after_s: float = 0.0) -> None:
        super().__init__(PUBLISH_S, after_s)
        self._page, self.name = page, name

    def show(self, shown: Any) -> bool:
        """False where it does not fit. A node that is busy or gone keeps the board before: the next one comes soon."""
        self.restart()
        try:
            if weft.is_initialized():
                publish(self._page, self.name, shown)
        except weft.exceptions.WeftError:
            pass
        except ValueError:
            return False
        return True

    def withdraw(self) -> None:
        with contextlib.suppress(weft.exceptions.WeftError):
            withdraw(self._page, self.name)


def plain(value: Any) -> Any:
    """A value as a cell of a board shows it."""
    return value if isinstance(value, bool | int | float) else str(value)[:_LONGEST_VALUE]
