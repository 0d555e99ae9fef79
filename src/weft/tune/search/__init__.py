"""Search algorithms: which configuration to try next. Optional libraries are imported when one is made."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from weft.tune.search.basic import BasicVariantGenerator, GridRandomSearch
from weft.tune.search.limiter import ConcurrencyLimiter
from weft.tune.search.repeater import Repeater
from weft.tune.search.searcher import FINISHED, Searcher

if TYPE_CHECKING:
    from weft.tune.search.bayesopt import BayesOptSearch as BayesOptSearch
    from weft.tune.search.bohb import TuneBOHB as TuneBOHB
    from weft.tune.search.nevergrad import NevergradSearch as NevergradSearch
    from weft.tune.search.optuna import OptunaSearch as OptunaSearch

_LAZY = {"OptunaSearch": "optuna", "BayesOptSearch": "bayesopt", "NevergradSearch": "nevergrad", "TuneBOHB": "bohb"}
_BY_NAME = {
    "random": "BasicVariantGenerator",
    "grid": "BasicVariantGenerator",
    "variant_generator": "BasicVariantGenerator",
}
_BY_NAME |= {"optuna": "OptunaSearch", "bayesopt": "BayesOptSearch", "nevergrad": "NevergradSearch", "bohb": "TuneBOHB"}

__all__ = [
    "FINISHED",
    "BasicVariantGenerator",
    "BayesOptSearch",
    "ConcurrencyLimiter",
    "GridRandomSearch",
    "NevergradSearch",
    "OptunaSearch",
    "Repeater",
    "Searcher",
    "TuneBOHB",
    "create_searcher",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(f"weft.tune.search.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'weft.tune.search' has no attribute {name!r}")


def create_searcher(name: str, **options: Any) -> Searcher:
    """A search algorithm by its short name: random, optuna, bohb, bayesopt, nevergrad.

    >>> create_searcher("random").__class__.__name__
    'GridRandomSearch'
    """
    if name not in _BY_NAME:
        raise ValueError(f"search_alg must be one of {', '.join(sorted(_BY_NAME))}, but got {name!r}")
    from weft.tune import search

    made: Searcher = getattr(search, _BY_NAME[name])(**options)
    return made
