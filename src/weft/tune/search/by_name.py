"""Search algorithms by their short names."""

from __future__ import annotations

from typing import Any

from weft.library.checks import one_of
from weft.tune import search
from weft.tune.search.searcher import Searcher

__all__ = ["create_searcher"]

_BY_NAME = {
    **dict.fromkeys(("random", "grid", "variant_generator"), "BasicVariantGenerator"),
    "optuna": "OptunaSearch",
    "bayesopt": "BayesOptSearch",
    "nevergrad": "NevergradSearch",
    "bohb": "TuneBOHB",
}


def create_searcher(name: str, **options: Any) -> Searcher:
    """A search algorithm by its short name: random, optuna, bohb, bayesopt, nevergrad.

    >>> create_searcher("random").__class__.__name__
    'GridRandomSearch'
    """
    one_of("search_alg", name, sorted(_BY_NAME))
    made: Searcher = getattr(search, _BY_NAME[name])(**options)
    return made
