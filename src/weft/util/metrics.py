"""Metrics of your own, beside the engine's at each node's Prometheus endpoint; as `ray.util.metrics`.

>>> requests = Counter("requests", description="Requests so far.", tag_keys=("route",))
>>> requests.inc(tags={"route": "/"})

Each process counts for itself and its node adds up. Counters and histograms of processes that ended still count. An
update costs about a microsecond; nothing is sent while nothing changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.engine.process.telling import metrics_registry
from weft.observe.user_metrics import COUNTER, GAUGE, HISTOGRAM, Series

__all__ = ["Counter", "Gauge", "Histogram", "Metric"]

DEFAULT_BOUNDARIES = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)


class Metric:
    """What the three kinds share."""

    kind = ""

    def __init__(self, name: str, description: str = "", tag_keys: Sequence[str] | None = None) -> None:
        if not isinstance(name, str) or not name:
            raise ValueError(f"a metric's name must be a string that is not empty, but got {name!r}")
        keys = () if tag_keys is None else tag_keys
        if isinstance(keys, str) or not all(isinstance(key, str) for key in keys):
            raise TypeError(f"tag_keys must be a tuple of strings, but got {tag_keys!r}")
        self._keys = tuple(keys)
        self._defaults: dict[str, str] = {}
        self._definition = Series(name, self.kind, description, {})

    def set_default_tags(self, default_tags: Mapping[str, str]) -> Metric:
        """Tags for when none are given; the metric itself."""
        self._defaults = self._checked(default_tags)
        return self

    @property
    def info(self) -> dict[str, object]:
        """Its name, description, tags' names and default tags."""
        return {
            "name": self._definition.name,
            "description": self._definition.description,
            "tag_keys": self._keys,
            "default_tags": dict(self._defaults),
        }

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self._definition, self._keys, self._defaults)

    def _tags(self, tags: Mapping[str, str] | None) -> dict[str, str]:
        whole = {**self._defaults, **(self._checked(tags) if tags else {})}
        missing = [key for key in self._keys if key not in whole]
        if missing:
            raise ValueError(f"metric {self._definition.name!r} lacks a value for the tags {missing}")
        return whole

    def _checked(self, tags: Mapping[str, str]) -> dict[str, str]:
        for key, value in tags.items():
            if key not in self._keys:
                raise ValueError(f"{key!r} is not a tag of {self._definition.name!r}, which has {self._keys}")
            if not isinstance(value, str):
                raise TypeError(f"the tag {key!r} must be a string, but got {value!r}")
        return dict(tags)


class Counter(Metric):
    """A number that only grows.

    >>> served = Counter("served_total", "Requests that were answered.", tag_keys=("route",))
    >>> served.inc(tags={"route": "/"})
    """

    kind = COUNTER

    def inc(self, value: float = 1.0, tags: Mapping[str, str] | None = None) -> None:
        """Grows by more than 0."""
        if value <= 0:
            raise ValueError(f"a counter grows by more than 0, but got {value}")
        metrics_registry.add(self._definition, self._tags(tags), value)


class Gauge(Metric):
    """A number that goes up and down. Those of processes that live are added up, tag for tag.

    >>> depth = Gauge("queue_depth", "Requests that wait.")
    >>> depth.set(3)
    """

    kind = GAUGE

    def set(self, value: float, tags: Mapping[str, str] | None = None) -> None:
        """Replaces the value for these tags."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"value must be int or float, but got {value!r}")
        metrics_registry.put(self._definition, self._tags(tags), float(value))


class Histogram(Metric):
    """How often values lie between boundaries.

    >>> latency = Histogram("latency_ms", "From request to answer.", boundaries=[1, 10, 100])
    >>> latency.observe(7.5)
    """

    kind = HISTOGRAM

    def __init__(
        self,
        name: str,
        description: str = "",
        boundaries: Sequence[float] | None = None,
        tag_keys: Sequence[str] | None = None,
    ) -> None:
        super().__init__(name, description, tag_keys)
        bounds = list(DEFAULT_BOUNDARIES if boundaries is None else boundaries)
        if not bounds or any(bound <= 0 for bound in bounds) or sorted(set(bounds)) != bounds:
            raise ValueError(f"boundaries must be positive and grow, but got {boundaries!r}")
        self._definition.bounds = [float(bound) for bound in bounds]

    def observe(self, value: float, tags: Mapping[str, str] | None = None) -> None:
        """Counts a value in its bucket."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"value must be int or float, but got {value!r}")
        metrics_registry.observe(self._definition, self._tags(tags), float(value))


def _rebuild(cls: type[Metric], definition: Series, keys: tuple[str, ...], defaults: dict[str, str]) -> Metric:
    made = cls.__new__(cls)
    made._definition, made._keys, made._defaults = definition, keys, defaults
    return made
