"""Whether a canary is better than what runs: by how many of its requests failed, and how long they took. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from weft.library.checks import above, at_least, between
from weft.serve.latencies import Figures

JUDGE_S = 0.5
"""So often it is looked at."""
Look = tuple[Mapping[str, Figures], Mapping[str, Figures]]
"""Of one deployment: the figures of the replicas that run, and of the canary's."""


@dataclass(frozen=True)
class CanaryRule:
    """A canary that has answered `min_requests` is promoted, unless it fails more often or is slower than what runs.
    Then, or as soon as so many have failed, it is rolled back."""

    min_requests: int = 100
    more_failures: float = 0.01
    """So much larger the part of its requests that fail may be."""
    latency_ratio: float = 1.5
    """So many times as long 95 of 100 of its requests may take."""

    def __post_init__(self) -> None:
        at_least("min_requests", self.min_requests, 1)
        between("more_failures", self.more_failures, 0, 1)
        above("latency_ratio", self.latency_ratio)


@dataclass(frozen=True)
class Verdict:
    is_good: bool
    said: str
    """For people."""


@dataclass
class _Tally:
    served: int = 0
    failed: int = 0
    p95_s: float | None = None

    @property
    def part(self) -> float:
        return self.failed / self.served if self.served else 0.0


@dataclass
class Trial:
    """One canary, from its first look on: what replicas had answered before does not count."""

    rule: CanaryRule
    _first: dict[str, Figures] = field(default_factory=dict)

    def looked(self, looks: Iterable[Look]) -> Verdict | None:
        """A verdict once there is one: on each deployment that has a canary, and good only if all are."""
        verdicts = [self._judged(self._tally(old), self._tally(new, is_new=True)) for old, new in looks]
        bad = next((one for one in verdicts if one is not None and not one.is_good), None)
        return bad if bad is not None else verdicts[0] if verdicts and None not in verdicts else None

    def _tally(self, figures: Mapping[str, Figures], is_new: bool = False) -> _Tally:
        found = _Tally()
        for replica, one in figures.items():
            before = Figures(0, 0, None, None, None) if is_new else self._first.setdefault(replica, one)
            found.served += one.served - before.served
            found.failed += one.failed - before.failed
            if one.p95_s is not None:
                found.p95_s = max(found.p95_s or 0.0, one.p95_s)
        return found

    def _judged(self, old: _Tally, new: _Tally) -> Verdict | None:
        rule = self.rule
        allowed = old.part + rule.more_failures
        told = f"{new.failed} of its {new.served} requests failed, {old.failed} of {old.served} beside it"
        if new.failed > allowed * max(new.served, rule.min_requests):
            return Verdict(False, f"was rolled back: {told}")
        if new.served < rule.min_requests:
            return None
        if old.p95_s and new.p95_s is not None and new.p95_s > rule.latency_ratio * old.p95_s:
            times = f"95 of 100 took up to {new.p95_s:.3g} s, {old.p95_s:.3g} s beside it"
            return Verdict(False, f"was rolled back: {times}")
        return Verdict(True, f"was promoted: {told}")
