"""The pure parts of streams: watermarks, windows and barriers, against plain models of what they mean."""

from __future__ import annotations

import math
from collections import Counter, deque
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.data.streams import subtask
from weft.data.streams.alignment import Alignment, Barrier, End, Ended, Process, Snapshot
from weft.data.streams.batch import Batch
from weft.data.streams.graph import Divider, stable_hash
from weft.data.streams.watermarks import BEGINNING, SourceWatermark, Watermarks
from weft.data.streams.windows import Fold, Session, Sliding, Tumbling, windows_of

COUNT = Fold(int, lambda count, value: count + 1, lambda left, right: left + right)
EVENTS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 100)), max_size=60)


# ---- watermarks -------------------------------------------------------------------------------------


@given(steps=st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 50)), max_size=50))
def test_an_operators_watermark_is_the_least_of_its_inputs_and_never_goes_back(steps: list[tuple[str, int]]) -> None:
    marks = Watermarks.of(["x", "y", "z"])
    model = dict.fromkeys("xyz", BEGINNING)
    last = BEGINNING
    for channel, mark in steps:
        model[channel] = max(model[channel], mark)
        moved = marks.advanced(channel, mark)
        assert marks.current == min(model.values())
        assert moved is None or moved > last
        last = marks.current


def test_an_idle_input_holds_nobody_back_until_it_speaks_again() -> None:
    marks = Watermarks.of(["x", "y"])
    assert marks.advanced("x", 10) is None
    assert marks.fell_idle("y") == 10
    assert marks.advanced("x", 20) == 20
    assert marks.advanced("y", 5) is None
    assert marks.advanced("x", 30) is None and marks.current == 20


def test_a_sources_watermark_stays_behind_by_the_delay() -> None:
    mark = SourceWatermark(max_delay_s=3)
    assert [mark.observe(time) for time in (10, 8, 15)] == [7, 7, 12]


# ---- windows ----------------------------------------------------------------------------------------


def run_windows(
    assigner: Any, events: list[tuple[str, int]], lateness: float, marks: list[int]
) -> tuple[Counter[Any], int]:
    """Events one by one; after each the watermark of the same position, if it is not further back."""
    windows = windows_of(assigner, COUNT, lateness)
    found: Counter[Any] = Counter()
    for number, (key, time) in enumerate(events):
        windows.add([key], [1], [float(time)])
        for done_key, window, value in windows.advance(float(marks[number % len(marks)])) if marks else ():
            assert (done_key, window) not in found, "a window gave its result twice"
            found[done_key, window] = value
    for done_key, window, value in windows.advance(math.inf):
        assert (done_key, window) not in found
        found[done_key, window] = value
    return found, windows.late


@settings(max_examples=100, deadline=None)
@given(events=EVENTS, size=st.integers(1, 20), slide=st.integers(1, 20))
def test_windows_count_what_lies_in_them(events: list[tuple[str, int]], size: int, slide: int) -> None:
    for assigner in (Tumbling(size), Sliding(size, slide)):
        found, late = run_windows(assigner, events, 0, [])
        for (key, window), value in found.items():
            assert value == sum(1 for other, time in events if other == key and window.start <= time < window.end)
            assert window.end - window.start == size
        if isinstance(assigner, Tumbling) or slide <= size:
            assert late == 0
            covered = {(key, time) for key, window in found for time in range(101) if window.start <= time < window.end}
            assert {(key, time) for key, time in events} <= covered


@settings(max_examples=100, deadline=None)
@given(events=EVENTS, gap=st.integers(1, 15))
def test_sessions_are_events_closer_than_the_gap(events: list[tuple[str, int]], gap: int) -> None:
    found, late = run_windows(Session(gap), events, 0, [])
    expected: Counter[Any] = Counter()
    for key in "abc":
        times = sorted(time for other, time in events if other == key)
        for number, time in enumerate(times):
            if number == 0 or time - times[number - 1] >= gap:
                start = time
            expected[key, start] += 1
    assert Counter({(key, window.start): value for (key, window), value in found.items()}) == expected
    assert late == 0


@settings(max_examples=100, deadline=None)
@given(
    events=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 100)), min_size=1, max_size=60),
    marks=st.lists(st.integers(0, 100), min_size=1, max_size=60),
    lateness=st.integers(0, 20),
)
def test_every_event_is_counted_once_or_late(events: list[tuple[str, int]], marks: list[int], lateness: int) -> None:
    for assigner in (Tumbling(10), Session(5)):
        found, late = run_windows(assigner, events, lateness, marks)
        assert sum(found.values()) + late == len(events)


def test_late_events_count_within_the_allowed_lateness() -> None:
    windows = windows_of(Tumbling(10), COUNT, 5)
    windows.add(["a"], [1], [3.0])
    assert windows.advance(14.0) == []
    windows.add(["a"], [1], [4.0])
    assert [(key, value) for key, _, value in windows.advance(15.0)] == [("a", 2)]
    windows.add(["a"], [1], [5.0])
    assert windows.advance(100.0) == [] and windows.late == 1


def test_wrong_windows_are_refused() -> None:
    with pytest.raises(ValueError, match="must be positive, but got 0"):
        Tumbling(0)
    with pytest.raises(ValueError, match="merge"):
        windows_of(Session(1), Fold(int, lambda count, value: count), 0)


@settings(max_examples=50, deadline=None)
@given(events=EVENTS, cut=st.integers(0, 60))
def test_restored_windows_go_on_as_if_nothing_had_happened(events: list[tuple[str, int]], cut: int) -> None:
    import pickle

    for assigner in (Tumbling(10), Sliding(10, 4), Session(7)):
        whole = windows_of(assigner, COUNT, 0)
        first = windows_of(assigner, COUNT, 0)
        for windows, part in ((whole, events), (first, events[:cut])):
            windows.add([k for k, _ in part], [1] * len(part), [float(t) for _, t in part])
        second = windows_of(assigner, COUNT, 0)
        second.restore(pickle.loads(pickle.dumps(first.snapshot())))
        rest = events[cut:]
        second.add([k for k, _ in rest], [1] * len(rest), [float(t) for _, t in rest])
        assert sorted(map(repr, second.advance(math.inf))) == sorted(map(repr, whole.advance(math.inf)))


# ---- barriers ---------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(
    lengths=st.lists(st.lists(st.integers(0, 4), min_size=3, max_size=3), min_size=1, max_size=4),
    order=st.randoms(use_true_random=False),
)
def test_a_snapshot_has_what_came_before_the_barrier_on_every_input(lengths: list[list[int]], order: Any) -> None:
    """Each input sends some items, a barrier, some items, a barrier, some items and its end, interleaved at random."""
    channels = [f"c{number}" for number in range(len(lengths))]
    queues = {}
    for channel, counts in zip(channels, lengths, strict=True):
        items: list[Any] = []
        for part, count in enumerate(counts):
            items += [(channel, part, number) for number in range(count)]
            items.append(Barrier(part + 1) if part < 2 else End())
        queues[channel] = deque(items)
    alignment = Alignment.of(channels)
    processed: list[Any] = []
    snapshots: list[int] = []
    ended = 0
    while any(queues.values()):
        channel = order.choice([name for name, items in queues.items() if items])
        for action in alignment.arrived(channel, queues[channel].popleft()):
            if isinstance(action, Process):
                assert action.item[1] == len(snapshots), "an item is on the wrong side of a snapshot"
                processed.append(action.item)
            elif isinstance(action, Snapshot):
                snapshots.append(action.number)
            elif isinstance(action, Ended):
                ended += 1
    assert snapshots == [1, 2] and ended == 1
    assert len(processed) == sum(map(sum, lengths)) == len(set(processed))
    for channel in channels:
        own = [item for item in processed if item[0] == channel]
        assert own == sorted(own)


# ---- dividing ---------------------------------------------------------------------------------------


@given(keys=st.lists(st.one_of(st.text(max_size=3), st.integers(0, 9)), max_size=40), count=st.integers(1, 4))
def test_events_of_a_key_go_to_one_place_and_none_is_lost(keys: list[Any], count: int) -> None:
    batch = Batch(list(range(len(keys))), [0.0] * len(keys), list(keys), 5.0)
    parts = Divider("key", count).divided(batch)
    seen: dict[Any, int] = {}
    values = []
    for place, part in enumerate(parts):
        for key, value in zip((part.keys or []) if part else [], part.values if part else [], strict=True):
            assert seen.setdefault(key, place) == place
            values.append(value)
    assert sorted(values) == list(range(len(keys)))


def test_a_keys_place_is_the_same_in_every_process() -> None:
    assert [stable_hash(key) for key in ("a", 1, ("a", 1))] == [3904355907, 2212294583, 2745452491]


# ---- back-pressure ----------------------------------------------------------------------------------


class Taker:
    """A subtask below, called at once instead of over there. The barrier of its other input comes when it has been
    asked so many times whether there is room."""

    def __init__(self, barrier_after: int) -> None:
        self._alignment = Alignment.of(["fast", "slow"])
        self._left = barrier_after
        self.taken: list[Any] = []
        self.most_held = 0
        self.receive = SimpleNamespace(remote=self._receive)
        self.held = SimpleNamespace(remote=self._held)

    def _receive(self, channel: str, item: Any) -> int:
        self.taken += [action.item for action in self._alignment.arrived(channel, item) if isinstance(action, Process)]
        self.most_held = max(self.most_held, self._alignment.held(channel))
        return self._alignment.held(channel)

    def _held(self, channel: str) -> int:
        self._left -= 1
        if self._left == 0:
            self._receive("slow", Barrier(1))
        return self._alignment.held(channel)


def test_who_sends_waits_while_what_it_sent_waits_for_a_barrier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subtask, "weft", SimpleNamespace(get=lambda value: value))
    taker = Taker(barrier_after=3)
    below = subtask.Below("forward", [taker], "fast")
    below.tell(Barrier(1))
    for number in range(200):
        below.send(Batch([number], [0.0], [None], 0.0))
    assert taker.most_held <= 2 * subtask.MOST_UNDER_WAY
    assert [value for batch in taker.taken for value in batch.values] == list(range(200))
