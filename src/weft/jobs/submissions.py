"""Jobs that were submitted: a command that runs as a driver on a node of the cluster, and what became of it.

Pure: no I/O, no clock; times come in with the events. The head keeps the table; the node of a job runs its command
(`job_service`). Only the last `REMEMBERED` of those that are over are kept.

    PENDING -> RUNNING -> SUCCEEDED | FAILED | STOPPED
       '---------------------^ (it could not be started, or was stopped before)

Invariants (`SubmissionTable.check`):
    SUB-1  what is over stays as it ended: its status, exit code and end time never change again.
    SUB-2  a submission has an end time if and only if it is over.
    SUB-3  a stop that was asked for ends in STOPPED, unless the command had ended by itself before.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

REMEMBERED = 1000


class Status(str, enum.Enum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"

    @property
    def is_over(self) -> bool:
        return self in (Status.STOPPED, Status.SUCCEEDED, Status.FAILED)


class Submission:
    """One command and its life."""

    __slots__ = (
        "end_s", "entrypoint", "exit_code", "id", "is_stopping", "message", "metadata", "node", "node_id", "pid",
        "runtime_env", "start_s", "status",
    )  # fmt: skip

    def __init__(
        self,
        submission_id: str,
        entrypoint: str,
        metadata: Mapping[str, str],
        runtime_env: str,
        node: int,
        node_id: str,
        now_s: float,
    ) -> None:
        self.id = submission_id
        self.entrypoint = entrypoint
        self.metadata = dict(metadata)
        self.runtime_env = runtime_env
        """As its submitter wrote it, in JSON; empty for none."""
        self.node = node
        self.node_id = node_id
        self.status = Status.PENDING
        self.message = "its command has not been started yet"
        self.pid = 0
        self.exit_code: int | None = None
        self.start_s = now_s
        self.end_s: float | None = None
        self.is_stopping = False

    def row(self) -> dict[str, object]:
        """All of it, as it is kept."""
        return {**{name: getattr(self, name) for name in self.__slots__}, "status": self.status.value}

    @staticmethod
    def from_row(row: Mapping[str, Any]) -> Submission:
        made = Submission("", "", {}, "", 0, "", 0.0)
        for name, value in row.items():
            setattr(made, name, Status(value) if name == "status" else value)
        return made


LONGEST_ID = 200
UPLOADS = "packages"
"""The folder of what was uploaded for jobs, beside those of the jobs."""


class SubmissionTable:
    """All of a cluster, those that are over included."""

    def __init__(self) -> None:
        self.by_id: dict[str, Submission] = {}

    def submit(self, submission: Submission) -> None:
        """ValueError when the id is taken, or would do something to a terminal or a path."""
        if submission.id == UPLOADS or submission.id.startswith("."):
            raise ValueError(f"a submission id must not be {UPLOADS!r} nor begin with '.', but got {submission.id!r}")
        if not 1 <= len(submission.id) <= LONGEST_ID or not submission.id.isprintable() or "/" in submission.id:
            raise ValueError(
                f"a submission id must have 1 to {LONGEST_ID} characters, all of them visible and no '/', but got "
                f"{submission.id[:LONGEST_ID]!r}"
            )
        if submission.id in self.by_id:
            raise ValueError(
                f"the submission id {submission.id!r} is taken by a job that is "
                f"{self.by_id[submission.id].status.value}: choose another, or delete that job"
            )
        self.by_id[submission.id] = submission

    def find(self, submission_id: str) -> Submission:
        """LookupError when there is none."""
        if (found := self.by_id.get(submission_id)) is None:
            raise LookupError(f"there is no job {submission_id!r} in this cluster; `weft job list` shows all")
        return found

    def started(self, submission_id: str, pid: int) -> None:
        found = self.by_id.get(submission_id)
        if found is not None and found.status is Status.PENDING:
            found.status, found.pid = Status.RUNNING, pid
            found.message = "its command runs"

    def asked_to_stop(self, submission_id: str) -> bool:
        """Whether there is something to stop."""
        found = self.find(submission_id)
        if found.status.is_over:
            return False
        found.is_stopping = True
        found.message = "it has been asked to stop"
        return True

    def ended(self, submission_id: str, exit_code: int | None, message: str, now_s: float) -> Submission | None:
        """Its command has ended (negative: by that signal), or could not be run: then there is no code."""
        found = self.by_id.get(submission_id)
        if found is None or found.status.is_over:
            return None
        found.exit_code, found.end_s = exit_code, now_s
        if found.is_stopping and exit_code != 0:
            found.status, found.message = Status.STOPPED, "it was stopped"
        elif exit_code == 0:
            found.status, found.message = Status.SUCCEEDED, "its command ended with exit code 0"
        else:
            found.status, found.message = Status.FAILED, message or f"its command ended with exit code {exit_code}"
        self._forget_old()
        return found

    def node_left(self, node: int, reason: str, now_s: float) -> list[Submission]:
        """Those that ended with their node."""
        return [
            found
            for found in list(self.by_id.values())
            if found.node == node
            and not found.status.is_over
            and self.ended(found.id, None, f"the node that ran its command is gone: {reason}", now_s)
        ]

    def delete(self, submission_id: str) -> Submission:
        """ValueError while it runs."""
        found = self.find(submission_id)
        if not found.status.is_over:
            raise ValueError(f"job {submission_id!r} is {found.status.value}: stop it before it is deleted")
        return self.by_id.pop(submission_id)

    def _forget_old(self) -> None:
        over = [found for found in self.by_id.values() if found.status.is_over]
        for found in over[: max(0, len(over) - REMEMBERED)]:
            del self.by_id[found.id]

    def check(self) -> None:
        """Assert the invariants."""
        for found in self.by_id.values():
            assert (found.end_s is not None) == found.status.is_over, f"SUB-2: {found.id}"
            if found.is_stopping and found.status.is_over:
                assert found.status is Status.STOPPED or found.exit_code == 0, f"SUB-3: {found.id}"
