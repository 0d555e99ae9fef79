"""A curve in characters: each cell is a Braille sign of 2 × 4 dots.

>>> print(draw([(0, 0.0), (1, 5.0), (2, 10.0)], width=4, height=2).replace(" ", "."))
10.┤..⡠⠊
.0.┤⡠⠊..
....0...2
"""

from __future__ import annotations

import math
from collections.abc import Sequence

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def draw(points: Sequence[tuple[float, float]], width: int = 60, height: int = 10) -> str:
    """The points (x, y), with x rising, joined by lines; those whose y is no number are left out."""
    known = [(x, y) for x, y in points if math.isfinite(y)]
    if not known:
        return "no episode has ended yet"
    left, right = known[0][0], max(known[-1][0], known[0][0] + 1)
    low, high = min(y for _, y in known), max(y for _, y in known)
    if high == low:
        high = low + 1
    columns, rows = 2 * width, 4 * height
    cells = [[0] * width for _ in range(height)]
    places = [
        (round((x - left) / (right - left) * (columns - 1)), round((y - low) / (high - low) * (rows - 1)))
        for x, y in known
    ]
    for (x, y), (next_x, next_y) in zip(places, [*places[1:], places[-1]], strict=True):
        steps = max(abs(next_x - x), abs(next_y - y), 1)
        for step in range(steps + 1):
            _set(cells, x + round((next_x - x) * step / steps), rows - 1 - (y + round((next_y - y) * step / steps)))
    names = [_short(high), *[""] * (height - 2), _short(low)] if height > 1 else [_short(high)]
    wide = max(map(len, names))
    lines = [
        f"{name:>{wide}} ┤{''.join(chr(0x2800 + cell) if cell else ' ' for cell in row)}"
        for name, row in zip(names, cells, strict=True)
    ]
    first, last = _short(left), _short(right)
    return "\n".join([*lines, " " * (wide + 2) + first + " " * max(1, width - len(first) - len(last) + 1) + last])


def _set(cells: list[list[int]], x: int, y: int) -> None:
    cells[y // 4][x // 2] |= _DOTS[y % 4][x % 2]


def _short(value: float) -> str:
    for bound, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= bound:
            return f"{value / (1e3 if unit == 'k' else bound):.3g}{unit}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
