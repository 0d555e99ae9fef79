"""Tables for notebooks: `_repr_html_` of what has rows.

>>> html_table(["a"], [[1]], "one row")
'<div><b>one row</b><table><tr><th>a</th></tr><tr><td>1</td></tr></table></div>'
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["html_table"]

LONGEST_CELL = 80


def html_table(heads: Sequence[str], rows: Iterable[Sequence[Any]], caption: str, note: str = "") -> str:
    """A caption, a table with one row each, and a note; all of it is escaped."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in heads)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(value)}</td>' for value in row)}</tr>" for row in rows)
    table = f"<table><tr>{head}</tr>{body}</table>" if head else ""
    below = f"<small>{html.escape(note)}</small>" if note else ""
    return f"<div><b>{html.escape(caption)}</b>{table}{below}</div>"


def _cell(value: Any) -> str:
    text = f"{value:.5g}" if isinstance(value, float) else str(value)
    return html.escape(text if len(text) <= LONGEST_CELL else f"{text[:LONGEST_CELL]}…")
