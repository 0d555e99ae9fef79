"""The linter of the pages' prose finds what it is there for, where it is, and nothing in code."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "docs"))

import prose  # noqa: E402

LONG = " ".join(["word"] * (prose.LONGEST + 1))


def test_long_sentences_and_empty_phrases_are_found_with_their_lines() -> None:
    page = f"# A page\n\nShort.\n\n- one\n- {LONG}.\n\nDo this in order\nto wait.\n"
    assert [line for line, _ in prose.faults(page)] == [6, 8]
    assert [fault for _, fault in prose.faults(page)][1].startswith("'in order to' ==> 'to'")


@pytest.mark.parametrize(
    "harmless",
    [
        f"```python\n{LONG}\n```",
        f"<!-- like:\n{LONG}\n-->",
        f"| {LONG} |\n|---|",
        f"    {LONG}\n",
        "`a`, " * prose.LONGEST + "and `b` are there.",
        f"[here](https://example.org/{LONG.replace(' ', '-')}) it is.",
        " ".join(["word"] * prose.LONGEST) + ". " + LONG[5:] + ".",
    ],
)
def test_code_tables_lists_of_names_and_links_are_not_long(harmless: str) -> None:
    assert not list(prose.faults(f"First.\n\n{harmless}\n\nLast.\n"))
