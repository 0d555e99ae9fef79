"""Writes what was measured, and the settings, into the pages docs/rl/<algorithm>.md and benchmarks/rl/README.md.

    python benchmarks/rl/pages.py [--check]

`--check` writes nothing and fails, with their names, where pages are old.
A page is written by hand but for what stands between `<!-- measured -->` and `<!-- end -->`: there go the curves of the
algorithm's cases, the steps that each seed took, and a table of its settings. Those that most algorithms have with the
same default stand once, in docs/rl/settings.md. `plot.py` draws the curves first.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import math
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from weft.rl import get_algorithm

HERE = Path(__file__).parent
DOCS = HERE.parent.parent / "docs" / "rl"
BEGIN, END = "<!-- measured -->", "<!-- end -->"
TABLE = ["| setting | default | what it is |", "|---|---|---|"]
PAGES = {
    "pg": ("PG", ["pg-cartpole"]),
    "a2c": ("A2C", ["a2c-cartpole"]),
    "a3c": ("A3C", ["a3c-cartpole"]),
    "ppo": ("PPO", ["ppo-cartpole", "ppo-pendulum", "ppo-acrobot", "ppo-lunarlander", "pong-full", "pong-small"]),
    "recurrent-ppo": ("RecurrentPPO", ["recurrent-ppo-blind-cartpole"]),
    "multi-agent-ppo": ("MultiAgentPPO", ["multi-agent-ppo-two-cartpoles"]),
    "bc": ("BC", ["bc-cartpole"]),
    "impala": ("IMPALA", ["impala-cartpole"]),
    "dqn": ("DQN", ["dqn-cartpole", "dqn-acrobot"]),
    "rainbow": ("Rainbow", ["rainbow-cartpole", "rainbow-acrobot"]),
    "apex-dqn": ("ApexDQN", ["apex-dqn-cartpole"]),
    "apex-ddpg": ("ApexDDPG", ["apex-ddpg-pendulum"]),
    "ddpg": ("DDPG", ["ddpg-pendulum"]),
    "td3": ("TD3", ["td3-pendulum", "td3-mountaincar"]),
    "sac": ("SAC", ["sac-pendulum", "sac-mountaincar"]),
    "es": ("ES", ["es-cartpole", "es-pendulum"]),
    "ars": ("ARS", ["ars-cartpole", "ars-pendulum"]),
}


def load(case: str) -> dict[str, Any] | None:
    path = HERE / "curves" / f"{case}.json"
    found: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
    return found


def thousands(steps: float) -> str:
    if not math.isfinite(steps):
        return "not reached"
    if steps < 1000:
        return f"{steps:.0f}"
    return f"{steps / 1e6:.2f}M" if steps >= 1e6 else f"{steps / 1000:.0f}k"


def median_steps(data: dict[str, Any]) -> float:
    return float(statistics.median(run["reached_at"] or math.inf for run in data["runs"]))


def measured(case: str, data: dict[str, Any]) -> list[str]:
    bar, runs = data["bar"], data["runs"]
    each = ", ".join(thousands(run["reached_at"] or math.inf) for run in runs)
    steps = bar.get("axis", "steps")
    within = f" within {thousands(bar['timesteps'])} {steps}" if bar.get("timesteps") else ""
    changed = ", ".join(f"`{name}={value!r}`" for name, value in bar["settings"].items()) or "the defaults"
    return [
        f"![{bar['algorithm']} on {bar['env']}]({case}.svg)",
        "",
        f"**{bar['env']}**: must reach {bar['reward']:g}{within}. {steps.capitalize()} until there: {each}; "
        f"median of {len(runs)} seeds **{thousands(median_steps(data))}**. Settings: {changed}.",
        "",
    ]


def setting_rows(algorithm: str) -> dict[str, str]:
    """Every setting of the algorithm as a row of a table, those first that are its own."""
    config = get_algorithm(algorithm).config_class
    own = set(config.__annotations__)
    rows = {}
    for field in sorted(dataclasses.fields(config), key=lambda field: field.name not in own):
        default = {} if field.default is dataclasses.MISSING else field.default
        rows[field.name] = f"| `{field.name}` | `{default!r}` | {field.metadata.get('doc', '')} |".replace("\n", " ")
    return rows


def common_rows(rows: Iterable[dict[str, str]]) -> list[str]:
    """The rows that more than half of the algorithms have word for word, in the order of the first that has them."""
    counts = collections.Counter(row for each in rows for row in each.values())
    return [row for row, count in counts.items() if count > len(PAGES) / 2]


def settings_section(algorithm: str, common: list[str]) -> list[str]:
    """What an algorithm's page says of settings: those without a common row, and which of the common ones it lacks."""
    rows = setting_rows(algorithm)
    names = {row.split("`")[1] for row in common}
    lacking = ", ".join(f"`{name}`" for name in sorted(names - rows.keys()))
    others = f"; of those {lacking} do not apply here" if lacking else ""
    intro = f"Those that most algorithms share are in [settings.md](settings.md){others}."
    return ["## Settings", "", intro, "", *TABLE, *(row for row in rows.values() if row not in common)]


def filled(page: str, lines: list[str]) -> str:
    """The page with the lines between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    if not rest:
        raise ValueError(f"a page has no line {BEGIN}: {page[:80]}")
    return "\n".join([before + BEGIN, "", *lines, "", END]) + after


def generated() -> dict[Path, list[str]]:
    """What stands between the marks of each page."""
    rows = [
        "| algorithm | environment | bar | within | median of seeds | slowest | seeds |",
        "|---|---|---|---|---|---|---|",
    ]
    common = common_rows(setting_rows(algorithm) for algorithm, _ in PAGES.values())
    pages = {DOCS / "settings.md": [*TABLE, *common], HERE / "README.md": rows}
    for page, (algorithm, cases) in PAGES.items():
        known = [(case, data) for case in cases if (data := load(case))]
        lines = [line for case, data in known for line in measured(case, data)]
        pages[DOCS / f"{page}.md"] = [*lines, *settings_section(algorithm, common)]
        for _, data in known:
            bar, steps = data["bar"], [run["reached_at"] or math.inf for run in data["runs"]]
            within = thousands(bar["timesteps"]) if bar.get("timesteps") else "–"
            rows.append(
                f"| [{algorithm}](../../docs/rl/{page}.md) | {bar['env']} | {bar['reward']:g} | {within} | "
                f"{thousands(median_steps(data))} | {thousands(max(steps))} | {len(steps)} |"
            )
    return pages


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="write nothing, fail where a page is old")
    check = parser.parse_args().check
    pages = {path: filled(path.read_text(), lines) for path, lines in generated().items()}
    old = [path for path, page in pages.items() if path.read_text() != page]
    if check and old:
        raise SystemExit(f"run benchmarks/rl/pages.py, these are old: {', '.join(path.name for path in old)}")
    for path in old:
        path.write_text(pages[path])


if __name__ == "__main__":
    main()
