"""Placement groups over several nodes: the head asks for bundles and tells how a group stands; nodes set them aside.

Runs in the daemon's thread. What is decided is the state's affair; this carries it over the links.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.engine.cluster.membership import Membership
from weft.engine.cluster.transport import NodeLink
from weft.engine.state import events as ev
from weft.engine.state import instructions as do
from weft.engine.state.node import NodeState
from weft.engine.state.placement import GroupState
from weft.engine.wire import link_messages as lm


class FarGroups:
    """Both ends of it."""

    def __init__(
        self,
        state: NodeState,
        feed: Callable[[ev.Event], None],
        members: Membership,
        keep: Callable[[do.PublishGroup], None],
        group_gone: Callable[[bytes], None],
    ) -> None:
        """`keep`: what became of a group, as its head; `group_gone`: the head says that it is removed."""
        self._state = state
        self._feed = feed
        self._members = members
        self._keep = keep
        self._group_gone = group_gone

    def carry(self, one: do.ReserveBundles | do.ReleaseBundles | do.AnswerBundles | do.PublishGroup) -> None:
        """What the head decides about groups, and what it is answered."""
        members = self._members
        if isinstance(one, do.AnswerBundles):
            if members.head is not None:
                members.send(members.head, lm.BundlesSet(one.group, one.ok, one.attempt))
        elif isinstance(one, do.PublishGroup):
            self._keep(one)
            members.broadcast(lm.GroupNews(one.spec, one.state, one.nodes))
        elif isinstance(one, do.ReleaseBundles):
            members.send(one.node, lm.DropBundles(one.group, one.bundles))
        else:
            bundles = {index: list(amounts) for index, amounts in one.bundles.items()}
            if not members.send(one.node, lm.AskBundles(one.group, bundles, one.attempt, one.waits)):
                self._feed(ev.BundlesAnswered(one.node, one.group, False, one.attempt))

    def bundles_asked(self, link: NodeLink, message: lm.AskBundles) -> None:
        if self._state.cluster is None:  # it has not joined: the head asks again
            link.send(lm.BundlesSet(message.group, False, message.attempt))
            return
        bundles = {index: tuple(amounts) for index, amounts in message.bundles.items()}
        self._feed(ev.BundlesAsked(message.group, bundles, message.attempt, message.waits))

    def bundles_set(self, link: NodeLink, message: lm.BundlesSet) -> None:
        self._feed(ev.BundlesAnswered(link.peer, message.group, message.ok, message.attempt))

    def bundles_dropped(self, link: NodeLink, message: lm.DropBundles) -> None:
        self._feed(ev.BundlesDropped(message.group, message.bundles))

    def group_came(self, link: NodeLink, message: lm.GroupNews) -> None:
        if link.peer != self._members.head:
            return  # a head that is none any more
        if message.state == GroupState.REMOVED.value:
            self._group_gone(message.spec.group)
        self._feed(ev.GroupLearnt(message.spec, message.state, message.nodes))
