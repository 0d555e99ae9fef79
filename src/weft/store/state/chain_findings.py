"""What one server of the control store has found out: who is dead, who wants in or out, which replicas are whole. Pure.

It decides nothing: the server makes of it what it wishes for the next configuration (`chain_layout.Wishes`).
"""

from __future__ import annotations

from weft.store.state.chain_layout import Configuration, Place, Wishes
from weft.store.state.chain_messages import COMPLETE, FAILED, Wish

LONGEST_WAIT_S = 15.0
"""After trouble is over a chain is whole again about that soon."""


def _cut_places(now: Configuration, value: Configuration) -> list[tuple[int, bool, Place]]:
    """(shard, whether it is joining, place) of all that have a place now and none in `value`."""
    return [
        (shard, place == chain.joining, place)
        for shard, chain in enumerate(now.chains)
        for place in chain.places()
        if shard >= len(value.chains) or place not in value.chains[shard].places()
    ]


class Findings:
    """What the server called `name` knows of the others, and of itself."""

    def __init__(self, name: str, grace_s: float, unfit_s: float, settle_s: float) -> None:
        self._name = name
        self._grace_s = grace_s
        self._unfit_s = unfit_s
        self._settle_s = settle_s
        self._changed_at = float("-inf")
        """When a server came or went."""
        self.certain: set[str] = set()
        """Servers whose processes have ended."""
        self.resigned: set[str] = set()
        """Servers that serve no reads any more, and end once they are out: until then they vote and store."""
        self.enlisted: dict[str, str] = {}
        """Servers that want to be in, and their addresses."""
        self._lost: dict[str, float] = {}
        """Servers that cannot be reached, and since when."""
        self._caught_up: set[tuple[int, Place]] = set()
        self._complete: set[tuple[int, Place]] = set()
        self._failed: dict[tuple[int, Place], float] = {}
        self._waits: dict[tuple[int, str], float] = {}
        self._again_at: dict[tuple[int, str], float] = {}
        """When a server whose joining came to nothing may try again, and how long that was put off."""

    @property
    def gone(self) -> set[str]:
        """Of these no read is served again, whatever their leases say."""
        return self.certain | self.resigned

    def long_lost(self, now: float) -> set[str]:
        return {name for name, since in self._lost.items() if now - since >= self._grace_s}

    def connected(self, peer: str) -> None:
        self._lost.pop(peer, None)
        self.certain.discard(peer)  # it was restarted under its name

    def lost(self, peer: str, now: float, is_certain: bool, is_member: bool) -> None:
        self.enlisted.pop(peer, None)  # it says so again when it is back
        if is_certain:
            self.certain.add(peer)
        elif is_member:
            self._lost.setdefault(peer, now)

    def wish_came(self, message: Wish, now: float) -> None:
        if message.what == FAILED:
            self._failed[(message.shard, message.place)] = now
        else:
            known = self._complete if message.what == COMPLETE else self._caught_up
            known.add((message.shard, message.place))

    def learned(self, before: Configuration | None, configuration: Configuration, now: float) -> None:
        """What was said of the configuration before holds no longer."""
        if before is None or before.servers.keys() != configuration.servers.keys():
            self._changed_at = now
        for shard, is_joining, cut in _cut_places(before, configuration) if before is not None else ():
            if is_joining:
                wait_s = min(2 * self._waits.get((shard, cut.server), self._unfit_s / 2), LONGEST_WAIT_S)
                self._waits[shard, cut.server] = wait_s
                self._again_at[shard, cut.server] = now + wait_s
        for shard, chain in enumerate(configuration.chains):
            for member in chain.members:
                self._waits.pop((shard, member.server), None)
        self._caught_up.clear()  # said of an older version; who has caught up says so again
        self._complete = {one for one in self._complete if configuration.chains[one[0]].fresh == one[1]}

    def wishes(self, current: Configuration, now: float) -> Wishes:
        long_lost = self.long_lost(now)
        dead = frozenset((self.certain | long_lost) - {self._name} | self.resigned)
        self._failed = {one: since for one, since in self._failed.items() if now - since < self._unfit_s}
        self.enlisted = {name: at for name, at in self.enlisted.items() if current.servers.get(name) != at}
        return Wishes(
            dead,
            frozenset(self.gone),
            frozenset(self.resigned - self.certain - long_lost),
            self.enlisted,
            frozenset(self._caught_up),
            frozenset(self._complete),
            frozenset(self._failed)
            | {(shard, Place(name, 0)) for (shard, name), at in self._again_at.items() if at > now},
            is_settled=now - self._changed_at >= self._settle_s,
        )
