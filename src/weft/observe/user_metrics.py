"""Metrics that user code has defined: what each process sends, and how a node adds them up.

Pure. A series is a metric and one value for each of its tags. Counters and histograms of processes that have ended
still count; their gauges do not.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
MOST_SERIES = 10_000


class Series(msgspec.Struct):
    """One series of one process, since the process began."""

    name: str
    kind: str
    description: str
    tags: dict[str, str]
    value: float = 0.0
    """Of a counter or gauge; the sum of a histogram's observations."""
    bounds: list[float] = []
    counts: list[int] = []
    """Of a histogram: observations up to each bound, not added up; one more for what lies beyond the last."""

    @property
    def key(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        return self.name, tuple(sorted(self.tags.items()))


class Merged:
    """The metrics of all processes that a node has had."""

    def __init__(self) -> None:
        self._living: dict[tuple[int, int], list[Series]] = {}
        self._ended: dict[tuple[str, tuple[tuple[str, str], ...]], Series] = {}

    def came(self, process: tuple[int, int], series: list[Series]) -> None:
        self._living[process] = series[:MOST_SERIES]

    def ended(self, process: tuple[int, int]) -> None:
        for one in self._living.pop(process, ()):
            if one.kind != GAUGE and len(self._ended) < MOST_SERIES:
                _add(self._ended, one)

    def totals(self) -> list[Series]:
        """Gauges of several processes with the same tags are added up as well."""
        sums: dict[tuple[str, tuple[tuple[str, str], ...]], Series] = {}
        for one in [*self._ended.values(), *(one for found in self._living.values() for one in found)]:
            _add(sums, one)
        return list(sums.values())


def _add(sums: dict[tuple[str, tuple[tuple[str, str], ...]], Series], one: Series) -> None:
    known = sums.get(one.key)
    if known is None:
        sums[one.key] = msgspec.structs.replace(one, counts=list(one.counts))
        return
    if known.kind != one.kind or known.bounds != one.bounds:
        return  # two definitions of one name: the first counts
    known.value += one.value
    known.counts = [a + b for a, b in zip(known.counts, one.counts, strict=True)]


# ---- as Prometheus reads it ------------------------------------------------------------------------


class Sample(msgspec.Struct, frozen=True):
    """One number of a metric; `suffix` as in `_bucket`."""

    tags: dict[str, str]
    value: float
    suffix: str = ""


def exposition(metrics: Iterable[tuple[str, str, str, list[Sample]]]) -> str:
    """The text format of (name, kind, help, samples).

    >>> print(exposition([("weft_x", "gauge", "An x.", [Sample({"a": 'b"c'}, 2)])]), end="")
    # HELP weft_x An x.
    # TYPE weft_x gauge
    weft_x{a="b\\"c"} 2
    """
    lines = []
    for name, kind, text, samples in metrics:
        lines.append(f"# HELP {name} {_escaped(text)}")
        lines.append(f"# TYPE {name} {kind}")
        for sample in samples:
            tags = ",".join(f'{_tag(key)}="{_escaped(value, True)}"' for key, value in sample.tags.items())
            lines.append(f"{name}{sample.suffix}{'{' + tags + '}' if tags else ''} {_number(sample.value)}")
    return "".join(f"{line}\n" for line in lines)


def user_exposition(series: Iterable[Series], tags: dict[str, str]) -> list[tuple[str, str, str, list[Sample]]]:
    """As `exposition` wants them; `tags` are added to each."""
    found: dict[str, tuple[str, str, str, list[Sample]]] = {}
    for one in sorted(series, key=lambda one: one.key):
        name = metric_name(one.name)
        samples = found.setdefault(name, (name, one.kind, one.description, []))[3]
        everywhere = {**one.tags, **tags}
        if one.kind != HISTOGRAM:
            samples.append(Sample(everywhere, one.value))
            continue
        total = 0
        for bound, count in zip([*one.bounds, float("inf")], one.counts, strict=True):
            total += count
            samples.append(Sample({**everywhere, "le": _number(bound)}, total, "_bucket"))
        samples.append(Sample(everywhere, one.value, "_sum"))
        samples.append(Sample(everywhere, total, "_count"))
    return list(found.values())


def metric_name(name: str) -> str:
    """With what Prometheus does not allow in a name replaced.

    >>> metric_name("my.app requests")
    'my_app_requests'
    """
    kept = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "_:") else "_" for letter in name)
    return kept if kept[:1] and not kept[0].isdigit() else f"_{kept}"


def _tag(name: str) -> str:
    return metric_name(name).replace(":", "_")


def _escaped(text: str, in_quotes: bool = False) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
    return escaped.replace('"', '\\"') if in_quotes else escaped


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))
