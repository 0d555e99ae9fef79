"""What can be said about an experiment, in the words people know: TuneConfig, RunConfig and their parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.library.checks import above, at_least, one_of
from weft.library.keywords import answers_keywords
from weft.tune.callback import Callback
from weft.tune.errors import TuneError
from weft.tune.schedulers.scheduler import TrialScheduler
from weft.tune.search.searcher import Mode, Searcher
from weft.tune.trial import Trial

__all__ = ["CheckpointConfig", "ExperimentSpec", "FailureConfig", "RunConfig", "TuneConfig"]


@answers_keywords(
    param_space="it is the Tuner's: Tuner(trainable, param_space={...})",
    storage_path="write RunConfig(storage_path=...)",
    stop="write RunConfig(stop=...)",
)
@dataclass
class TuneConfig:
    """What is searched, and how.

    >>> config = TuneConfig(metric="loss", mode="min", num_samples=20, scheduler="asha")
    """

    metric: str | None = None
    mode: Mode | None = None
    search_alg: Searcher | str | None = None
    scheduler: TrialScheduler | str | None = None
    num_samples: int = 1
    """How many trials; with a grid, how often the whole grid. -1 is without end."""
    max_concurrent_trials: int | None = None
    time_budget_s: float | None = None
    reuse_actors: bool = True
    """Whether trials of one shape share processes, one after another. False gives each trial a process of its own."""
    in_process: bool = False
    """Whether trials run in this process, one after another: for functions that take less than a few milliseconds, need
    no isolation and ask for no resources. A session is not needed."""
    seed: int | None = None
    trial_name_creator: Callable[[Trial], str] | None = None

    def __post_init__(self) -> None:
        if self.mode is not None:
            one_of("mode", self.mode, ("min", "max"), error=TuneError)
        if self.num_samples < -1 or self.num_samples == 0:
            raise TuneError(f"num_samples must be positive, or -1 for no end, but got {self.num_samples}")
        if self.max_concurrent_trials is not None:
            above("max_concurrent_trials", self.max_concurrent_trials, error=TuneError)


@answers_keywords()
@dataclass(frozen=True)
class FailureConfig:
    """What happens when a trial fails.

    >>> FailureConfig(max_failures=2).max_crashes
    3
    """

    max_failures: int = 0
    """How often a trial that raises is tried again, from its last checkpoint; -1 is without end."""
    max_crashes: int = 3
    """The same for a trial whose process or node died."""
    fail_fast: bool = False
    """Whether the first trial that fails for good ends the experiment."""
    hang_timeout_s: float | None = None
    """A trial that reports nothing for so long is killed and counts as crashed."""


@answers_keywords()
@dataclass(frozen=True)
class CheckpointConfig:
    """When class trainables save, and how many checkpoints of a trial are kept. Functions save when they report.

    >>> config = CheckpointConfig(checkpoint_frequency=5, num_to_keep=2, checkpoint_score_attribute="accuracy")
    """

    checkpoint_frequency: int = 0
    """After every so many results; 0 is only when a scheduler needs it."""
    checkpoint_at_end: bool = False
    num_to_keep: int | None = None
    """None keeps all. The last one, and those that another trial goes on from, are kept in any case."""
    checkpoint_score_attribute: str | None = None
    """Keep the best by this metric, instead of the newest."""
    checkpoint_score_order: Mode = "max"

    def __post_init__(self) -> None:
        if self.num_to_keep is not None:
            above("num_to_keep", self.num_to_keep, error=TuneError)
        at_least("checkpoint_frequency", self.checkpoint_frequency, 0, error=TuneError)


@answers_keywords(
    max_failures="write failure_config=FailureConfig(max_failures=...)",
    metric="write TuneConfig(metric=..., mode=...)",
    num_samples="write TuneConfig(num_samples=...)",
)
@dataclass
class RunConfig:
    """Where results go, when trials stop, what else happens.

    >>> config = RunConfig(stop={"training_iteration": 10}, failure_config=FailureConfig(max_failures=2))
    """

    name: str | None = None
    storage_path: str | None = None
    """A folder or an fsspec URL; the experiment lies in a folder of its name in it. Default: ~/weft_results"""
    stop: Any = None
    failure_config: FailureConfig = field(default_factory=FailureConfig)
    checkpoint_config: CheckpointConfig = field(default_factory=CheckpointConfig)
    callbacks: Sequence[Callback] | None = None
    """Beside the CSV, JSON and TensorBoard logs."""
    verbose: int | None = None
    """0: nothing; 1: one line; 2: the status table. Default: the table at a terminal, nothing in a pipe."""
    log_files: bool | None = None
    """Whether each trial gets CSV, JSON and TensorBoard files; if not said, unless trials run in this process or, after
    the first ones, take only some milliseconds. The ledger has every result in any case."""


@dataclass
class ExperimentSpec:
    """All of an experiment, as the ledger keeps it. Searcher and scheduler are as the user made them, not set up
    yet."""

    name: str
    experiment_id: str
    trainable: Callable[..., Any]
    trainable_name: str
    space: dict[str, Any]
    searcher: Searcher
    scheduler: TrialScheduler
    tune: TuneConfig
    run: RunConfig
    seed: int
    resources: Any = None
