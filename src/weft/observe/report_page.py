"""One page of a run, to look at and to send: what ran where, what made it take that long, what failed. Pure.

The page has everything in it, loads nothing and runs no script.
"""

from __future__ import annotations

import html
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from weft.observe.critical_path import History, Run, path

MOST_SLICES = 4_000
MOST_LANES = 64
MOST_ROWS = 50
_WIDTH, _LANE, _NAMES = 1_200, 18, 220
_COLOURS = (
    "#4e79a7",
    "#f28e2b",
    "#59a14f",
    "#b07aa1",
    "#76b7b2",
    "#edc948",
    "#9c755f",
    "#ff9da7",
    "#bab0ac",
    "#e15759",
)
_FAILED = "#d62728"
_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1240px; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: .5rem 0 1.5rem; } th, td { padding: .2rem .8rem .2rem 0; text-align: left;
vertical-align: top; } td.n, th.n { text-align: right; } tr + tr { border-top: 1px solid #8884; }
svg { max-width: 100%; height: auto; } svg text { fill: currentColor; font: 11px system-ui, sans-serif; }
pre { white-space: pre-wrap; margin: 0; } .note { opacity: .75; }
"""
Row = Mapping[str, Any]


def page(title: str, history: History, errors: Sequence[Row], waiting: Sequence[Row], nodes: Sequence[Row]) -> str:
    """`errors`: what tasks raised; `waiting`: tasks that are not done, with `why_pending`; `nodes`: the cluster's."""
    runs = history.ended()
    parts = [
        f"<h1>{_text(title)}</h1>",
        _summary(history, runs, nodes),
        "<h2>By function</h2>", _functions(runs),
        "<h2>What ran where</h2>", _stream(history, runs),
        "<h2>What it took that long for</h2>", _critical(history),
        "<h2>What failed</h2>", _errors(errors),
        "<h2>What waits, and why</h2>", _waiting(waiting),
    ]  # fmt: skip
    head = f'<meta charset="utf-8"><title>{_text(title)}</title><style>{_STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>'


def _summary(history: History, runs: Sequence[Run], nodes: Sequence[Row]) -> str:
    if not runs:
        return "<p>Nothing has run.</p>"
    begun_s = min(run.submitted_s or run.begun_s or math.inf for run in runs)
    spent_s = max(run.ended_s for run in runs) - begun_s
    busy_s = sum(run.ended_s - (run.begun_s or 0.0) for run in runs)
    processes = len({run.process for run in runs})
    gaps = f"{history.dropped:,} events gave way to newer ones before they were read: what is below has gaps."
    lost = f' <span class="note">{gaps}</span>' if history.dropped else ""
    at_once = busy_s / max(spent_s, 1e-9)
    return (
        f"<p>{len(runs):,} tasks and calls in {_seconds(spent_s)}, on {len(nodes)} node{'s' * (len(nodes) != 1)} and "
        f"{processes} processes; together they ran {_seconds(busy_s)}, {at_once:.1f} at a time.{lost}</p>"
    )


def _functions(runs: Sequence[Run]) -> str:
    by_name: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_name[run.name].append(run)
    rows = []
    for name, those in sorted(by_name.items(), key=lambda one: -sum(map(_spent, one[1])))[:MOST_ROWS]:
        times = sorted(map(_spent, those))
        queued = [run.begun_s - run.submitted_s for run in those if run.begun_s and run.submitted_s]
        failed = sum(run.status not in ("ok", "retry") for run in those)
        retried = sum(run.attempt > 1 for run in those)
        rows.append(
            (name, f"{len(those):,}", _seconds(sum(times)), _seconds(times[len(times) // 2]),
             _seconds(times[min(len(times) - 1, len(times) * 95 // 100)]), _seconds(times[-1]),
             _seconds(sum(queued) / len(queued)) if queued else "", f"{failed:,}", f"{retried:,}")
        )  # fmt: skip
    heads = ("function", "runs", "together", "median", "95%", "longest", "mean wait before", "failed", "tried again")
    return _table(heads, rows, len(by_name))


def _stream(history: History, runs: Sequence[Run]) -> str:
    if not runs:
        return "<p>Nothing has run.</p>"
    shown = sorted(sorted(runs, key=_spent, reverse=True)[:MOST_SLICES], key=lambda run: run.begun_s or 0.0)
    lanes: dict[Any, int] = {}
    for run in shown:
        if len(lanes) < MOST_LANES:
            lanes.setdefault(run.process, len(lanes))
    begun_s = min(run.begun_s or math.inf for run in shown)
    scale = (_WIDTH - _NAMES) / max(max(run.ended_s for run in shown) - begun_s, 1e-9)
    names = [name for name, _ in Counter(run.name for run in runs).most_common()]
    colour = {name: _COLOURS[number % len(_COLOURS)] for number, name in enumerate(names)}
    boxes = []
    for run in shown:
        if run.process not in lanes:
            continue
        left, width = _NAMES + ((run.begun_s or 0.0) - begun_s) * scale, max(_spent(run) * scale, 0.5)
        told = f"{run.name}: {_seconds(_spent(run))}, {run.status}, attempt {run.attempt}"
        fill = colour[run.name] if run.status in ("ok", "retry") else _FAILED
        boxes.append(
            f'<rect x="{left:.1f}" y="{lanes[run.process] * _LANE + 2}" width="{width:.1f}" height="{_LANE - 4}" '
            f'fill="{fill}"><title>{_text(told)}</title></rect>'
        )
    for process, lane in lanes.items():
        node, pid = process if process else ("", 0)
        title = f"{history.titles.get((node, pid), 'ended')} {pid}, node {node[:6]}"
        boxes.append(f'<text x="0" y="{lane * _LANE + 13}">{_text(title[:34])}</text>')
    left_out = len(runs) - len(shown)
    note = (
        f'<p class="note">The {len(shown):,} longest; {left_out:,} shorter ones are left out.</p>' if left_out else ""
    )
    legend = " ".join(f'<span style="color:{colour[name]}">■</span> {_text(name)}' for name in names[: len(_COLOURS)])
    height = len(lanes) * _LANE
    return (
        f'<p>{legend}</p><svg viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" role="img" '
        f'aria-label="what each process ran, over time">{"".join(boxes)}</svg>{note}'
    )


def _critical(history: History) -> str:
    steps = path(history)
    if not steps:
        return "<p>No chain of tasks is known.</p>"
    whole_s = sum(step.for_s for step in steps)
    by_name: Counter[tuple[str, str]] = Counter()
    times: Counter[tuple[str, str]] = Counter()
    for step in steps:
        by_name[step.name, step.what] += 1
        times[step.name, step.what] += step.for_s  # type: ignore[assignment]
    rows = [
        (name, what, f"{by_name[name, what]:,}", _seconds(spent_s), f"{spent_s / whole_s:.0%}",
         _seconds(whole_s - spent_s / 2))
        for (name, what), spent_s in times.most_common(MOST_ROWS)
    ]  # fmt: skip
    heads = ("who", "what", "times", "together", "share", "were it twice as fast, at least")
    told = (
        f"<p>The chain of {len(steps):,} steps that ended last took {_seconds(whole_s)}. "
        "What is not on it could be faster without an effect.</p>"
    )
    return told + _table(heads, rows, len(times))


def _errors(errors: Sequence[Row]) -> str:
    if not errors:
        return "<p>Nothing.</p>"
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in errors:
        lines = str(row["traceback"]).strip().splitlines()
        found[str(row["name"]), lines[-1] if lines else str(row["error_type"])].append(row)
    rows = [
        (name, f"{len(those):,}", last, _newest(those))
        for (name, last), those in sorted(found.items(), key=lambda one: -len(one[1]))[:MOST_ROWS]
    ]
    return _table(("function", "times", "error", ""), rows, len(found))


def _waiting(waiting: Sequence[Row]) -> str:
    if not waiting:
        return "<p>Nothing.</p>"
    found = Counter((str(row["name"]), str(row["state"]), str(row.get("why_pending") or "")) for row in waiting)
    rows = [(name, f"{count:,}", state, why) for (name, state, why), count in found.most_common(MOST_ROWS)]
    return _table(("function", "tasks", "state", "why"), rows, len(found))


class _Raw(str):
    """Markup that is not escaped."""


def _newest(errors: Sequence[Row]) -> _Raw:
    return _Raw(f"<details><summary>the newest</summary><pre>{_text(str(errors[-1]['traceback']))}</pre></details>")


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], whole: int) -> str:
    made = list(rows)
    top = "".join(f"<th{_side(made, at)}>{_text(head)}</th>" for at, head in enumerate(heads))
    body = "".join(f"<tr>{''.join(_cell(made, row, at) for at in range(len(row)))}</tr>" for row in made)
    more = f'<p class="note">{whole - len(made):,} more are left out.</p>' if whole > len(made) else ""
    return f"<table><tr>{top}</tr>{body}</table>{more}"


def _cell(rows: Sequence[Sequence[str]], row: Sequence[str], at: int) -> str:
    return f"<td{_side(rows, at)}>{row[at] if isinstance(row[at], _Raw) else _text(row[at])}</td>"


def _side(rows: Sequence[Sequence[str]], at: int) -> str:
    """Numbers stand to the right."""
    return ' class="n"' if rows and at and all(row[at][:1].isdigit() or not row[at] for row in rows) else ""


def _spent(run: Run) -> float:
    return run.ended_s - (run.begun_s or run.ended_s)


def _seconds(spent_s: float) -> str:
    if spent_s >= 100:
        return f"{spent_s:,.0f} s"
    if spent_s >= 0.1:
        return f"{spent_s:.2f} s"
    return f"{spent_s * 1e3:.2f} ms" if spent_s >= 1e-4 else f"{spent_s * 1e6:.1f} us"


def _text(text: str) -> str:
    return html.escape(text)
