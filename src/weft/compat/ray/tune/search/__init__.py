"""`ray.tune.search` of Ray 2.60. Names that are not here are those of `weft.tune.search`."""

from __future__ import annotations

from typing import Any

import weft.tune.search
from weft.tune import grid_search

__all__ = ["UNDEFINED_METRIC_MODE", "UNDEFINED_SEARCH_SPACE", "UNRESOLVED_SEARCH_SPACE", "grid_search"]

UNDEFINED_METRIC_MODE = "metric and mode must be given, to the searcher or to TuneConfig"
UNDEFINED_SEARCH_SPACE = "a search space must be given, to the searcher or as param_space"
UNRESOLVED_SEARCH_SPACE = "the search space holds what this searcher does not know"


def __getattr__(name: str) -> Any:
    try:
        return getattr(weft.tune.search, name)
    except AttributeError as error:
        raise AttributeError(str(error).replace("weft.tune", "ray.tune")) from None
