"""A space as a box of numbers in [0, 1], for algorithms that only know vectors. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from weft.tune.errors import SearchSpaceError
from weft.tune.space import (
    Choice,
    Domain,
    GridSearch,
    Integer,
    Normal,
    Path,
    Real,
    SampleFrom,
    as_domain,
    domains_of,
    path_name,
    resolve,
)

__all__ = ["UnitCube"]

_EDGE = 1e-6


class UnitCube:
    """One dimension for each domain, those of untaken branches included, in the order of the space."""

    def __init__(self, space: Mapping[str, Any]) -> None:
        self.space = space
        self.domains = {path: domain for path, domain in domains_of(space) if not isinstance(domain, SampleFrom)}
        for path, domain in self.domains.items():
            if isinstance(domain, GridSearch):
                raise SearchSpaceError(
                    f"key {path_name(path)!r} is a grid_search, which is for grid search only; use choice"
                )
        if not self.domains:
            raise SearchSpaceError("the space has nothing to search: every key is a constant")

    def __len__(self) -> int:
        return len(self.domains)

    @property
    def category_counts(self) -> list[int]:
        """The number of categories of each dimension; 0 for numbers."""
        return [len(domain.categories) if isinstance(domain, Choice) else 0 for domain in self.domains.values()]

    def to_config(self, vector: Sequence[float]) -> dict[str, Any]:
        values = dict(zip(self.domains, vector, strict=True))
        return resolve(self.space, lambda path, domain: _value(domain, values[path]))

    def to_vector(self, config: Mapping[str, Any]) -> list[float] | None:
        """Where a configuration lies; None when it is not of this space. Untaken branches are at 0.5."""
        vector = []
        for path, domain in self.domains.items():
            found, value = look_up(config, self.space, path)
            place = _place(domain, value) if found else 0.5
            if place is None:
                return None
            vector.append(place)
        return vector

    def recorded(self, asked: Any, config: Mapping[str, Any]) -> list[float] | None:
        """Where a recorded configuration lies, if it is another one than an algorithm gives when it is asked again."""
        place = self.to_vector(config)
        return None if isinstance(asked, Mapping) and self.to_vector(asked) == place else place


def _value(domain: Domain, place: float) -> Any:
    if isinstance(domain, Real):
        if domain.log:
            low, high = math.log(domain.lower), math.log(domain.upper)
            return domain.clip(math.exp(low + place * (high - low)))
        return domain.clip(domain.lower + place * (domain.upper - domain.lower))
    if isinstance(domain, Integer):
        if domain.log:
            low, high = math.log(domain.lower), math.log(domain.upper + 1)
            return domain.clip(math.floor(math.exp(low + place * (high - low))))
        return domain.clip(math.floor(domain.lower + place * (domain.upper + 1 - domain.lower)))
    if isinstance(domain, Normal):
        clipped = min(max(place, _EDGE), 1 - _EDGE)
        return domain.clip(statistics.NormalDist(domain.mean, domain.sd).inv_cdf(clipped))
    assert isinstance(domain, Choice)
    return domain.categories[min(int(place * len(domain.categories)), len(domain.categories) - 1)]


def _place(domain: Domain, value: Any) -> float | None:
    if isinstance(domain, Choice):
        index = category_of(domain, value)
        return (index + 0.5) / len(domain.categories) if index is not None else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(domain, Normal):
        return statistics.NormalDist(domain.mean, domain.sd).cdf(value)
    assert isinstance(domain, Real | Integer)
    low, high = float(domain.lower), float(domain.upper)
    if isinstance(domain, Integer):
        value, high = value + 0.5, high + 1
    if domain.log:
        if value <= 0:
            return None
        low, high, value = math.log(low), math.log(high), math.log(value)
    return min(max((value - low) / (high - low), 0.0), 1.0) if high > low else 0.5


def category_of(domain: Choice, value: Any) -> int | None:
    """Which category a value of a configuration is, or could have come from if the category is a space."""
    for index, category in enumerate(domain.categories):
        if category is value or _could_be(category, value):
            return index
    return None


def _could_be(space: Any, value: Any) -> bool:
    domain = as_domain(space)
    if isinstance(domain, Choice):
        return category_of(domain, value) is not None
    if domain is not None:
        return isinstance(domain, SampleFrom) or _place(domain, value) is not None
    if isinstance(space, Mapping) and isinstance(value, Mapping):
        return set(space) == set(value) and all(_could_be(space[key], value[key]) for key in space)
    return bool(space == value)


def searched(space: Any, config: Any) -> dict[Path, Any]:
    """What was searched for of a configuration: the values at the domains that it has."""
    found = {path: look_up(config, space, path) for path, domain in domains_of(space) if _is_drawn(domain)}
    return {path: value for path, (is_there, value) in found.items() if is_there}


def _is_drawn(domain: Domain) -> bool:
    return not isinstance(domain, SampleFrom)


def look_up(config: Any, space: Any, path: Path) -> tuple[bool, Any]:
    """The value at a path of the space; an index of a category in the path is not in the configuration."""
    for part in path:
        if isinstance(space, Choice):
            if category_of(space, config) != part:
                return False, None
            space = space.categories[int(part)]
            continue
        try:
            config, space = config[part], space[part]
        except (KeyError, IndexError, TypeError):
            return False, None
    return True, config
