"""Events and the trace that is made of them: pure, and that Python and C++ speak of the same bytes."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

import pytest

from weft.observe import event_records as ev
from weft.observe.collect import Reader
from weft.observe.event_records import Event, decode
from weft.observe.trace_file import SUBMIT_LANE, NodeEvents, trace

HEADER = (Path(__file__).resolve().parents[2] / "native" / "events.hpp").read_text()


def task_id(number: int) -> bytes:
    return struct.pack("<QQ", number, 7)


def event(kind: int, at_ns: int, duration_ns: int = 0, task: int = 1, pid: int = 10, **changes: object) -> Event:
    made = Event(at_ns, duration_ns, task_id(task), bytes(16), 0, pid, kind, 0, 0, 1, "f")
    return made._replace(**changes)  # type: ignore[arg-type]


def test_kinds_have_the_same_numbers_in_python_and_cpp() -> None:
    body = re.search(r"enum class EventKind[^{]*\{(.*?)\};", HEADER, re.DOTALL)
    assert body
    in_cpp = {name: int(number) for name, number in re.findall(r"(\w+) = (\d+)", body[1])}
    assert in_cpp == {name: getattr(ev, name) for name in in_cpp} and len(in_cpp) == 9


def test_tallies_have_the_same_order_in_python_and_cpp() -> None:
    body = re.search(r"enum class Tally[^{]*\{(.*?)\};", HEADER, re.DOTALL)
    assert body
    assert (*ev.TALLIES, "count") == tuple(re.findall(r"\w+", body[1]))


def test_an_event_is_read_as_it_was_written() -> None:
    fixed = struct.pack("<qq16s16sQIBBHII", 5, 6, task_id(1), task_id(2), 7, 8, ev.RAN, 1, 2, 3, 1)
    (found,) = decode(fixed + b"f" + bytes(55))
    assert found == Event(5, 6, task_id(1), task_id(2), 7, 8, ev.RAN, 1, 2, 3, "f")


def test_a_name_that_was_cut_ends_in_an_ellipsis_even_within_a_letter() -> None:
    fixed = struct.pack("<qq16s16sQIBBHII", 5, 6, task_id(1), task_id(2), 7, 8, ev.RAN, 1, 2, 3, 200)
    (found,) = decode(fixed + ("x" * 55 + "é").encode()[:56])
    assert found.name == "x" * 55 + "…"


@pytest.mark.parametrize(("variable", "number"), [(None, 8192), ("", 8192), ("0", 0), ("100", 100)])
def test_the_variable_says_how_many_are_kept(variable: str | None, number: int) -> None:
    assert ev.kept(variable) == number


@pytest.mark.parametrize("variable", ["many", "-1", "9999999999"])
def test_a_variable_that_makes_no_sense_is_refused(variable: str) -> None:
    with pytest.raises(ValueError, match="WEFT_EVENTS must be a number"):
        ev.kept(variable)


def slices(made: dict[str, object]) -> list[dict[str, object]]:
    rows = made["traceEvents"]
    assert isinstance(rows, list)
    return [row for row in rows if row["ph"] == "X"]


def test_arrows_lead_from_a_submission_to_its_run_and_on_to_the_get() -> None:
    result = ev.task_of(task_id(1))[:12] + b"\x01\0\0\0"
    made = trace(
        [
            NodeEvents(
                "n1",
                0,
                [
                    event(ev.SUBMITTED, 1000),
                    event(ev.RAN, 2000, 500, task=1, pid=11),
                    event(ev.WAITED, 1500, 1600, task=0, other=result),
                ],
            )
        ]
    )
    json.dumps(made)
    arrows = [(row["ph"], row["name"], row["pid"], row["ts"]) for row in made["traceEvents"] if row["ph"] in "sf"]
    assert arrows == [
        ("s", "submit", 1, 0.0),
        ("f", "submit", 2, 1.0),
        ("s", "result", 2, 1.5),
        ("f", "result", 1, 2.1),
    ]


def test_calls_that_overlap_lie_on_lanes_of_their_own_and_nested_ones_on_one() -> None:
    rows = slices(
        trace(
            [
                NodeEvents(
                    "n1",
                    0,
                    [
                        event(ev.RAN, 0, 100, task=1),
                        event(ev.WAITED, 10, 50, task=1),
                        event(ev.RAN, 50, 100, task=2),
                        event(ev.RAN, 200, 100, task=3),
                    ],
                )
            ]
        )
    )
    assert [row["tid"] for row in rows] == [0, 0, 1, 0]


def test_clocks_of_nodes_are_brought_together() -> None:
    made = trace([NodeEvents("n1", 1000, [event(ev.RAN, 5000, 1)]), NodeEvents("n2", 4000, [event(ev.RAN, 1000, 1)])])
    assert [row["ts"] for row in slices(made)] == [1.0, 0.0]


def test_an_empty_cluster_has_an_empty_trace() -> None:
    assert trace([])["otherData"] == {"events": 0, "dropped": 0, "start_s": 0.0}


class Answers:
    """Answers to a reader, one after the other."""

    def __init__(self, *answers: list[tuple[int, int, int, int, bytes]]) -> None:
        self.asked: list[object] = []
        self._answers = list(answers)

    def ask(self, method: str, timeout_s: float | None = None, **params: object) -> object:
        self.asked.append(json.loads(json.dumps(params["since"])))
        slots = self._answers.pop(0)
        return [{"node_id": "n1", "time_ns": 10, "clock_ns": 4, "slots": slots, "titles": {"10": "driver"}}]


def test_a_reader_asks_for_what_is_new_and_counts_what_it_missed_or_was_skipped() -> None:
    raw = struct.pack("<qq16s16sQIBBHII56s", 0, 0, task_id(1), task_id(1), 0, 10, ev.SUBMITTED, 0, 0, 0, 1, b"f")
    client = Answers([(3, 0, 5, 7, raw * 2)], [(3, 4, 9, 10, raw)])
    reader = Reader(client)
    (first,) = reader.read()
    assert (len(first.events), first.missed, first.offset_ns, first.titles) == (2, 5, 6, {10: "driver"})
    (second,) = reader.read()
    assert (len(second.events), second.missed) == (1, 2 + 4)
    assert client.asked == [{}, {"n1": {"3": 7}}]
    assert SUBMIT_LANE not in (0, 1)
