"""Actors on other nodes: the head's side, which asks for a worker, and the side of the node that gives it.

Runs in the daemon's thread. What is decided is the state's affair; this carries it over the links.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import msgspec

from weft.engine.cluster.guests import Guests
from weft.engine.cluster.membership import Membership
from weft.engine.cluster.names import Names
from weft.engine.cluster.objects import DAEMON
from weft.engine.cluster.pings import Pings
from weft.engine.cluster.transport import NodeLink
from weft.engine.state import events as ev
from weft.engine.state.asking import Asking
from weft.engine.state.events import Process
from weft.engine.state.node import NodeState
from weft.engine.wire import kinds
from weft.engine.wire import link_messages as lm
from weft.engine.wire.link_messages import GlobalProcess


class Places:
    """What the head has placed elsewhere, and what this node gives to the head."""

    def __init__(
        self,
        state: NodeState,
        feed: Callable[[ev.Event], None],
        members: Membership,
        names: Names,
        asking: Asking,
        guests: Guests,
        pings: Pings,
        function_of: Callable[[int], bytes | None],
        kill: Callable[[Process], None],
    ) -> None:
        """`kill`: end a worker of this node, whose records count no more."""
        self._state = state
        self._feed = feed
        self._members = members
        self._names = names
        self._asking = asking
        self._guests = guests
        self._pings = pings
        self._function_of = function_of
        self._kill = kill
        self._hosted: dict[Process, ev.FoundActor] = {}
        """Workers of this node that the head has made actors of."""
        self._actor_of: dict[Process, bytes] = {}

    # ---- actors ----

    def wanted(self, link: NodeLink, message: lm.WantPlace) -> None:
        """The head asks this node for a worker."""
        process = self._names.to_local((link.peer, *DAEMON))
        need, hold = tuple(message.need), tuple(message.hold)
        self._feed(
            ev.PlaceWanted(
                process, message.number, message.job, need, hold, message.runtime_env, message.wanted, message.strategy
            )
        )

    def found(self, node: int, lease: int, number: int, worker: Process, pid: int) -> None:
        """Another node has a worker for an actor: send it the creation. The watchers hear when it has arrived."""
        guests = self._guests
        actor_id = self._asking.place_found(node, number, worker)
        actor = None if actor_id is None else self._state.actors.by_id.get(actor_id)
        name = self._names.to_global(worker)
        if actor is None:
            guests.pass_on(node, DAEMON, DAEMON, kinds.LEASE_RETURN, kinds.LEASE_BODY.pack(lease))
            return
        self._members.send(node, lm.ActorHere(name[1], name[2], actor.id, actor.incarnation))
        if (function := self._function_of(actor.spec.class_key)) is not None:
            guests.pass_on(node, DAEMON, name[1:], kinds.FUNCTION, function)
        guests.pass_on(node, DAEMON, name[1:], kinds.TASK, actor.record)
        self._pings.ask([node], functools.partial(self.arrived, actor.id, name, pid))

    def arrived(self, actor: bytes, name: GlobalProcess, pid: int) -> None:
        """All that was sent before has been handled there: the actor's creation is there. Unless the worker has died
        since: then the actor may be on its way to another one already."""
        worker, creating = self._names.proxies.get(name), self._asking.creating
        if worker is not None and creating.get(actor) == worker:
            del creating[actor]
            self._feed(ev.ActorPlacedElsewhere(actor, worker, pid))

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
        if not self._names.is_proxy(process):
            return False
        node, slot, generation = self._names.to_global(process)
        self._members.send(node, lm.KillProcess(slot, generation))
        return True

    def kill_came(self, link: NodeLink, message: lm.KillProcess) -> None:
        process = (message.slot, message.generation)
        if process in self._state.workers.by_process:
            self._kill(process)
