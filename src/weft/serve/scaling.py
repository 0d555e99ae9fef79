"""How many replicas a deployment should have: by what is under way, by times, by the hour, by a function. Pure."""

from __future__ import annotations

import datetime
import math
import zoneinfo
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from weft.library.checks import above, at_least, is_number
from weft.library.keywords import answers_keywords

STEADY = 0.7
"""From this part of a target on, up to all of it, replicas stay as many as they are."""
LARGEST_STEP = 2.0
"""At once, replicas are at most doubled or halved for the sake of a time: it shows only later what that has changed."""
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


@dataclass(frozen=True)
class ScalingView:
    """What is known of a deployment when it is decided how many replicas it should have."""

    replicas: int
    """That it should have now."""
    ongoing: int = 0
    waiting: int = 0
    latency_s: float | None = None
    """The 95th percentile of the slowest replica lately; None where none has answered lately."""
    answers_per_s: float = 0.0
    time_s: float = 0.0
    """Of day, in seconds since 1970."""

    @property
    def queue_s(self) -> float:
        """How long the last of those that wait will have waited, by the pace at which requests are answered now."""
        if not self.waiting:
            return 0.0
        return self.waiting / self.answers_per_s if self.answers_per_s else math.inf


@dataclass(frozen=True)
class ScheduledReplicas:
    """At least so many replicas from one time of day to another; over midnight where the first is the later one.

    >>> office = ScheduledReplicas("08:00", "20:00", min_replicas=4, days="mon-fri", timezone="UTC")
    >>> office.applies_at(0.0), office.applies_at(9 * 3600.0)  # the first of January 1970 was a Thursday
    (False, True)
    """

    start: str
    end: str
    min_replicas: int
    days: str = "mon-sun"
    """Such as "mon-fri" or "sat,sun"; of the time at which it starts."""
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        at_least("min_replicas", self.min_replicas, 0)
        for name in ("start", "end"):
            try:
                datetime.time.fromisoformat(getattr(self, name))
            except (TypeError, ValueError):
                raise ValueError(f"{name} must be a time such as '08:00', but got {getattr(self, name)!r}") from None
        _days(self.days)
        try:
            zoneinfo.ZoneInfo(self.timezone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, TypeError):
            raise ValueError(f"timezone must be one such as 'Europe/Paris', but got {self.timezone!r}") from None

    def applies_at(self, time_s: float) -> bool:
        """Whether it is one of its hours then, in seconds since 1970."""
        here = datetime.datetime.fromtimestamp(time_s, zoneinfo.ZoneInfo(self.timezone))
        start, end = datetime.time.fromisoformat(self.start), datetime.time.fromisoformat(self.end)
        now, days = here.time(), _days(self.days)
        if start <= end:
            return here.weekday() in days and start <= now < end
        return (now >= start and here.weekday() in days) or (now < end and (here.weekday() - 1) % 7 in days)


def _days(text: str) -> frozenset[int]:
    """
    >>> sorted(_days("sat-mon")), sorted(_days("tue,thu"))
    ([0, 5, 6], [1, 3])
    """
    found: set[int] = set()
    for part in text.lower().replace(" ", "").split(","):
        first, _, last = part.partition("-")
        if first not in _DAYS or (last or first) not in _DAYS:
            raise ValueError(f"days must be such as 'mon-fri' or 'sat,sun', but got {text!r}")
        begin, end = _DAYS.index(first), _DAYS.index(last or first)
        found |= {day % 7 for day in range(begin, end + 1 if end >= begin else end + 8)}
    return frozenset(found)


@answers_keywords(min="write min_replicas=...", max="write max_replicas=...")
@dataclass(frozen=True)
class AutoscalingConfig:
    """How many replicas there are. Of the targets that are given, the one that wants most counts.

    >>> AutoscalingConfig(max_replicas=4, target_ongoing_requests=2).wanted(ScalingView(replicas=1, ongoing=5))
    3
    >>> AutoscalingConfig(max_replicas=9, target_latency_s=0.1).wanted(ScalingView(2, ongoing=4, latency_s=0.15))
    3
    """

    min_replicas: int = 1
    max_replicas: int = 1
    initial_replicas: int | None = None
    target_ongoing_requests: float | None = None
    """Requests under way or waiting for each replica; 2 where nothing else is given to scale by."""
    target_latency_s: float | None = None
    """What 95 of 100 requests should take at most, at each replica."""
    target_queue_s: float | None = None
    """How long a request should wait at most before a replica takes it."""
    policy: Callable[[ScalingView], float] | None = None
    """Instead of targets: how many there should be."""
    schedule: tuple[ScheduledReplicas, ...] = ()
    """At least so many at these times, within `max_replicas`."""
    upscale_delay_s: float = 1.0
    downscale_delay_s: float = 30.0

    def __post_init__(self) -> None:
        _whole("min_replicas", self.min_replicas, 0)
        _whole("max_replicas", self.max_replicas, max(1, self.min_replicas))
        if self.initial_replicas is not None:
            _whole("initial_replicas", self.initial_replicas, self.min_replicas)
        _whole("upscale_delay_s", self.upscale_delay_s, 0)
        _whole("downscale_delay_s", self.downscale_delay_s, 0)
        targets = (self.target_ongoing_requests, self.target_latency_s, self.target_queue_s)
        if self.policy is None and targets == (None, None, None):
            object.__setattr__(self, "target_ongoing_requests", 2.0)
        for name in ("target_ongoing_requests", "target_latency_s", "target_queue_s"):
            if (value := getattr(self, name)) is not None:
                above(name, value)
        if self.policy is not None and (not callable(self.policy) or any(one is not None for one in targets)):
            raise TypeError("a policy is a function of a ScalingView, and stands in place of targets")
        given = [ScheduledReplicas(**one) if isinstance(one, Mapping) else one for one in self.schedule]
        object.__setattr__(self, "schedule", tuple(given))

    def wanted(self, view: ScalingView) -> int:
        """How many there should be now. Raises what a policy raises."""
        count = self._by_policy(view) if self.policy is not None else self._by_targets(view)
        least = max([self.min_replicas, *(one.min_replicas for one in self.schedule if one.applies_at(view.time_s))])
        return min(max(count, least), self.max_replicas)

    def _by_policy(self, view: ScalingView) -> int:
        assert self.policy is not None
        count: float = self.policy(view)
        if not is_number(count) or not math.isfinite(count):
            raise TypeError(f"an autoscaling policy must return a number of replicas, but got {count!r}")
        return math.ceil(count)

    def _by_targets(self, view: ScalingView) -> int:
        wishes = [0]
        if self.target_ongoing_requests is not None:
            wishes.append(math.ceil((view.ongoing + view.waiting) / self.target_ongoing_requests))
        if self.target_latency_s is not None:
            wishes.append(_for_time(view, view.latency_s, self.target_latency_s))
        if self.target_queue_s is not None:
            is_busy = view.ongoing >= STEADY * view.replicas
            queue_s = view.queue_s if view.waiting else self.target_queue_s * STEADY if is_busy else 0.0
            wishes.append(_for_time(view, queue_s, self.target_queue_s))
        return max(wishes)

    @property
    def first(self) -> int:
        """How many there are to begin with."""
        return self.min_replicas if self.initial_replicas is None else self.initial_replicas


def _for_time(view: ScalingView, found_s: float | None, target_s: float) -> int:
    """As many as bring a time to its target, if it is inverse to their number; within one step."""
    if not view.ongoing and not view.waiting:
        return 0
    if not view.replicas:
        return 1
    if found_s is None or STEADY * target_s <= found_s <= target_s:
        return view.replicas
    return max(1, math.ceil(view.replicas * min(max(found_s / target_s, 1 / LARGEST_STEP), LARGEST_STEP)))


def _whole(name: str, value: float, least: float) -> None:
    if not is_number(value):
        raise TypeError(f"{name} must be a number, but got {value!r}")
    at_least(name, value, least)
