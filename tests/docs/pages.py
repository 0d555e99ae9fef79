"""The Python blocks of a page of the documentation, run in their order in one interpreter.

    python tests/docs/pages.py docs/tour.md

A block of Python is run as it stands. If a block of ``text`` follows it, that is what it must print. Where that differs
from run to run, a comment ``<!-- like:`` between the two, on lines of its own up to ``-->``, says what it must be like;
an ellipsis in it stands for anything. The page then shows what one run has printed. What a reader need not see is run
from a comment that begins with ``<!-- run:``. A block after ``<!-- not run: why -->`` is only compiled.
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
    r"|^```python\n(?P<code>.*?)^```$(?:(?:\n\n<!-- like:\n(?P<like>.*?)^-->$)?\n\n```text\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """One block, the line of the page before its first, what the page says that it prints, and what that is like."""

    code: str
    line: int
    output: str | None = None
    like: str | None = None
    is_run: bool = True

    def may_print(self, printed: str) -> bool:
        if self.like is None:
            return self.output is None or printed == self.output
        return re.fullmatch(".*?".join(map(re.escape, self.like.split("…"))), printed, re.DOTALL) is not None


def blocks_of(text: str) -> Iterator[Block]:
    for piece in _PIECES.finditer(text):
        kind = next(name for name in ("hidden", "unrun", "code") if piece[name] is not None)
        yield Block(
            piece[kind], text.count("\n", 0, piece.start(kind)), piece["output"], piece["like"], kind != "unrun"
        )


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
        assert block.may_print(printed.getvalue()), (
            f"{path}:{block.line}: the page says\n{block.like or block.output}but it prints\n{printed.getvalue()}"
        )


if __name__ == "__main__":
    run_page(Path(sys.argv[1]).resolve())
