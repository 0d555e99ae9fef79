"""How cost grows with nodes, simulated: empty tasks from every node and a fan-out, from 1 to 10,000 virtual nodes.

    python benchmarks/simulate.py [--nodes 1,10,100] [--plot docs/images/simulated.svg]

Prints a table in Markdown; the plot is written by hand, so nothing but Weft is needed.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

SIZES = (1, 10, 100, 1000, 10_000)
TASKS = {1: 200_000, 10: 100_000, 100: 50_000, 1000: 10_000, 10_000: 2_000}
"""On each node: enough for some milliseconds of work, little enough for minutes of ours."""
WIDTH, HEIGHT, LEFT, BOTTOM = 560, 340, 70, 50


def simulate(nodes: int, tasks: int) -> dict[str, Any]:
    """So many tasks on each node."""
    command = [sys.executable, "-m", "weft.testing.simulate", "--nodes", str(nodes), "--seed", "7", "--json"]
    command += ["--workload", "empty", "--tasks", str(tasks)]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def row(found: dict[str, Any]) -> str:
    control, rate = found["control"], found["tasks_per_s"] / 1e6
    return (
        f"| {found['nodes']:,} | {rate:,.1f} | {rate / found['nodes']:.2f} | "
        f"{found['latency_s']['p99'] * 1e3:.1f} | {control['shards']:,} | {control['rows_per_shard_per_s']:,.0f} | "
        f"{found['messages_per_node_per_s']:,.0f} | {found['wall_s']:.0f} |"
    )


def plot(found: list[dict[str, Any]], path: Path) -> None:
    """Throughput over nodes, both on logarithmic axes, beside the straight line through one node."""
    one = found[0]["tasks_per_s"]

    def at(nodes: float, rate: float) -> tuple[float, float]:
        x = LEFT + math.log10(nodes) / 4 * (WIDTH - LEFT - 20)
        y = HEIGHT - BOTTOM - math.log10(rate / 1e6) / 5 * (HEIGHT - BOTTOM - 20)
        return x, y

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for power in range(5):
        x, y = at(10**power, 1e6)
        parts.append(f'<line x1="{x:.0f}" y1="{y:.0f}" x2="{x:.0f}" y2="20" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.0f}" y="{y + 18:.0f}" text-anchor="middle">{10**power:,}</text>')
    for power in range(6):
        x, y = at(1, 10 ** (power + 6))
        parts.append(f'<line x1="{x:.0f}" y1="{y:.0f}" x2="{WIDTH - 20}" y2="{y:.0f}" stroke="#ddd"/>')
        parts.append(f'<text x="{x - 6:.0f}" y="{y + 4:.0f}" text-anchor="end">{10**power:,} M</text>')
    (x1, y1), (x2, y2) = at(1, one), at(10_000, one * 10_000)
    parts.append(
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#999" stroke-dasharray="4 4"/>'
    )
    for one_size in found:
        x, y = at(one_size["nodes"], one_size["tasks_per_s"])
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="#1f6fb2"/>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 10}" text-anchor="middle">virtual nodes</text>')
    parts.append(
        f'<text x="16" y="{HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 16 {HEIGHT / 2})">'
        "empty tasks per second</text></svg>"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(parts) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", default=",".join(map(str, SIZES)))
    parser.add_argument("--plot", type=Path)
    args = parser.parse_args()
    print("| nodes | million tasks/s | a node | p99 ms | shards | rows/s a shard | messages/s a node | s to simulate |")
    print("|---|---|---|---|---|---|---|---|")
    found = []
    for nodes in map(int, args.nodes.split(",")):
        found.append(simulate(nodes, TASKS[nodes]))
        print(row(found[-1]), flush=True)
    if args.plot:
        plot(found, args.plot)


if __name__ == "__main__":
    main()
