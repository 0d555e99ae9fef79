"""The Python blocks of a page of the documentation, run in their order in one interpreter.

    python tests/docs/pages.py docs/tour.md

A block of Python is run as it stands. If a block of ``text`` follows it, that is what it must print; an ellipsis in it
stands for anything. What a reader need not see is in a comment that begins with ``<!-- run:``, on a line of its own,
and ends with ``-->``. A block after ``<!-- not run: why -->`` is only compiled.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_PIECES = re.compile(
    r"^<!-- run:\n(?P<hidden>.*?)^-->$"
    r"|^<!-- not run: [^\n]+ -->\n```python\n(?P<unrun>.*?)^```$"
    r"|^```python\n(?P<code>.*?)^```$(?:\n\n```text\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """One block, the line of the page before its first, and what it must print, if that is said."""

    code: str
    line: int
    output: str | None = None
    is_run: bool = True


def blocks_of(text: str) -> Iterator[Block]:
    for piece in _PIECES.finditer(text):
        kind = next(name for name in ("hidden", "unrun", "code") if piece[name] is not None)
        yield Block(piece[kind], text.count("\n", 0, piece.start(kind)), piece["output"], kind != "unrun")


def pages() -> list[Path]:
    """Every page that has a block of Python."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [path for path in found if "```python" in path.read_text()]


def run_page(path: Path) -> None:
    """AssertionError where a block prints something else than the page says; whatever a block raises."""
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks_of(path.read_text()):
        # The lines before it keep the page's line numbers in tracebacks.
        code = compile("\n" * block.line + block.code, str(path), "exec")
        if not block.is_run:
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        if block.output is not None:
            matches = re.fullmatch(".*?".join(map(re.escape, block.output.split("…"))), printed.getvalue(), re.DOTALL)
            assert matches, f"{path}:{block.line}: the page says\n{block.output}but it prints\n{printed.getvalue()}"


if __name__ == "__main__":
    run_page(Path(sys.argv[1]).resolve())
