"""weft.tune: hyperparameter search, from ten trials on a laptop to ten thousand on a cluster.

>>> from weft import tune
>>> def train(config):
...     for step in range(10):
...         tune.report(accuracy=config["alpha"] * step)
>>> tuner = tune.Tuner(train, param_space={"alpha": tune.grid_search([0.2, 0.4, 0.6])},
...                    tune_config=tune.TuneConfig(metric="accuracy", mode="max"))
>>> tuner.fit().get_best_result().config
{'alpha': 0.6}

Every name is loaded at its first use; optional libraries when something needs them.
"""

from __future__ import annotations

from weft._lazy import LazyNames

TYPE_CHECKING = False

if TYPE_CHECKING:
    from weft.tune import loggers as loggers
    from weft.tune import schedulers as schedulers
    from weft.tune import search as search
    from weft.tune.callback import Callback as Callback
    from weft.tune.checkpoint import Checkpoint as Checkpoint
    from weft.tune.config import CheckpointConfig as CheckpointConfig
    from weft.tune.config import FailureConfig as FailureConfig
    from weft.tune.config import RunConfig as RunConfig
    from weft.tune.config import TuneConfig as TuneConfig
    from weft.tune.errors import LedgerError as LedgerError
    from weft.tune.errors import SearchSpaceError as SearchSpaceError
    from weft.tune.errors import TrialError as TrialError
    from weft.tune.errors import TuneError as TuneError
    from weft.tune.experiments import Experiment as Experiment
    from weft.tune.experiments import run as run
    from weft.tune.experiments import run_experiments as run_experiments
    from weft.tune.registry import register_env as register_env
    from weft.tune.registry import register_trainable as register_trainable
    from weft.tune.resources import PlacementGroupFactory as PlacementGroupFactory
    from weft.tune.resources import with_parameters as with_parameters
    from weft.tune.resources import with_resources as with_resources
    from weft.tune.result_grid import Result as Result
    from weft.tune.result_grid import ResultGrid as ResultGrid
    from weft.tune.schedulers import create_scheduler as create_scheduler
    from weft.tune.search import create_searcher as create_searcher
    from weft.tune.session import get_checkpoint as get_checkpoint
    from weft.tune.session import get_context as get_context
    from weft.tune.session import get_trial_dir as get_trial_dir
    from weft.tune.session import get_trial_id as get_trial_id
    from weft.tune.session import report as report
    from weft.tune.space import choice as choice
    from weft.tune.space import grid_search as grid_search
    from weft.tune.space import lograndint as lograndint
    from weft.tune.space import loguniform as loguniform
    from weft.tune.space import qlograndint as qlograndint
    from weft.tune.space import qloguniform as qloguniform
    from weft.tune.space import qrandint as qrandint
    from weft.tune.space import qrandn as qrandn
    from weft.tune.space import quniform as quniform
    from weft.tune.space import randint as randint
    from weft.tune.space import randn as randn
    from weft.tune.space import sample_from as sample_from
    from weft.tune.space import uniform as uniform
    from weft.tune.stopping import Stopper as Stopper
    from weft.tune.trainable import Trainable as Trainable
    from weft.tune.trial import Trial as Trial
    from weft.tune.tuner import Tuner as Tuner

_HOMES = {
    "callback": "Callback",
    "checkpoint": "Checkpoint",
    "config": "CheckpointConfig FailureConfig RunConfig TuneConfig",
    "errors": "LedgerError SearchSpaceError TrialError TuneError",
    "experiments": "Experiment run run_experiments",
    "registry": "register_env register_trainable",
    "resources": "PlacementGroupFactory with_parameters with_resources",
    "result_grid": "Result ResultGrid",
    "schedulers": "create_scheduler",
    "search": "create_searcher",
    "session": "get_checkpoint get_context get_trial_dir get_trial_id report",
    "space": "choice grid_search lograndint loguniform qlograndint qloguniform qrandint qrandn quniform randint randn "
    "sample_from uniform",
    "stopping": "Stopper",
    "trainable": "Trainable",
    "trial": "Trial",
    "tuner": "Tuner",
}
_LAZY = LazyNames(__name__, _HOMES, submodules=("loggers", "schedulers", "search", "stopping"))

__all__ = _LAZY.names
__getattr__ = _LAZY.load
__dir__ = _LAZY.listed
