"""Figures of a result grid, with matplotlib: learning curves, parallel coordinates, slices."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from weft.library.checks import one_of
from weft.library.lookup import flatten, value_at
from weft.tune.errors import TuneError

if TYPE_CHECKING:
    from weft.tune.result_grid import ResultGrid

__all__ = ["draw"]

FAINT, STRONG = 0.25, 1.0


def draw(grid: ResultGrid, kind: str, metric: str, mode: str, x: str = "training_iteration") -> Any:
    """A matplotlib figure; show or save it as usual."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("plots need matplotlib: pip install 'weft[tune]'", name="matplotlib") from error
    kinds = {"curves": _curves, "parallel": _parallel, "slices": _slices}
    one_of("kind", kind, kinds, error=TuneError)
    scored = [result for result in grid if isinstance(value_at(result.metrics, metric), int | float)]
    if not scored:
        raise TuneError(f"no trial has reported {metric!r}")
    figure = Figure(figsize=(9, 5), layout="constrained")
    best = grid.get_best_result(metric, "min" if mode == "min" else "max")
    kinds[kind](figure, scored, metric, mode, best, x)
    return figure


def _curves(figure: Any, results: list[Any], metric: str, mode: str, best: Any, x: str) -> None:
    axes = figure.subplots()
    for result in results:
        rows = [row for row in result.history if isinstance(value_at(row, metric), int | float)]
        is_best = result.trial_id == best.trial_id
        axes.plot(
            [value_at(row, x) for row in rows],
            [value_at(row, metric) for row in rows],
            alpha=STRONG if is_best else FAINT,
            label=result.name if is_best else None,
            marker="o" if len(rows) == 1 else None,
        )
    axes.set_xlabel(x)
    axes.set_ylabel(metric)
    axes.legend()


def _columns(results: list[Any]) -> dict[str, list[float]]:
    """The configuration's numeric keys that vary; other values by the order of their names."""
    flat = [flatten(result.config) for result in results]
    columns = {}
    for key in {key: None for row in flat for key in row}:
        values = [row.get(key) for row in flat]
        if len({repr(value) for value in values}) < 2:
            continue
        if all(isinstance(value, int | float) for value in values):
            columns[key] = [float(value or 0) for value in values]
        else:
            names = sorted({repr(value) for value in values})
            columns[key] = [float(names.index(repr(value))) for value in values]
    if not columns:
        raise TuneError("the trials' configurations do not differ, so there is nothing to draw by them")
    return columns


def _parallel(figure: Any, results: list[Any], metric: str, mode: str, best: Any, x: str) -> None:
    axes = figure.subplots()
    values = [float(value_at(result.metrics, metric)) for result in results]
    columns = {**_columns(results), metric: values}
    scaled = {key: _scaled(column) for key, column in columns.items()}
    ranks = _scaled(values if mode == "max" else [-value for value in values])
    colours = _colours()
    for index in range(len(results)):
        axes.plot(
            range(len(scaled)), [column[index] for column in scaled.values()], color=colours(ranks[index]), alpha=0.6
        )
    axes.set_xticks(range(len(scaled)), [f"{key}\n{min(c):.3g} … {max(c):.3g}" for key, c in columns.items()])
    axes.set_yticks([])


def _slices(figure: Any, results: list[Any], metric: str, mode: str, best: Any, x: str) -> None:
    columns = _columns(results)
    values = [float(value_at(result.metrics, metric)) for result in results]
    panels = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
    for axes, (key, column) in zip(panels, columns.items(), strict=True):
        axes.scatter(column, values, c=range(len(values)), cmap="viridis", s=18)
        axes.set_xlabel(key)
        if min(column) > 0 and max(column) / min(column) > 100:
            axes.set_xscale("log")
    panels[0].set_ylabel(metric)


def _scaled(values: list[float]) -> list[float]:
    finite = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = min(finite), max(finite)
    return [(value - low) / (high - low) if high > low and math.isfinite(value) else 0.5 for value in values]


def _colours() -> Any:
    import matplotlib

    return matplotlib.colormaps["viridis"]
