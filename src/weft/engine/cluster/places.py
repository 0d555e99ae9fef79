"""Actors and bundles on other nodes: the head's side, which asks for them, and the side of the node that gives them.

Runs in the daemon's thread. What is decided is the state's affair; this carries it over the links.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weft.engine.cluster.objects import DAEMON
from weft.engine.cluster.transport import NodeLink
from weft.engine.state import events as ev
from weft.engine.state import instructions as do
from weft.engine.state.events import Process
from weft.engine.state.placement import GroupState
from weft.engine.wire import kinds
from weft.engine.wire import link_messages as lm
from weft.engine.wire.link_messages import GlobalProcess

if TYPE_CHECKING:
    from weft.engine.cluster.shell import ClusterShell
    from weft.engine.node.daemon import NodeDaemon


class Places:
    """What the head has placed elsewhere, and what this node gives to the head."""

    def __init__(self, daemon: NodeDaemon, shell: ClusterShell) -> None:
        self._daemon = daemon
        self._state = daemon.state
        self._shell = shell
        self._pings: dict[int, tuple[bytes, GlobalProcess, int]] = {}
        self._hosted: dict[Process, ev.FoundActor] = {}
        """Workers of this node that the head has made actors of."""
        self._actor_of: dict[Process, bytes] = {}

    # ---- actors ----

    def wanted(self, link: NodeLink, message: lm.WantPlace) -> None:
        """The head asks this node for a worker."""
        process = self._shell.names.to_local((link.peer, *DAEMON))
        need, hold = tuple(message.need), tuple(message.hold)
        self._daemon.feed(
            ev.PlaceWanted(
                process, message.number, message.job, need, hold, message.runtime_env, message.wanted, message.strategy
            )
        )

    def found(self, node: int, lease: int, number: int, worker: Process, pid: int) -> None:
        """Another node has a worker for an actor: send it the creation. The watchers hear when it has arrived."""
        shell = self._shell
        actor_id = shell.asking.place_found(node, number, worker)
        actor = None if actor_id is None else self._state.actors.by_id.get(actor_id)
        name = shell.names.to_global(worker)
        if actor is None:
            shell.pass_on(node, DAEMON, DAEMON, kinds.LEASE_RETURN, kinds.LEASE_BODY.pack(lease))
            return
        shell.members.send(node, lm.ActorHere(name[1], name[2], actor.id, actor.incarnation))
        if (function := self._daemon.functions.find(actor.spec.class_key)) is not None:
            shell.pass_on(node, DAEMON, name[1:], kinds.FUNCTION, function)
        shell.pass_on(node, DAEMON, name[1:], kinds.TASK, actor.record)
        ping = shell.next_ping()
        self._pings[ping] = (actor.id, name, pid)
        shell.members.send(node, lm.Ping(ping))

    def arrived(self, number: int) -> None:
        """All that was sent before the ping has been handled: the actor's creation is there. Unless the worker has died
        since: then the actor may be on its way to another one already."""
        actor, name, pid = self._pings.pop(number, (b"", (0, 0, 0), 0))
        worker, creating = self._shell.names.proxies.get(name), self._shell.asking.creating
        if worker is not None and creating.get(actor) == worker:
            del creating[actor]
            self._daemon.feed(ev.ActorPlacedElsewhere(actor, worker, pid))

    def actor_comes(self, link: NodeLink, message: lm.ActorHere) -> None:
        """The creation of an actor follows, for a worker of this node."""
        process = (message.slot, message.generation)
        if process in self._state.workers.by_process:
            self._actor_of[process] = message.actor
            self._hosted[process] = ev.FoundActor(process, 0, message.incarnation, False)

    def actor_created(self, process: Process, ok: bool) -> None:
        if (hosted := self._hosted.get(process)) is not None and ok:
            self._hosted[process] = msgspec.structs.replace(hosted, is_created=True)

    def process_died(self, process: Process) -> None:
        self._hosted.pop(process, None)
        self._actor_of.pop(process, None)

    def found_here(self) -> dict[bytes, ev.FoundActor]:
        """The actors that live on this node, for a head that has taken over."""
        workers = self._state.workers.by_process
        return {
            self._actor_of[process]: msgspec.structs.replace(hosted, pid=workers[process].pid)
            for process, hosted in self._hosted.items()
            if process in workers
        }

    def hosted_message(self) -> lm.Hosted:
        actors = [
            (*found.worker, found.pid, actor, found.incarnation, found.is_created)
            for actor, found in self.found_here().items()
        ]
        return lm.Hosted(actors, self._state.bundles.by_group())

    def kill(self, process: Process) -> bool:
        """Whether it is another node's worker, which that node has been told to end."""
        if not self._shell.names.is_proxy(process):
            return False
        node, slot, generation = self._shell.names.to_global(process)
        self._shell.members.send(node, lm.KillProcess(slot, generation))
        return True

    def kill_came(self, link: NodeLink, message: lm.KillProcess) -> None:
        process = (message.slot, message.generation)
        if process in self._state.workers.by_process:
            self._daemon.port.refuse_records(*process)
            self._daemon.workers.kill(process)

    # ---- placement groups ----

    def carry(self, one: do.ReserveBundles | do.ReleaseBundles | do.AnswerBundles | do.PublishGroup) -> None:
        """What the head decides about groups, and what it is answered."""
        members = self._shell.members
        if isinstance(one, do.AnswerBundles):
            if members.head is not None:
                members.send(members.head, lm.BundlesSet(one.group, one.ok, one.attempt))
        elif isinstance(one, do.PublishGroup):
            self._shell.keeping.group(one)
            members.broadcast(lm.GroupNews(one.spec, one.state, one.nodes))
        elif isinstance(one, do.ReleaseBundles):
            members.send(one.node, lm.DropBundles(one.group, one.bundles))
        else:
            bundles = {index: list(amounts) for index, amounts in one.bundles.items()}
            if not members.send(one.node, lm.AskBundles(one.group, bundles, one.attempt, one.waits)):
                self._daemon.feed(ev.BundlesAnswered(one.node, one.group, False, one.attempt))

    def bundles_asked(self, link: NodeLink, message: lm.AskBundles) -> None:
        if self._state.cluster is None:  # it has not joined: the head asks again
            link.send(lm.BundlesSet(message.group, False, message.attempt))
            return
        bundles = {index: tuple(amounts) for index, amounts in message.bundles.items()}
        self._daemon.feed(ev.BundlesAsked(message.group, bundles, message.attempt, message.waits))

    def bundles_set(self, link: NodeLink, message: lm.BundlesSet) -> None:
        self._daemon.feed(ev.BundlesAnswered(link.peer, message.group, message.ok, message.attempt))

    def bundles_dropped(self, link: NodeLink, message: lm.DropBundles) -> None:
        self._daemon.feed(ev.BundlesDropped(message.group, message.bundles))

    def group_came(self, link: NodeLink, message: lm.GroupNews) -> None:
        if link.peer != self._shell.members.head:
            return  # a head that is none any more
        if message.state == GroupState.REMOVED.value:
            self._shell.following.group_gone(message.spec.group)
        self._daemon.feed(ev.GroupLearnt(message.spec, message.state, message.nodes))
