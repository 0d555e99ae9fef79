"""Draws the curves of `bars.py` as SVG, one file a case, into docs/rl.

    python benchmarks/rl/plot.py

Each seed is a thin line, the median over seeds (at the steps of the first) a thick one; the bar is dashed.
"""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DOCS = HERE.parent.parent / "docs" / "rl"
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 320, 70, 40, 30, 20
COLOURS = ("#7aa6c2", "#c2a27a", "#8fbf8f", "#b58fbf", "#bf8f8f")


def reward_at(curve: list[list[float]], steps: float) -> float:
    """The last known reward at or before `steps`."""
    known = [reward for at, reward in curve if at <= steps]
    return known[-1] if known else math.nan


def draw(name: str, data: dict[str, Any]) -> str:
    bar, runs = data["bar"], data["runs"]
    curves = [[(at, reward) for at, reward in run["curve"] if reward is not None] for run in runs]
    most_steps = max(at for curve in curves for at, _ in curve)
    rewards = [reward for curve in curves for _, reward in curve] + [bar["reward"]]
    low, high = min(rewards), max(rewards)
    high += 0.05 * (high - low)

    def place(at: float, reward: float) -> str:
        x = LEFT + (WIDTH - LEFT - RIGHT) * at / most_steps
        y = TOP + (HEIGHT - TOP - BOTTOM) * (high - reward) / (high - low)
        return f"{x:.1f},{y:.1f}"

    def line(points: list[tuple[float, float]], style: str) -> str:
        return f'<polyline fill="none" {style} points="{" ".join(place(*point) for point in points)}"/>'

    grid = [most_steps * part / 40 for part in range(1, 41)]
    median = [(at, statistics.median(reward_at(curve, at) for curve in curves)) for at in grid]
    median = [(at, reward) for at, reward in median if math.isfinite(reward)]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-size="12">',
        "<style>text { font-family: sans-serif }</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="18" font-size="14">{bar["algorithm"]} on {bar["env"]}, {len(runs)} seeds</text>',
        line([(0, bar["reward"]), (most_steps, bar["reward"])], 'stroke="#888" stroke-dasharray="6 4"'),
        *(line(curve, f'stroke="{COLOURS[i % len(COLOURS)]}" stroke-width="1"') for i, curve in enumerate(curves)),
        line(median, 'stroke="#205080" stroke-width="2.5"'),
    ]
    axis = bar.get("axis", "environment steps")
    label = "{:.0f}".format if most_steps < 10_000 else lambda at: f"{at / 1000:.0f}k"
    for part in range(5):
        at, reward = most_steps * part / 4, low + (high - low) * part / 4
        x, y = place(at, low).split(",")
        parts.append(f'<text x="{x}" y="{float(y) + 18:.0f}" text-anchor="middle">{label(at)}</text>')
        x, y = place(0, reward).split(",")
        parts.append(f'<text x="{float(x) - 8:.0f}" y="{float(y) + 4:.0f}" text-anchor="end">{reward:.0f}</text>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 6}" text-anchor="middle">{axis}</text></svg>')
    return "\n".join(parts) + "\n"


def main() -> None:
    for path in sorted((HERE / "curves").glob("*.json")):
        (DOCS / f"{path.stem}.svg").write_text(draw(path.stem, json.loads(path.read_text())))
        print(DOCS / f"{path.stem}.svg")


if __name__ == "__main__":
    main()
