"""Which chain of tasks a run took its time for, and the page that shows a run."""

from __future__ import annotations

from pathlib import Path

import pytest

import weft
from weft.observe.critical_path import DRIVER, RUNS, WAITS, History, Run, Wait, path
from weft.observe.report_page import MOST_SLICES, page

DRIVER_PROCESS = ("node", 1)


def ran(
    history: History, name: str, submitted: float, begun: float, ended: float, pid: int = 2, **more: object
) -> bytes:
    identity = name.encode().ljust(16, b"\0")
    run = Run(identity, name, submitter=DRIVER_PROCESS, submitted_s=submitted, process=("node", pid), begun_s=begun)
    run.ended_s, run.status = ended, "ok"
    for key, value in more.items():
        setattr(run, key, value)
    history.runs[identity] = run
    return identity


def told(history: History) -> list[tuple[str, str, float]]:
    return [(step.name, step.what, round(step.for_s, 3)) for step in path(history)]


def test_nothing_that_ran_has_no_path() -> None:
    assert path(History()) == []


def test_the_last_input_is_what_a_task_waited_for() -> None:
    history = History()
    short = ran(history, "short", 0, 1, 2, pid=3)
    long = ran(history, "long", 0, 1, 5)
    ran(history, "sum", 0.5, 5.5, 6, uses=[short, long], inputs=2)
    assert told(history) == [("long", WAITS, 1), ("long", RUNS, 4), ("sum", WAITS, 0.5), ("sum", RUNS, 0.5)]


def test_an_input_that_is_not_recorded_is_the_last_that_came() -> None:
    history = History()
    first = ran(history, "first", 0, 1, 2, pid=3)
    ran(history, "last of many", 0, 1, 5)
    ran(history, "sum", 0.5, 5.5, 6, uses=[first], inputs=20)
    assert [name for name, _, _ in told(history)] == ["last of many", "last of many", "sum", "sum"]


def test_a_task_that_waits_for_others_has_them_on_its_path() -> None:
    history = History()
    outer = ran(history, "outer", 0, 1, 10, pid=2)
    inner = ran(history, "inner", 2, 3, 8, pid=3, parent=outer, submitter=("node", 2))
    history.waits["node", 2] = [Wait(8.5, 2.5, inner)]
    assert told(history) == [
        ("outer", WAITS, 1), ("outer", RUNS, 1), ("inner", WAITS, 1), ("inner", RUNS, 5), ("outer", RUNS, 1.5)
    ]  # fmt: skip


def test_what_a_driver_did_between_two_tasks_is_on_the_path() -> None:
    history = History()
    one = ran(history, "one", 0, 0, 2)
    ran(history, "two", 5, 5, 6)
    history.waits[DRIVER_PROCESS] = [Wait(2, 0, one)]
    assert told(history) == [("one", RUNS, 2), (DRIVER, RUNS, 3), ("two", RUNS, 1)]


def test_a_wait_for_what_was_there_already_is_no_cause() -> None:
    history = History()
    one = ran(history, "one", 0, 0, 1)
    ran(history, "two", 5, 5, 6)
    history.waits[DRIVER_PROCESS] = [Wait(3, 2, one)]
    assert told(history) == [("two", RUNS, 1)]


def test_names_and_errors_of_others_are_text_on_the_page() -> None:
    history = History()
    ran(history, "<script>alert(1)</script>", 0, 0, 1)
    error = {"name": "<b>", "traceback": "ValueError: <i>", "error_type": "ValueError"}
    waits = {"name": "<u>", "state": "PENDING_NODE_ASSIGNMENT", "why_pending": "it asks for 2 <CPU>"}
    made = page("<title>", history, [error], [waits], [{}])
    assert not any(tag in made for tag in ("<script", "<b>", "<i>", "<u>", "<CPU>", "<h1><title>"))
    assert "&lt;script&gt;" in made and "2 &lt;CPU&gt;" in made


def test_a_long_run_is_a_page_of_bounded_size_that_says_what_it_lacks() -> None:
    history = History(dropped=7)
    for number in range(MOST_SLICES + 500):
        ran(history, f"task {number}", number, number, number + 1)
    made = page("many", history, [], [], [{}])
    assert made.count("<rect") == MOST_SLICES
    assert "500 shorter ones are left out" in made and "7 events gave way" in made


@pytest.mark.usefixtures("weft_session")
def test_a_report_shows_the_part_of_a_program_that_it_stands_around(tmp_path: Path) -> None:
    @weft.remote
    def earlier() -> None: ...

    @weft.remote
    def inside(x: int) -> int:
        if x == 3:
            raise ValueError("the third")
        return x

    weft.get(earlier.remote())
    with weft.report(tmp_path / "run.html"):
        assert "earlier" in (tmp_path / "run.html").read_text()
        refs = [inside.remote(x) for x in range(6)]
        weft.wait(refs, num_returns=6)
        weft.wait([inside.remote(refs[1])])
    made = (tmp_path / "run.html").read_text()
    assert "7 tasks and calls" in made and "inside" in made and "earlier" not in made
    assert "ValueError: the third" in made and "The chain of" in made
