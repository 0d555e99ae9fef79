"""`ray.tune.analysis` of Ray 2.60: what `tune.run` returns has `best_config`, `best_trial` and the others."""

from weft.tune import ResultGrid as ExperimentAnalysis

__all__ = ["ExperimentAnalysis"]
