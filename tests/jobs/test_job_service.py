"""What the table of submitted jobs answers, and when: not before it would outlive the head."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from weft.engine.node.operations import Operations, Outcome, Pending
from weft.engine.state.cluster import NodeView
from weft.jobs.job_service import JobService
from weft.net.loop import Loop


class AnsweringNodes:
    """One other node that takes every order."""

    def ask_node(self, number: int, method: str, params: dict[str, Any]) -> Pending:
        done = Pending()
        done.resolve(None)
        return done

    def node_views(self) -> list[NodeView]:
        return []


class SlowStore:
    """Rows that are on their way until `keep` is called."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []

    def when_kept(self, call: Callable[[], None]) -> None:
        self._waiting.append(call)

    def keep(self) -> None:
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()


@pytest.fixture
def store() -> SlowStore:
    return SlowStore()


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.close()


@pytest.fixture
def jobs(loop: Loop, store: SlowStore, tmp_path: Path) -> Iterator[Operations]:
    operations = Operations()
    service = JobService(loop, operations, AnsweringNodes(), lambda: str(tmp_path), lambda: "")
    service.when_kept = store.when_kept
    try:
        yield operations
    finally:
        service.close()


def report(has_ended: bool) -> dict[str, Any]:
    return {"report": {"id": "job", "pid": 7, "has_ended": has_ended, "exit_code": 0, "message": ""}}


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("job_report", report(has_ended=False)),
        ("job_report", report(has_ended=True)),
        ("job_stop", {"id": "job"}),
        ("job_delete", {"id": "over"}),
    ],
    ids=["a start", "an end", "a stop", "a deletion"],
)
def test_a_change_is_answered_when_it_is_kept(
    jobs: Operations, store: SlowStore, method: str, params: dict[str, Any]
) -> None:
    for job in ("job", "over"):
        jobs.perform("job_submit", {"id": job, "entrypoint": "run", "number": 2, "node_id": "far"})
    ended = report(has_ended=True)
    ended["report"]["id"] = "over"
    jobs.perform("job_report", ended)
    store.keep()
    answers: list[Outcome] = []
    jobs.perform(method, params).then(answers.append)
    assert answers == [], "the head may die now, and its asker would not ask the next one"
    store.keep()
    assert [outcome.error_kind for outcome in answers] == [""]


def test_who_waits_for_a_job_is_told_its_end_when_that_is_kept(jobs: Operations, store: SlowStore) -> None:
    jobs.perform("job_submit", {"id": "job", "entrypoint": "run", "number": 2, "node_id": "far"})
    ends: list[Outcome] = []
    jobs.perform("job_wait", {"id": "job"}).then(ends.append)
    jobs.perform("job_report", report(has_ended=True))
    assert ends == []
    store.keep()
    assert ends[0].value["status"] == "SUCCEEDED"


def test_a_wait_without_end_or_number_is_refused_and_others_end(jobs: Operations, store: SlowStore, loop: Loop) -> None:
    jobs.perform("job_submit", {"id": "job", "entrypoint": "run", "number": 2, "node_id": "far"})
    answers: list[Outcome] = []
    jobs.perform("job_wait", {"id": "job", "wait_s": float("nan")}).then(answers.append)
    assert [outcome.error_kind for outcome in answers] == ["ValueError"]
    jobs.perform("job_wait", {"id": "job", "wait_s": -1}).then(answers.append)
    loop.run_once(0)
    assert answers[1].value["submission_id"] == "job"


def test_nobody_is_remembered_who_has_waited_in_vain(jobs: Operations, store: SlowStore, loop: Loop) -> None:
    jobs.perform("job_submit", {"id": "job", "entrypoint": "run", "number": 2, "node_id": "far"})
    waiting = [weakref.ref(jobs.perform("job_wait", {"id": "job", "wait_s": 0})) for _ in range(3)]
    loop.run_once(0)
    assert [one() for one in waiting] == [None] * 3


def test_who_looks_at_a_job_does_not_see_the_values_of_its_variables(jobs: Operations, store: SlowStore) -> None:
    env = '{"env_vars": {"API_KEY": "hunter2"}, "working_dir": "code"}'
    order = {"id": "job", "entrypoint": "run", "number": 2, "node_id": "far", "shown_env": env}
    jobs.perform("job_submit", order)
    seen: list[Outcome] = []
    for method, params in (("job_list", {}), ("job_info", {"id": "job"})):
        jobs.perform(method, params).then(seen.append)
    assert len(seen) == 2
    for outcome in seen:
        assert "hunter2" not in str(outcome.value)
        assert "API_KEY" in str(outcome.value)
