"""Line and bar charts as SVG, and line charts as text for a terminal, without a plotting library."""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Callable, Mapping, Sequence

Points = Sequence[tuple[float, float]]

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 340, 72, 20, 40, 64
BAR_HEIGHT, LABEL_WIDTH, GROUP_LABEL_WIDTH = 20, 250, 160
COLOURS = ("#1f6fb2", "#d1730f", "#3c8f4a", "#9050a8", "#b03a3a", "#6b6b6b")
MARKS = "•○×+"


@dataclasses.dataclass(frozen=True)
class Axis:
    """One direction of a chart: from which to which value, evenly or by powers of ten."""

    low: float
    high: float
    log: bool = False

    @classmethod
    def around(cls, values: Sequence[float], log: bool = False) -> Axis:
        """
        >>> Axis.around([3.0, 8.0])
        Axis(low=0.0, high=8.0, log=False)
        >>> Axis.around([3.0, 800.0], log=True)
        Axis(low=1.0, high=1000.0, log=True)
        """
        if log:
            first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
            return cls(10.0**first, 10.0 ** max(last, first + 1), True)
        low, high = min(0.0, *values), max(0.0, *values)
        return cls(low, high if high > low else low + 1)

    def share(self, value: float) -> float:
        """Where the value lies, from 0 to 1."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        if self.log:
            powers = round(math.log10(self.high / self.low))
            return [self.low * 10.0**power for power in range(0, powers + 1, max(1, powers // 5))]
        step = 10.0 ** math.floor(math.log10((self.high - self.low) / 4))
        step *= next(times for times in (1, 2, 5, 10) if (self.high - self.low) / (step * times) <= 5)
        first = math.ceil(self.low / step)
        return [number * step for number in range(first, math.floor(self.high / step + 1e-9) + 1)]


def number(value: float) -> str:
    """
    >>> number(1250000), number(12500), number(0.5), number(0.00021), number(20)
    ('1.25M', '12.5k', '0.5', '0.00021', '20')
    """
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:.3g}{name}"
    return f"{value:.3g}"


def lines(
    series: Mapping[str, Points],
    title: str,
    x: str,
    y: str,
    *,
    log_x: bool = False,
    log_y: bool = False,
    marks: Mapping[str, float] | None = None,
) -> str:
    """An SVG with one line a series; `marks` are vertical lines with a word to each."""
    points = [point for one in series.values() for point in one]
    across = Axis.around([point[0] for point in points] + list((marks or {}).values()), log_x)
    up = Axis.around([point[1] for point in points], log_y)

    def at(x: float, y: float) -> tuple[float, float]:
        return (
            LEFT + across.share(x) * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - up.share(y) * (HEIGHT - TOP - BOTTOM),
        )

    parts = [*_opening(WIDTH, HEIGHT, title), *_grid(across, up, at, x, y)]
    for index, (word, place) in enumerate((marks or {}).items()):
        left, top = at(place, up.low)[0], TOP + 12 + 14 * index  # words of marks that are close stand below each other
        parts.append(f'<line x1="{left:.1f}" y1="{TOP}" x2="{left:.1f}" y2="{HEIGHT - BOTTOM}" stroke="#b03a3a"/>')
        parts.append(f'<text x="{left + 4:.1f}" y="{top}" fill="#b03a3a">{html.escape(word)}</text>')
    for index, one in enumerate(series.values()):
        colour = COLOURS[index % len(COLOURS)]
        path = " ".join(f"{left:.1f},{top:.1f}" for left, top in (at(*point) for point in one))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        if len(one) <= 40:
            places = [at(*point) for point in one]
            parts += [f'<circle cx="{left:.1f}" cy="{top:.1f}" r="3" fill="{colour}"/>' for left, top in places]
    parts += _legend(list(series))
    return "\n".join([*parts, "</svg>"]) + "\n"


def bars(values: Mapping[str, float], title: str, x: str, *, log: bool = False) -> str:
    """An SVG with one bar a value, and the value at its end."""
    height = TOP + BAR_HEIGHT * len(values) + 40
    known = [value for value in values.values() if value > 0 or not log]
    axis = Axis.around(known or [1.0], log)
    room = WIDTH - LABEL_WIDTH - 120
    parts = _opening(WIDTH, height, title)
    for index, (name, value) in enumerate(values.items()):
        top = TOP + index * BAR_HEIGHT
        length = room * axis.share(value) if value > 0 else 0.0
        parts += _bar(name, number(value), LABEL_WIDTH, top, length)
    parts.append(f'<text x="{LABEL_WIDTH}" y="{height - 12}" fill="#555">{html.escape(x)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def grouped_bars(groups: Mapping[str, Mapping[str, tuple[float, str]]], title: str, x: str) -> str:
    """An SVG with the bars of each group under its name, by powers of ten, with a line at 1.

    A bar is its value and the note at its end; one without a value, which is 0, has the note alone.
    """
    rows = sum(1 + len(group) for group in groups.values())
    height = TOP + BAR_HEIGHT * rows + 40
    known = [value for group in groups.values() for value, _ in group.values() if value > 0]
    axis = Axis.around([*known, 1.0], log=True)
    room = WIDTH - GROUP_LABEL_WIDTH - 160
    one = GROUP_LABEL_WIDTH + room * axis.share(1.0)
    parts = _opening(WIDTH, height, title)
    parts.append(f'<line x1="{one:.1f}" y1="{TOP}" x2="{one:.1f}" y2="{height - 34}" stroke="#b9b9b9"/>')
    top = TOP
    for heading, group in groups.items():
        parts.append(f'<text x="8" y="{top + 15}" font-weight="bold">{html.escape(heading)}</text>')
        for name, (value, note) in group.items():
            top += BAR_HEIGHT
            parts += _bar(name, note, GROUP_LABEL_WIDTH, top, room * axis.share(value) if value > 0 else 0.0)
        top += BAR_HEIGHT
    parts.append(f'<text x="{GROUP_LABEL_WIDTH}" y="{height - 12}" fill="#555">{html.escape(x)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def sketch(series: Mapping[str, Points], columns: int = 72, rows: int = 12) -> str:
    """The lines as text.

    >>> print(sketch({"up": [(0, 0), (1, 1), (2, 2)]}, columns=5, rows=3))
      2 |    •
      1 |  •
      0 |•
        +-----
         0 to 2   • up
    """
    points = [point for one in series.values() for point in one]
    across, up = Axis.around([point[0] for point in points]), Axis.around([point[1] for point in points])
    canvas = [[" "] * columns for _ in range(rows)]
    for index, one in enumerate(series.values()):
        for x, y in one:
            column = min(int(across.share(x) * (columns - 1)), columns - 1)
            canvas[rows - 1 - min(int(up.share(y) * rows), rows - 1)][column] = MARKS[index % len(MARKS)]
    labels = {0: number(up.high), rows - 1: number(up.low), rows // 2: number((up.low + up.high) / 2)}
    margin = 2 + max(len(label) for label in labels.values())
    text = [f"{labels.get(row, ''):>{margin}} |{''.join(cells)}".rstrip() for row, cells in enumerate(canvas)]
    named = "   ".join(f"{MARKS[index % len(MARKS)]} {name}" for index, name in enumerate(series))
    below = f"{number(across.low)} to {number(across.high)}   {named}"
    return "\n".join([*text, f"{' ' * margin} +{'-' * columns}", f"{' ' * margin}  {below}"])


def _opening(width: int, height: int, title: str) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{width / 2}" y="20" text-anchor="middle" font-size="14">{html.escape(title)}</text>',
    ]


def _bar(name: str, note: str, left: int, top: int, length: float) -> list[str]:
    colour = COLOURS[0 if name.lower().startswith("weft") else 5]
    length = max(length, 1)
    return [
        f'<text x="{left - 8}" y="{top + 14}" text-anchor="end">{html.escape(name)}</text>',
        f'<rect x="{left}" y="{top + 3}" width="{length:.1f}" height="{BAR_HEIGHT - 6}" fill="{colour}"/>',
        f'<text x="{left + length + 6:.1f}" y="{top + 14}">{html.escape(note)}</text>',
    ]


def _grid(across: Axis, up: Axis, at: Callable[[float, float], tuple[float, float]], x: str, y: str) -> list[str]:
    parts = []
    for value in across.ticks():
        left, bottom = at(value, up.low)
        parts.append(f'<line x1="{left:.1f}" y1="{bottom:.1f}" x2="{left:.1f}" y2="{TOP}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{left:.1f}" y="{bottom + 16:.1f}" text-anchor="middle">{number(value)}</text>')
    for value in up.ticks():
        left, top = at(across.low, value)
        parts.append(f'<line x1="{left:.1f}" y1="{top:.1f}" x2="{WIDTH - RIGHT}" y2="{top:.1f}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{left - 6:.1f}" y="{top + 4:.1f}" text-anchor="end">{number(value)}</text>')
    middle = (TOP + HEIGHT - BOTTOM) / 2
    return [
        *parts,
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 32}" text-anchor="middle">{html.escape(x)}</text>',
        f'<text x="16" y="{middle}" text-anchor="middle" transform="rotate(-90 16 {middle})">{html.escape(y)}</text>',
    ]


def _legend(names: list[str]) -> list[str]:
    parts, left = [], float(LEFT)
    for index, name in enumerate(names):
        parts.append(f'<circle cx="{left}" cy="{HEIGHT - 14}" r="5" fill="{COLOURS[index % len(COLOURS)]}"/>')
        parts.append(f'<text x="{left + 10}" y="{HEIGHT - 10}">{html.escape(name)}</text>')
        left += 34 + 6.6 * len(name)
    return parts
