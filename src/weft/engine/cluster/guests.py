"""Records to other nodes' daemons in the names of this node's processes, and what those nodes are told before them.

Runs in the daemon's thread. A node hears of a job once, and of each process that asks it for something: a *guest*.
"""

from __future__ import annotations

from collections.abc import Callable

from weft import _native
from weft.engine.cluster.membership import Membership
from weft.engine.cluster.names import Names
from weft.engine.cluster.objects import DAEMON
from weft.engine.cluster.transport import NodeLink
from weft.engine.state import events as ev
from weft.engine.state.events import Process
from weft.engine.state.node import NodeState
from weft.engine.wire import link_messages as lm


class Guests:
    """Both ends of it: this node's processes elsewhere, and others' here."""

    def __init__(
        self,
        port: _native.NodePort,
        state: NodeState,
        feed: Callable[[ev.Event], None],
        members: Membership,
        names: Names,
    ) -> None:
        self._port = port
        self._state = state
        self._feed = feed
        self._members = members
        self._names = names
        self._told_jobs: set[tuple[int, int]] = set()
        self._told: set[tuple[int, Process]] = set()

    def pass_on(self, node: int, sender: Process, to: Process, kind: int, payload: bytes) -> bool:
        link = self._members.links.get(node)
        if link is None:
            return False
        self._port.pass_on(node, sender, to, kind, payload)
        link.send_records()
        return True

    def send_to_daemon(self, node: int, process: Process, kind: int, payload: bytes) -> bool:
        """A record to another daemon in a local process's name."""
        if node not in self._members.links:
            return False
        if (node, process) not in self._told and (job := self._state.job_of(process)) is not None:
            self._told.add((node, process))
            self.tell_job(node, job.id)
            self._members.send(node, lm.Guest(*process, job.id))
        return self.pass_on(node, process, DAEMON, kind, payload)

    def tell_job(self, node: int, job_id: int) -> None:
        job = self._state.jobs.get(job_id)
        if job is None or (node, job_id) in self._told_jobs:
            return
        self._told_jobs.add((node, job_id))
        driver = self._names.to_global(job.driver) if job.is_driver_alive else (self._names.number, *DAEMON)
        if driver[0] != node:
            self._members.send(node, lm.JobInfo(job_id, driver, job.pid, job.hello))

    def job_came(self, link: NodeLink, message: lm.JobInfo) -> None:
        self._told_jobs.add((link.peer, message.job))
        self._feed(ev.JobLearnt(self._names.to_local(message.driver), message.job, message.pid, message.hello))

    def guest_came(self, link: NodeLink, message: lm.Guest) -> None:
        process = self._names.to_local((link.peer, message.slot, message.generation))
        self._feed(ev.GuestJoined(process, message.job))

    def node_gone(self, node: int) -> None:
        self._told_jobs = {told for told in self._told_jobs if told[0] != node}
        self._told = {told for told in self._told if told[0] != node}

    def process_died(self, process: Process) -> None:
        self._told = {told for told in self._told if told[1] != process}
