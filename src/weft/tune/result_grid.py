"""What came out: a result for each trial, the best one, a data frame, plots."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weft.library.checkpoint import Checkpoint
from weft.library.checks import one_of
from weft.library.keywords import answers_attributes
from weft.library.lookup import flatten, value_at
from weft.tune.errors import TrialError, TuneError
from weft.tune.ledger import read_entries
from weft.tune.schedulers.scheduler import FILLED_IN, missing_key
from weft.tune.trial import ERROR, TERMINATED, Trial
from weft.util.html_table import html_table

if TYPE_CHECKING:
    import pandas as pd

    from weft.library.storage import Storage
    from weft.tune.search.searcher import Mode

__all__ = ["Result", "ResultGrid"]

_MOST_ROWS = 50


@answers_attributes("what was reported is in .metrics and .history")
@dataclass(frozen=True)
class Result:
    """One trial's outcome. `metrics` is its last result, empty if it reported nothing.

    >>> from weft import tune
    >>> def train(config):
    ...     for step in range(3):
    ...         tune.report(step=step)
    >>> result = tune.Tuner(train, run_config=tune.RunConfig(verbose=0)).fit()[0]
    >>> result.status, result.metrics["step"], result.config
    ('TERMINATED', 2, {})
    """

    trial_id: str
    name: str
    config: dict[str, Any]
    metrics: dict[str, Any]
    status: str
    path: str
    checkpoint: Checkpoint | None
    error: TrialError | None
    _history: Callable[[str], list[dict[str, Any]]]

    def _repr_html_(self) -> str:
        """For notebooks."""
        rows = [[f"config/{key}", value] for key, value in flatten(self.config).items()]
        rows += [[key, value] for key, value in flatten(self.metrics).items() if key not in FILLED_IN]
        return html_table(["", "value"], rows, f"{self.name}: {self.status}", str(self.error or self.path))

    @property
    def history(self) -> list[dict[str, Any]]:
        """Every result that it reported, in order, read from the ledger."""
        return self._history(self.trial_id)

    @property
    def metrics_dataframe(self) -> pd.DataFrame:
        """`history`, one row a result. Needs pandas."""
        import pandas as pd

        return pd.DataFrame([flatten(result) for result in self.history])


@answers_attributes(
    best_estimator_="models are in checkpoints: get_best_result().checkpoint",
    best_params="write best_config",
    best_params_="write best_config",
    best_score_="write get_best_result().metrics[...]",
    best_value="write get_best_result().metrics[...]",
    to_dataframe="write get_dataframe()",
    trials_dataframe="write get_dataframe()",
)
class ResultGrid:
    """A sequence of results, in the order of the trials.

    >>> from weft import tune
    >>> results = tune.Tuner(lambda config: {"loss": config["x"] ** 2}, param_space={"x": tune.grid_search([-2, 1, 3])},
    ...                      tune_config=tune.TuneConfig(metric="loss", mode="min"),
    ...                      run_config=tune.RunConfig(verbose=0)).fit()
    >>> len(results), results.num_errors, results.best_config
    (3, 0, {'x': 1})
    >>> results.get_best_result().metrics["loss"]
    1
    """

    def __init__(
        self, trials: list[Trial], storage: Storage, metric: str | None, mode: Mode | None, dirs: Mapping[str, str]
    ) -> None:
        self._storage, self._metric, self._mode = storage, metric, mode
        self.experiment_path = storage.root
        self.trials = trials
        self._results = [self._result(trial, dirs[trial.trial_id]) for trial in trials]

    def _result(self, trial: Trial, trial_dir: str) -> Result:
        saved = trial.checkpoint
        return Result(
            trial_id=trial.trial_id,
            name=str(trial),
            config=trial.config,
            metrics=dict(trial.last_result),
            status=trial.status,
            path=f"{self._storage.root}/{trial_dir}",
            checkpoint=Checkpoint(storage=self._storage, name=saved.path) if saved is not None else None,
            error=TrialError(trial.trial_id, trial.error or "", "") if trial.status == ERROR else None,
            _history=lambda trial_id: self.histories.get(trial_id, []),
        )

    def __len__(self) -> int:
        return len(self._results)

    def __getitem__(self, index: int) -> Result:
        return self._results[index]

    def __iter__(self) -> Iterator[Result]:
        return iter(self._results)

    @property
    def errors(self) -> list[TrialError]:
        """Why trials failed, one error a failed trial."""
        return [result.error for result in self._results if result.error is not None]

    @property
    def num_errors(self) -> int:
        """How many trials failed."""
        return len(self.errors)

    @property
    def num_terminated(self) -> int:
        """How many trials ended well, or were stopped."""
        return sum(result.status == TERMINATED for result in self._results)

    @functools.cached_property
    def histories(self) -> dict[str, list[dict[str, Any]]]:
        """Every result of every trial, by trial id, read from the ledger."""
        found: dict[str, list[dict[str, Any]]] = {}
        for kind, trial_id, *rest in read_entries(self._storage):
            if kind == "reported":
                found.setdefault(trial_id, []).append(rest[0])
        return found

    def get_best_result(
        self, metric: str | None = None, mode: Mode | None = None, scope: str = "last", filter_nan_and_inf: bool = True
    ) -> Result:
        """The best trial by its last result ("last"), by any of its results ("all"), or by their average ("avg").

        TuneError when no trial reported the metric, with what was reported."""
        metric, mode = metric or self._metric, mode or self._mode
        if metric is None or mode is None:
            raise TuneError("the best by what? Give metric= and mode='min' or 'max', here or in TuneConfig")
        one_of("mode", mode, ("min", "max"), error=TuneError)
        one_of("scope", scope, ("last", "all", "avg"), error=TuneError)
        sign = 1.0 if mode == "max" else -1.0
        best, best_score = None, -math.inf
        for result in self._results:
            score = self._score(result, metric, sign, scope)
            if score is None or (filter_nan_and_inf and not math.isfinite(score)):
                continue
            if best is None or score > best_score:
                best, best_score = result, score
        if best is None:
            raise TuneError(self._why_none_is_best(metric))
        return best

    def _why_none_is_best(self, metric: str) -> str:
        if self._results and self.num_errors == len(self):
            first = self.errors[0]
            return (
                f"all {len(self)} trials failed, so none is the best; the first, {first.trial_id}: {first.message}. "
                f"Tracebacks are in error.txt in the trials' folders below {self.experiment_path}"
            )
        reporting = [result.metrics for result in self._results if result.metrics]
        values = [value_at(metrics, metric) for metrics in reporting]
        if any(isinstance(value, int | float) for value in values):
            return (
                f"{metric!r} is NaN or infinite in all {len(self)} trials; filter_nan_and_inf=False takes infinite ones"
            )
        return f"no trial has a number: {missing_key('metric', metric, next(iter(reporting), {}))}"

    def _score(self, result: Result, metric: str, sign: float, scope: str) -> float | None:
        rows = [result.metrics] if scope == "last" else result.history
        values = [value_at(row, metric) for row in rows]
        scores = [sign * value for value in values if isinstance(value, int | float)]
        if not scores:
            return None
        return sum(scores) / len(scores) if scope == "avg" else max(scores)

    def get_dataframe(self, filter_metric: str | None = None, filter_mode: Mode | None = None) -> pd.DataFrame:
        """One row per trial: its last result, or its best by a metric, and `config/<key>`. Needs pandas."""
        import pandas as pd

        rows = []
        for result in self._results:
            chosen: Mapping[str, Any] = result.metrics
            if filter_metric is not None:
                rank = max if (filter_mode or self._mode) == "max" else min
                having = [row for row in result.history if isinstance(value_at(row, filter_metric), int | float)]
                chosen = rank(having, key=lambda row: value_at(row, filter_metric)) if having else chosen
            row = {"trial_id": result.trial_id, "status": result.status, **flatten(chosen), "logdir": result.path}
            rows.append({**row, **{f"config/{key}": value for key, value in flatten(result.config).items()}})
        return pd.DataFrame(rows)

    def plot(self, kind: str = "curves", metric: str | None = None, **options: Any) -> Any:
        """A matplotlib figure: "curves" (learning curves), "parallel" (coordinates) or "slices" (metric by each
        key)."""
        from weft.tune.plots import draw

        wanted = metric or self._metric
        if wanted is None:
            raise TuneError("plot what? Give metric=, here or in TuneConfig")
        return draw(self, kind, wanted, self._mode or "max", **options)

    # ---- the names of tune.run's analysis ----

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        """Each trial's last metrics, by its id."""
        return {result.trial_id: result.metrics for result in self._results}

    @property
    def best_result(self) -> dict[str, Any]:
        """The best trial's metrics."""
        return self.get_best_result().metrics

    @property
    def best_config(self) -> dict[str, Any]:
        """The best trial's configuration."""
        return self.get_best_result().config

    @property
    def best_trial(self) -> Trial:
        """The best trial."""
        return self.get_best_trial()

    @property
    def best_checkpoint(self) -> Checkpoint | None:
        """The best trial's checkpoint, if it made one."""
        return self.get_best_result().checkpoint

    def get_best_config(
        self, metric: str | None = None, mode: Mode | None = None, scope: str = "last"
    ) -> dict[str, Any]:
        """The configuration of `get_best_result(…)`."""
        return self.get_best_result(metric, mode, scope).config

    def get_best_trial(self, metric: str | None = None, mode: Mode | None = None, scope: str = "last") -> Trial:
        """The trial of `get_best_result(…)`."""
        best = self.get_best_result(metric, mode, scope)
        return next(trial for trial in self.trials if trial.trial_id == best.trial_id)

    dataframe = get_dataframe

    def __repr__(self) -> str:
        return f"ResultGrid({len(self)} trials, {self.num_errors} failed, {self.experiment_path})"

    def _repr_html_(self) -> str:
        """For notebooks: one row per trial."""
        shown = self._results[:_MOST_ROWS]
        settings = dict.fromkeys(key for result in shown for key in flatten(result.config))
        measured = dict.fromkeys(
            key for result in shown for key in flatten(result.metrics) if key not in FILLED_IN and key not in settings
        )
        heads = ["trial", "status", *settings, *measured]
        rows = [
            [
                result.name,
                result.status if result.error is None else f"{result.status}: {result.error.message}",
                *(flatten(result.config).get(key, "") for key in settings),
                *(flatten(result.metrics).get(key, "") for key in measured),
            ]
            for result in shown
        ]
        more = f"; the first {len(shown)} are shown" if len(self) > len(shown) else ""
        return html_table(heads, rows, f"{len(self)} trials, {self.num_errors} failed{more}", self.experiment_path)
