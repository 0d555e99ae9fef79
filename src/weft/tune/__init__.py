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

_LAZY = LazyNames(__name__)

__all__ = _LAZY.names
__getattr__ = _LAZY.load
__dir__ = _LAZY.listed
