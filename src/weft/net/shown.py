"""What others have said or named, so that a terminal or a log can show it: no control character gets through. Pure."""

from __future__ import annotations

import re

_LONGEST_LINE = 2000
_HARMFUL = re.compile(r"(\x1b\[[\d;]*m)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""Colours, and what moves the cursor, renames the window or answers for the user."""


def printable(value: object, most: int = 60) -> str:
    """One line without control characters: a hostile name cannot draw on the terminal.

    >>> printable("a\\x1b[31mb")
    'a?[31mb'
    """
    text = "".join(letter if letter.isprintable() else "?" for letter in str(value))
    return text if len(text) <= most else f"{text[: most - 1]}…"


def printable_lines(text: object) -> str:
    """The same for several lines.

    >>> printable_lines("a\\x1b[2J\\nb")
    'a?[2J\\nb'
    """
    return "\n".join(printable(line, _LONGEST_LINE) for line in str(text).split("\n"))


def harmless(output: str) -> str:
    """What a program has written: its lines and colours, and nothing else that a terminal obeys.

    >>> harmless("\\x1b[31mred\\x1b[0m\\x1b]0;title\\x07\\n")
    '\\x1b[31mred\\x1b[0m?]0;title?\\n'
    """
    return _HARMFUL.sub(lambda found: found.group(1) or "?", output)
