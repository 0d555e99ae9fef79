"""Submitted jobs as operations of the node daemon: the head keeps the table, every node runs what it is told to.

Runs in the daemon's thread, and is made at the first operation that asks for it.

Asked by clients, answered by the head:
    job_place, job_upload, job_submit, job_stop, job_log, job_wait, job_list, job_info, job_delete
Asked by the head of the node of a job, and what that says back:
    job_keep, job_run, job_halt, job_read, job_drop; job_report
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from weft.engine.node.operations import Method, Operations, Outcome, Pending
from weft.engine.state.cluster import NodeView, matches_labels
from weft.engine.state.resources import to_amounts
from weft.jobs.job_runner import Report, Runner, RunOrder
from weft.jobs.submissions import Submission, SubmissionTable
from weft.net.loop import Loop

LOG_BYTES = 1 << 20
WAIT_S = 20.0
"""No answer takes longer: who waits asks again."""
SAY_AGAIN_S = 1.0
_encode = msgspec.msgpack.Encoder().encode
_LETTERS = "abcdefghjkmnpqrstuvwxyzABCDEFGHJKMNPQRSTUVWXYZ23456789"


class Nodes(Protocol):
    """What the service must know of the cluster."""

    def ask_node(self, number: int, method: str, params: dict[str, Any]) -> Pending:
        """An operation of that node; of this one too."""

    def node_views(self) -> list[NodeView]:
        """All that live and take work, this one first."""


class JobService:
    """One daemon's part."""

    def __init__(
        self,
        loop: Loop,
        operations: Operations,
        nodes: Nodes,
        folder: Callable[[], str],
        address: Callable[[], str],
    ) -> None:
        self.table = SubmissionTable()
        self.runner = Runner(loop, folder, address)
        self._loop = loop
        self._operations = operations
        self._nodes = nodes
        self._waiting: dict[str, list[Pending]] = {}
        self._is_closed = False
        self.runner.on_report = lambda report: self._say(report)
        self.keep: Callable[[str, bytes | None], None] = lambda submission, row: None
        """In a cluster: write the row of a job (None: delete it) to the control store."""
        self.when_kept: Callable[[Callable[[], None]], None] = lambda call: call()
        self._kept: set[str] = set()
        of_head: tuple[Method, ...] = (
            self.job_place,
            self.job_upload,
            self.job_submit,
            self.job_stop,
            self.job_log,
            self.job_wait,
            self.job_list,
            self.job_info,
            self.job_delete,
            self.job_report,
        )
        of_node: tuple[Method, ...] = (self.job_keep, self.job_run, self.job_halt, self.job_read, self.job_drop)
        for method in (*of_head, *of_node):
            operations.offer(method.__name__, method, of_head=method in of_head)

    def close(self) -> None:
        self._is_closed = True
        self.runner.close()

    def node_left(self, number: int, reason: str) -> None:
        for found in self.table.node_left(number, reason, time.time()):
            self._changed(found)
            self._tell_waiting(found)

    def restore(self, rows: list[bytes]) -> None:
        """The jobs of the head before."""
        living = {view.number: view.node_id for view in self._nodes.node_views()}
        for row_bytes in rows:
            found = Submission.from_row(msgspec.msgpack.decode(row_bytes))
            self.table.by_id[found.id] = found
            self._kept.add(found.id)
        for found in list(self.table.by_id.values()):
            if living.get(found.node) != found.node_id:
                self.node_left(found.node, "it was lost together with the cluster's head")

    def restart(self, rows: list[bytes], node: int, node_id: str) -> None:
        """The jobs of a cluster that had ended: those whose files are here are this node's now."""
        for row_bytes in rows:
            found = Submission.from_row(msgspec.msgpack.decode(row_bytes))
            self.table.by_id[found.id] = found
            self._kept.add(found.id)
        for found in list(self.table.by_id.values()):
            if not found.status.is_over:
                self.table.ended(found.id, None, "the cluster was stopped while it ran, and started again", time.time())
            if self.runner.has_files(found.id):
                found.node, found.node_id = node, node_id
            self._changed(found)
        self.runner.keep_only(self.table.by_id.keys())

    def keep_all(self) -> None:
        for found in self.table.by_id.values():
            self._changed(found)

    def _changed(self, found: Submission) -> None:
        self.keep(found.id, _encode(found.row()))
        self._kept.add(found.id)
        for forgotten in self._kept - self.table.by_id.keys():
            self.keep(forgotten, None)
        self._kept &= self.table.by_id.keys()

    # ---- of the head, for clients ----

    def job_place(self, params: dict[str, Any]) -> dict[str, Any]:
        """The node that a command with these wishes is to run on: the head unless another is named or needed."""
        wanted, labels = str(params.get("node", "")), params.get("labels") or {}
        need = to_amounts(params.get("resources") or {})
        views = self._nodes.node_views()
        fitting = [view for view in views if view.could_hold(need) and matches_labels(labels, view.labels)]
        if wanted:
            fitting = [view for view in fitting if view.node_id.startswith(wanted)]
        if not fitting:
            known = ", ".join(view.node_id[:8] for view in views)
            wishes = {"the id": wanted, "the resources": params.get("resources"), "the labels": labels}
            wish = " and ".join(f"{name} {value}" for name, value in wishes.items() if value)
            raise ValueError(f"no living node with {wish} can run the job; the living ones: {known}")
        return {"node": fitting[0].number, "node_id": fitting[0].node_id}

    def job_upload(self, params: dict[str, Any]) -> Pending:
        return self._nodes.ask_node(params["node"], "job_keep", params)

    def job_submit(self, params: dict[str, Any]) -> Pending:
        """Answered with the job's id once its node has taken it."""
        place = self.job_place(params) if "number" not in params else None
        node, node_id = (place["node"], place["node_id"]) if place else (params["number"], params["node_id"])
        job = params.get("id") or "job_" + "".join(secrets.choice(_LETTERS) for _ in range(16))
        entrypoint = params["entrypoint"]
        if not isinstance(entrypoint, str) or not entrypoint.strip():
            raise ValueError(f"the entrypoint must be a command, but got {entrypoint!r}")
        shown = without_values(params.get("shown_env") or "")
        made = Submission(job, entrypoint, params.get("metadata") or {}, shown, node, node_id, time.time())
        self.table.submit(made)
        self._changed(made)
        order = RunOrder(job, entrypoint, params.get("runtime_env") or {})
        answer = Pending()

        def taken(outcome: Outcome) -> None:
            if outcome.error_kind:
                del self.table.by_id[job]
                self.keep(job, None)
                answer.settle(outcome)
            else:
                self.when_kept(lambda: answer.resolve(job))

        self._nodes.ask_node(node, "job_run", {"order": msgspec.to_builtins(order)}).then(taken)
        return answer

    def job_stop(self, params: dict[str, Any]) -> bool | Pending:
        found = self.table.find(params["id"])
        if not self.table.asked_to_stop(found.id):
            return False
        self._changed(found)
        answer = Pending()
        halted = self._nodes.ask_node(found.node, "job_halt", {"id": found.id}).map(lambda _: True)
        halted.then(lambda outcome: self.when_kept(lambda: answer.settle(outcome)))
        return answer

    def job_log(self, params: dict[str, Any]) -> Pending:
        """{"data", "offset", "is_over"}: once it is over and no data comes, there is no more."""
        found = self.table.find(params["id"])
        is_over = found.status.is_over
        asked = {"id": found.id, "offset": params.get("offset", 0)}
        return self._nodes.ask_node(found.node, "job_read", asked).map(lambda read: {**read, "is_over": is_over})

    def job_wait(self, params: dict[str, Any]) -> Pending:
        """Answered with the job's row when it is over, or after `wait_s`."""
        found = self.table.find(params["id"])
        pending = Pending()
        if found.status.is_over:
            pending.resolve(row(found))
        else:
            wait_s = min(float(params.get("wait_s", WAIT_S)), WAIT_S)
            self._loop.call_later(wait_s, lambda: self._waited(found, pending))
            self._waiting.setdefault(found.id, []).append(pending)
        return pending

    def _waited(self, found: Submission, pending: Pending) -> None:
        waiting = self._waiting.get(found.id, [])
        if pending in waiting:
            waiting.remove(pending)
        if not waiting:
            self._waiting.pop(found.id, None)
        pending.resolve(row(found))

    def job_list(self, params: dict[str, Any]) -> list[dict[str, Any]]:
        return [row(found) for found in self.table.by_id.values()]

    def job_info(self, params: dict[str, Any]) -> dict[str, Any]:
        return row(self.table.find(params["id"]))

    def job_delete(self, params: dict[str, Any]) -> Pending:
        found = self.table.delete(params["id"])
        self.keep(found.id, None)
        answer = Pending()
        dropped = self._nodes.ask_node(found.node, "job_drop", {"id": found.id})
        # where the node is gone, so are the files
        dropped.then(lambda _: self.when_kept(lambda: answer.resolve(True)))
        return answer

    def job_report(self, params: dict[str, Any]) -> Pending:
        """Answered when it is kept: the job's node says it again to the next head, if this one dies before."""
        report = msgspec.convert(params["report"], Report)
        if not report.has_ended:
            self.table.started(report.id, report.pid)
            if report.id in self.table.by_id:
                self._changed(self.table.by_id[report.id])
        elif (found := self.table.ended(report.id, report.exit_code, report.message, time.time())) is not None:
            self._changed(found)
            self.when_kept(lambda: self._tell_waiting(found))
        answer = Pending()
        self.when_kept(lambda: answer.resolve(None))
        return answer

    # ---- of a job's node ----

    def job_keep(self, params: dict[str, Any]) -> None:
        self.runner.keep_package(params["name"], params["offset"], params["data"])

    def job_run(self, params: dict[str, Any]) -> None:
        self.runner.start(msgspec.convert(params["order"], RunOrder))

    def job_halt(self, params: dict[str, Any]) -> None:
        self.runner.stop(params["id"])

    def job_read(self, params: dict[str, Any]) -> dict[str, Any]:
        data, offset = self.runner.read_log(params["id"], params["offset"], LOG_BYTES)
        return {"data": data, "offset": offset}

    def job_drop(self, params: dict[str, Any]) -> None:
        self.runner.delete(params["id"])

    # ---- inside ----

    def _say(self, report: Report) -> None:
        """To the head; again, when that did not answer: another may have taken over."""

        def said(outcome: Outcome) -> None:
            if outcome.error_kind in ("ConnectionError", "TimeoutError") and not self._is_closed:
                self._loop.call_later(SAY_AGAIN_S, lambda: self._say(report))

        self._operations.perform("job_report", {"report": msgspec.to_builtins(report)}).then(said)

    def _tell_waiting(self, found: Submission) -> None:
        for pending in self._waiting.pop(found.id, []):
            pending.resolve(row(found))


def without_values(shown_env: str) -> str:
    """A runtime environment, as JSON, for all who may look: its variables have names, and may be passwords.

    >>> without_values('{"env_vars": {"KEY": "secret"}, "pip": ["polars"]}')
    '{"env_vars":{"KEY":"***"},"pip":["polars"]}'
    """
    env = msgspec.json.decode(shown_env) if shown_env else {}
    if not isinstance(env, dict) or not isinstance(env.get("env_vars"), dict):
        return shown_env
    return msgspec.json.encode({**env, "env_vars": dict.fromkeys(env["env_vars"], "***")}).decode()


def row(found: Submission) -> dict[str, Any]:
    """What clients see."""
    return {
        "submission_id": found.id,
        "status": found.status.value,
        "entrypoint": found.entrypoint,
        "message": found.message,
        "metadata": found.metadata,
        "runtime_env": found.runtime_env,
        "node_id": found.node_id,
        "pid": found.pid,
        "exit_code": found.exit_code,
        "start_s": found.start_s,
        "end_s": found.end_s,
    }
