"""The table of submitted jobs: what is over stays so, and a stop ends in STOPPED."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from weft.jobs import submissions
from weft.jobs.submissions import Status, Submission, SubmissionTable

JOBS = st.sampled_from("abc")


def submission(name: str = "a", node: int = 0) -> Submission:
    return Submission(name, "true", {}, "", node, "n0", 1.0)


class Lives(RuleBasedStateMachine):
    """Any order of what clients, nodes and commands do."""

    def __init__(self) -> None:
        super().__init__()
        self.table = SubmissionTable()
        self.ends: dict[int, tuple[Status, int | None, float | None]] = {}
        self.now_s = 0.0

    @rule(name=JOBS, node=st.integers(0, 1))
    def submit(self, name: str, node: int) -> None:
        if name in self.table.by_id:
            with pytest.raises(ValueError, match="is taken"):
                self.table.submit(submission(name))
        else:
            self.table.submit(submission(name, node))

    @rule(name=JOBS)
    def start(self, name: str) -> None:
        self.table.started(name, 7)

    @rule(name=JOBS)
    def stop(self, name: str) -> None:
        if name in self.table.by_id:
            is_over = self.table.by_id[name].status.is_over
            assert self.table.asked_to_stop(name) is not is_over

    @rule(name=JOBS, code=st.sampled_from([0, 1, -9, None]))
    def end(self, name: str, code: int | None) -> None:
        self.now_s += 1
        self.table.ended(name, code, "", self.now_s)

    @rule(node=st.integers(0, 1))
    def lose(self, node: int) -> None:
        self.now_s += 1
        self.table.node_left(node, "it was switched off", self.now_s)
        assert not [one for one in self.table.by_id.values() if one.node == node and not one.status.is_over]

    @rule(name=JOBS)
    def delete(self, name: str) -> None:
        if name in self.table.by_id and self.table.by_id[name].status.is_over:
            self.ends.pop(id(self.table.delete(name)), None)

    @invariant()
    def holds(self) -> None:
        self.table.check()
        for one in self.table.by_id.values():
            if one.status.is_over:
                now = (one.status, one.exit_code, one.end_s)
                assert self.ends.setdefault(id(one), now) == now, "SUB-1"


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_a_running_job_can_not_be_deleted() -> None:
    table = SubmissionTable()
    table.submit(submission())
    table.started("a", 7)
    with pytest.raises(ValueError, match="stop it before"):
        table.delete("a")


def test_only_the_last_ones_that_are_over_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submissions, "REMEMBERED", 2)
    table = SubmissionTable()
    for name in "abcd":
        table.submit(submission(name))
    for name in "abc":
        table.ended(name, 0, "", 1.0)
    assert list(table.by_id) == ["b", "c", "d"]


@pytest.mark.parametrize("name", ["", "a\x1b[31mb", "a\nb", "a/../b", "a/b", "a\u202eb", "x" * 201])
def test_an_id_that_would_do_something_to_a_terminal_or_a_path_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="all of them visible"):
        SubmissionTable().submit(submission(name))


@pytest.mark.parametrize("name", [".", "..", ".hidden", "packages"])
def test_a_job_is_not_called_like_a_folder_that_is_not_its_own(name: str) -> None:
    """With the files of `packages`, all that was uploaded for other jobs would go."""
    table = SubmissionTable()
    with pytest.raises(ValueError, match="must not be 'packages' nor begin with"):
        table.submit(submission(name))
    assert not table.by_id
