"""Running an experiment: `Tuner(...).fit()`, `Tuner.restore(path)`.

>>> from weft import tune
>>> def train(config):
...     tune.report(loss=abs(config["lr"] - 1e-2))
>>> tuner = tune.Tuner(train, param_space={"lr": tune.loguniform(1e-4, 1e-1)},
...                    tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=20),
...                    run_config=tune.RunConfig(verbose=0))
>>> 0 < tuner.fit().get_best_result().config["lr"] < 0.1
True
"""

from __future__ import annotations

import copy
import logging
import os
import secrets
import time
from collections.abc import Mapping
from typing import Any

import weft
from weft.library.keywords import answers_keywords
from weft.library.storage import LocalStorage, Storage, open_storage
from weft.tune.board import BoardCallback
from weft.tune.callback import Callback
from weft.tune.config import ExperimentSpec, RunConfig, TuneConfig
from weft.tune.errors import SearchSpaceError, TuneError
from weft.tune.host import MARKER
from weft.tune.ledger import Ledger, read_entries, read_experiment, replay, write_experiment
from weft.tune.naming import tag_of, trial_dir_of, varied_keys
from weft.tune.registry import resolve_trainable
from weft.tune.resources import RESOURCES_ATTRIBUTE, as_resources
from weft.tune.result_grid import ResultGrid
from weft.tune.runner import Runner, default_storage_path
from weft.tune.schedulers import create_scheduler
from weft.tune.schedulers.scheduler import FIFOScheduler, TrialScheduler
from weft.tune.search import create_searcher
from weft.tune.search.basic import GridRandomSearch
from weft.tune.search.searcher import Searcher
from weft.tune.space import GridSearch, check_space, domains_of, path_name
from weft.tune.state import ExperimentState, Limits, trial_id_of
from weft.tune.status import StatusTable
from weft.tune.stopping import as_stopper
from weft.tune.trial import ERROR, Trial

__all__ = ["Tuner"]

logger = logging.getLogger("weft.tune")

_FILLED_IN = ("training_iteration", "time_total_s", "done", "timestamp", "time_this_iter_s")


_TUNE_CONFIG = "write tune_config=TuneConfig(...)"


@answers_keywords(
    config="write param_space={...}",
    space="write param_space={...}",
    num_samples=_TUNE_CONFIG,
    metric=_TUNE_CONFIG,
    mode=_TUNE_CONFIG,
    scheduler=_TUNE_CONFIG,
    search_alg=_TUNE_CONFIG,
    stop="write run_config=RunConfig(stop=...)",
    name="write run_config=RunConfig(name=...)",
    storage_path="write run_config=RunConfig(storage_path=...)",
)
class Tuner:
    """An experiment: `fit` runs it. `trainable` is a function, a class, or a name.

    >>> from weft import tune
    >>> tuner = tune.Tuner(lambda config: {"score": config["x"]}, param_space={"x": tune.grid_search([1, 2])},
    ...                    run_config=tune.RunConfig(verbose=0))
    >>> [result.metrics["score"] for result in tuner.fit()]
    [1, 2]
    """

    def __init__(
        self,
        trainable: Any,
        *,
        param_space: Mapping[str, Any] | None = None,
        tune_config: TuneConfig | None = None,
        run_config: RunConfig | None = None,
    ) -> None:
        tune = tune_config or TuneConfig()
        run = run_config or RunConfig()
        self._callbacks = list(run.callbacks or ())
        self._spec = make_spec(trainable, dict(param_space or {}), tune, run)
        self._storage = open_storage(f"{(run.storage_path or default_storage_path()).rstrip('/')}/{self._spec.name}")
        self._is_restored = False
        self._resume_errored = False
        self._grid: ResultGrid | None = None

    @classmethod
    def restore(
        cls,
        path: str | os.PathLike[str],
        trainable: Any = None,
        *,
        resume_errored: bool = False,
        callbacks: list[Callback] | None = None,
        verbose: int | None = None,
    ) -> Tuner:
        """The experiment at `path`, to be continued by `fit`. Finished trials stay as they are; the others go on from
        their last checkpoints. `trainable` replaces the one that was stored. With `resume_errored`, trials that failed
        are tried again. LedgerError when there is no experiment."""
        storage = open_storage(path)
        spec: ExperimentSpec = read_experiment(storage)
        if trainable is not None:
            spec.trainable_name, spec.trainable = resolve_trainable(trainable)
        if verbose is not None:
            spec.run.verbose = verbose
        self = cls.__new__(cls)
        self._callbacks = list(callbacks or ())
        self._spec, self._storage = spec, storage
        self._is_restored, self._grid = True, None
        self._resume_errored = resume_errored
        return self

    @classmethod
    def can_restore(cls, path: str | os.PathLike[str]) -> bool:
        """Whether an experiment lies in this folder."""
        return open_storage(path).exists("experiment.pkl")

    @property
    def path(self) -> str:
        """Where the experiment lies; `Tuner.restore` takes it."""
        return self._storage.root

    def use_fresh_folder(self) -> None:
        """Add a number to the experiment's name if there is one of that name already."""
        name, number = self._spec.name, 1
        base = self._storage.root[: -len(name)]
        while self._storage.exists("experiment.pkl"):
            number += 1
            self._spec.name = f"{name}_{number}"
            self._storage = open_storage(base + self._spec.name)

    def fit(self) -> ResultGrid:
        """Run until all trials have finished. Trials that fail are in `errors`; TuneError for what is wrong as a
        whole."""
        spec, storage = self._spec, self._storage
        if not spec.tune.in_process and not weft.is_initialized():
            weft.init()
        if not self._is_restored:
            if storage.exists("experiment.pkl"):
                raise TuneError(
                    f"there is an experiment at {storage.root} already: continue it with tune.Tuner.restore(…), "
                    f"or choose "
                    f"another name"
                )
            write_experiment(storage, spec)
            storage.write(MARKER, spec.experiment_id.encode())
        try:
            self._grid = self._run(copy.deepcopy(spec.searcher), copy.deepcopy(spec.scheduler))
        except KeyboardInterrupt:
            logger.warning("interrupted; to go on: tune.Tuner.restore(%r).fit()", storage.root)
            raise
        finally:
            storage.close()
        self._is_restored = True
        return self._grid

    def get_results(self) -> ResultGrid:
        """What there is: of the finished `fit`, or of a restored experiment without running it."""
        if self._grid is None:
            if not self._is_restored:
                raise TuneError("there are no results yet: call fit()")
            spec = self._spec
            state, _ = build_state(spec, copy.deepcopy(spec.searcher), copy.deepcopy(spec.scheduler))
            replay(state, read_entries(self._storage))
            self._grid = _grid(spec, state, self._storage)
        return self._grid

    def _run(self, searcher: Searcher, scheduler: TrialScheduler) -> ResultGrid:
        spec, storage = self._spec, self._storage
        state, thresholds = build_state(spec, searcher, scheduler)
        ledger = Ledger(storage)
        folder = storage.root if isinstance(storage, LocalStorage) else _local_folder(spec)
        callbacks = [*_default_callbacks(spec), *self._callbacks]
        if weft.is_initialized():
            callbacks.append(BoardCallback(spec.name, state.searcher.metric, spec.tune.mode or state.scheduler.mode))
        for callback in callbacks:
            callback.set_up(spec.name, folder)
        if self._is_restored:
            self._replay(state, ledger, callbacks)
        shown_metric = (
            spec.tune.metric or scheduler.metric or next((key for key in thresholds if key not in _FILLED_IN), None)
        )
        status = StatusTable(spec.run.verbose, shown_metric, storage.root)
        runner = Runner
        if spec.tune.in_process:
            from weft.tune.in_process import InProcessRunner as runner
        runner(spec, state, storage, ledger, callbacks, thresholds, status).run()
        if not isinstance(storage, LocalStorage):
            _upload(folder, storage)
        return _grid(spec, state, storage)

    def _replay(self, state: ExperimentState, ledger: Ledger, callbacks: list[Callback]) -> None:
        histories: dict[str, list[Mapping[str, Any]]] = {}

        def watched() -> Any:
            for entry in read_entries(self._storage):
                if entry[0] == "reported":
                    histories.setdefault(entry[1], []).append(entry[2])
                yield entry

        replay(state, watched())
        ledger.add("interrupted", "")
        state.interrupted()
        if self._resume_errored:
            for trial in [trial for trial in state.trials if trial.status == ERROR]:
                ledger.add("revived", trial.trial_id)
                state.revived(trial)
        for trial in state.trials:
            if not trial.is_finished and trial.trial_id in histories:
                for callback in callbacks:
                    callback.on_trial_restore(trial, trial_dir_of(trial), histories[trial.trial_id])


# ---- from what the user said to what runs ----------------------------------------------------------


def make_spec(trainable: Any, space: dict[str, Any], tune: TuneConfig, run: RunConfig) -> ExperimentSpec:
    """Check and complete; everything that can be wrong before a trial runs is found here."""
    name, resolved = resolve_trainable(trainable)
    check_space(space)
    searcher = create_searcher(tune.search_alg) if isinstance(tune.search_alg, str) else tune.search_alg
    searcher = searcher if searcher is not None else GridRandomSearch()
    if not isinstance(searcher, Searcher):
        raise TuneError(f"search_alg must be a Searcher or the name of one, but got {searcher!r}")
    scheduler = create_scheduler(tune.scheduler) if isinstance(tune.scheduler, str) else tune.scheduler
    scheduler = scheduler if scheduler is not None else FIFOScheduler()
    if not isinstance(scheduler, TrialScheduler):
        raise TuneError(f"scheduler must be a TrialScheduler or the name of one, but got {scheduler!r}")
    as_stopper(run.stop)
    stamp = time.strftime("%Y-%m-%d_%H-%M-%S") + f"_{secrets.token_hex(3)}"
    plain_tune = copy.copy(tune)
    plain_tune.search_alg = plain_tune.scheduler = None
    plain_run = copy.copy(run)
    plain_run.callbacks = None
    spec = ExperimentSpec(
        name=run.name or f"{name}_{stamp}",
        experiment_id=secrets.token_hex(8),
        trainable=resolved,
        trainable_name=name,
        space=space,
        searcher=searcher,
        scheduler=scheduler,
        tune=plain_tune,
        run=plain_run,
        seed=tune.seed if tune.seed is not None else secrets.randbits(31),
    )
    build_state(spec, copy.deepcopy(searcher), copy.deepcopy(scheduler))
    return spec


def build_state(
    spec: ExperimentSpec, searcher: Searcher, scheduler: TrialScheduler
) -> tuple[ExperimentState, dict[str, float]]:
    """The state machine of an experiment before its first trial, and the thresholds that trials check themselves."""
    tune, run = spec.tune, spec.run
    thresholds, stopper = as_stopper(run.stop)
    if not isinstance(_innermost(searcher), GridRandomSearch):
        for path, domain in domains_of(spec.space):
            if isinstance(domain, GridSearch):
                raise SearchSpaceError(
                    f"key {path_name(path)!r} is a grid_search, which {type(searcher).__name__} does not do; use choice"
                )
    metric = tune.metric if tune.metric is not None else scheduler.metric
    mode = tune.mode if tune.mode is not None else scheduler.mode
    searcher.set_up(spec.space, metric, mode or "max", spec.seed, tune.num_samples)
    keys = varied_keys(spec.space)
    state = ExperimentState(
        searcher,
        scheduler,
        stopper,
        lambda number, config: _make_trial(spec, keys, number, config),
        Limits(
            num_trials=searcher.samples
            if searcher.samples is not None
            else None
            if tune.num_samples < 0
            else tune.num_samples,
            max_concurrent=tune.max_concurrent_trials,
            max_failures=run.failure_config.max_failures,
            max_crashes=run.failure_config.max_crashes,
        ),
        _required_keys(metric, scheduler, thresholds),
    )
    scheduler.set_up(state.trials, metric, mode, spec.seed)
    return state, thresholds


def _innermost(searcher: Searcher) -> Searcher:
    inner = getattr(searcher, "searcher", None)
    return _innermost(inner) if isinstance(inner, Searcher) else searcher


def _required_keys(metric: str | None, scheduler: TrialScheduler, thresholds: Mapping[str, float]) -> dict[str, str]:
    keys = dict.fromkeys(thresholds, "the stop condition's")
    if scheduler.needs_metric:
        keys[scheduler.time_attr] = f"{type(scheduler).__name__}'s time_attr"
    if metric is not None:
        keys[metric] = "metric"
    return {key: role for key, role in keys.items() if key not in _FILLED_IN}


def _make_trial(spec: ExperimentSpec, keys: list[tuple[Any, ...]], number: int, config: dict[str, Any]) -> Trial:
    wanted = getattr(spec.trainable, RESOURCES_ATTRIBUTE, None)
    ask = getattr(spec.trainable, "default_resource_request", None)
    if spec.resources is not None:
        resources = as_resources(spec.resources(config) if callable(spec.resources) else spec.resources)
    elif wanted is not None:
        resources = wanted(config)
    else:
        resources = as_resources(ask(config) if ask is not None else None)
    if spec.tune.in_process and (spec.resources is not None or wanted is not None or ask is not None):
        raise TuneError(
            f"{spec.trainable_name} asks for resources, which in_process=True cannot set aside: leave one of both out"
        )
    trial = Trial(trial_id_of(number), number, spec.trainable_name, config, tag_of(keys, config), resources=resources)
    if spec.tune.trial_name_creator is not None:
        trial.tag = str(spec.tune.trial_name_creator(trial))
    return trial


def _default_callbacks(spec: ExperimentSpec) -> list[Callback]:
    if not (spec.run.log_files if spec.run.log_files is not None else not spec.tune.in_process):
        return []
    from weft.tune.loggers import CSVLoggerCallback, JsonLoggerCallback, TBXLoggerCallback

    callbacks: list[Callback] = [JsonLoggerCallback(), CSVLoggerCallback(), TBXLoggerCallback()]
    for callback in callbacks:
        callback.hears_of_bundles = bool(spec.run.log_files)
    return callbacks


def _grid(spec: ExperimentSpec, state: ExperimentState, storage: Storage) -> ResultGrid:
    trials = list(state.trials)
    metric, mode = state.searcher.metric, spec.tune.mode or state.scheduler.mode
    return ResultGrid(trials, storage, metric, mode, {trial.trial_id: trial_dir_of(trial) for trial in trials})


def _local_folder(spec: ExperimentSpec) -> str:
    """Where logs gather before they are uploaded."""
    return os.path.join(os.path.expanduser("~/.cache/weft/tune"), spec.experiment_id)


def _upload(folder: str, storage: Storage) -> None:
    from pathlib import Path

    for trial in Path(folder).iterdir() if os.path.isdir(folder) else ():
        storage.put_folder(trial, trial.name)
