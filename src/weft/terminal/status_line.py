"""One line that is drawn over itself while somebody waits: at a terminal, in a notebook's cell, nowhere else.

WEFT_PROGRESS=0 turns it off, WEFT_PROGRESS=1 on where it would be quiet. Runs on the thread that waits.
"""

from __future__ import annotations

import os
import sys
from typing import Any, TextIO

VARIABLE = "WEFT_PROGRESS"


def is_wanted(out: TextIO | None = None) -> bool:
    """Whether a line would be seen on `out`, by default standard error."""
    said = os.environ.get(VARIABLE, "")
    if said:
        return said != "0"
    stream = sys.stderr if out is None else out
    try:
        return (stream.isatty() and os.environ.get("TERM") != "dumb") or (out is None and in_notebook())
    except (AttributeError, ValueError):
        return False


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


class Line:
    """Of one wait."""

    def __init__(self, out: TextIO | None = None, name: str = "weft") -> None:
        self._is_cell = out is None and in_notebook()
        self._out = sys.stderr if out is None else out
        self._name = name
        self._text = ""
        self._cell: Any = None

    def show(self, text: str) -> None:
        """Draw it in the place of what was there."""
        self._text = f"{self._name}: {text}" if self._name else text
        if self._is_cell:
            self._fill_cell(self._text)
            return
        import shutil  # with all compressions, which `init` does not wait for

        columns = shutil.get_terminal_size().columns
        self._write(f"\x1b[2K\r{self._text[: columns - 1]}")

    def wipe(self) -> None:
        """Leave nothing of it."""
        if self._text:
            self._text = ""
            self._fill_cell("") if self._is_cell else self._write("\r\x1b[2K")

    def leave(self) -> None:
        """Leave what was shown last on a line of its own."""
        if self._text and not self._is_cell:
            self._write("\n")
        self._text = ""

    def _write(self, text: str) -> None:
        try:
            self._out.write(text)
            self._out.flush()
        except (OSError, ValueError):
            pass  # the terminal is gone

    def _fill_cell(self, text: str) -> None:
        import html

        page = sys.modules["IPython.display"]
        shown = page.HTML(f"<code>{html.escape(text)}</code>" if text else "")
        if self._cell is None:
            self._cell = page.display(shown, display_id=True)
        else:
            self._cell.update(shown)
