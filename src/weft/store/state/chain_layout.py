"""The control store's configuration: which servers there are, which form each shard's chain, who decides the next.

Pure data and pure functions. `next_configuration` is the whole policy; `chain_council` makes sure that one answer of it
is chosen for each number.

Invariants:
    LAY-1  a chain never loses its last complete member: what it holds may be held nowhere else.
    LAY-2  members of a chain are only cut out or, having joined, added at its end; their order never changes.
    LAY-3  a chain's version rises whenever its members or the joining one change, and only then.
    LAY-4  nobody enters, and no council has a majority, that is silent: it may be dead and nobody has noticed yet.
    LAY-5  a chain loses a member only where a complete one that stays is not silent.
    LAY-6  a planned move leaves no chain shorter than it was before the move, where there is a server to come in first.

>>> shard_of(b"some key", 4)
2
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Collection, Mapping

import msgspec

CHAIN_LENGTH = 3
LARGEST_COUNCIL = 5


class Place(msgspec.Struct, frozen=True, array_like=True):
    """A server's place in a chain: one that was cut out and comes back has another birth."""

    server: str
    birth: int
    """The number of the configuration that made it."""


class Chain(msgspec.Struct, frozen=True, array_like=True):
    """One shard's replicas, head first."""

    version: int
    members: tuple[Place, ...]
    joining: Place | None = None
    fresh: Place | None = None
    """The member that was promoted last, until it has said that it lacks nothing."""

    @property
    def head(self) -> Place:
        return self.members[0]

    @property
    def tail(self) -> Place:
        return self.members[-1]

    def places(self) -> tuple[Place, ...]:
        return self.members if self.joining is None else (*self.members, self.joining)

    def has(self, server: str) -> bool:
        return any(place.server == server for place in self.places())


class Configuration(msgspec.Struct, frozen=True, array_like=True):
    """What the council decides. Number 0 is nobody's: a store begins with 1."""

    number: int
    council: tuple[str, ...]
    servers: dict[str, str]
    """Addresses by server; who is in no chain is a spare."""
    chains: tuple[Chain, ...]

    @property
    def majority(self) -> int:
        return len(self.council) // 2 + 1

    def is_lost(self, dead: Collection[str]) -> bool:
        """Whether with these there is no majority that decides, or nobody that has all rows of some shard."""
        whole = [{place.server for place in chain.members if place != chain.fresh} for chain in self.chains]
        return sum(name not in dead for name in self.council) < self.majority or any(
            one.issubset(dead) for one in whole
        )


class Wishes(msgspec.Struct, frozen=True):
    """What a server has heard that the next configuration should take in."""

    dead: frozenset[str] = frozenset()
    certain: frozenset[str] = frozenset()
    """Those of the dead that cannot come back, or have said that they leave."""
    leaving: frozenset[str] = frozenset()
    """Those of the dead that only say so yet: they have their rows until another has them."""
    enlisted: Mapping[str, str] = {}
    """Addresses of servers that want to take part."""
    caught_up: Collection[tuple[int, Place]] = ()
    """(shard, place) of joining replicas that are close to their tail."""
    complete: Collection[tuple[int, Place]] = ()
    """Promoted replicas that lack nothing any more."""
    failed: Collection[tuple[int, Place]] = ()
    """Replicas that cannot store what they must."""
    silent: Collection[str] = ()
    """Who was asked just now and has not answered."""
    is_settled: bool = True
    """No server has come or gone for a while: where heads can only move by a cut, they wait for this."""


def shard_of(key: bytes, shards: int) -> int:
    """By the key alone, so that a batch can move a row between tables."""
    return zlib.crc32(key) % shards


def key_of_each_shard(prefix: bytes, shards: int) -> list[bytes]:
    """Keys that begin like that, one in each shard, in the order of the shards.

    >>> [shard_of(key, 3) for key in key_of_each_shard(b"some", 3)]
    [0, 1, 2]
    """
    found: dict[int, bytes] = {}
    for number in itertools.count():
        found.setdefault(shard_of(key := b"%s%d" % (prefix, number), shards), key)
        if len(found) == shards:
            break
    return [found[shard] for shard in range(shards)]


def first_configuration(server: str, address: str, shards: int) -> Configuration:
    """Of a store that begins with one server."""
    chain = Chain(1, (Place(server, 1),))
    return Configuration(1, (server,), {server: address}, (chain,) * shards)


def next_configuration(now: Configuration, wishes: Wishes, length: int = CHAIN_LENGTH) -> Configuration | None:
    """What should follow; None when there is nothing to change."""
    number = now.number + 1
    entering = {name: at for name, at in wishes.enlisted.items() if name not in wishes.silent}
    servers = {name: at for name, at in (now.servers | entering).items() if name not in wishes.dead}
    living = list(servers)
    council = _council(now.council, living, wishes)
    if not council:
        return None
    load = {name: sum(chain.has(name) for chain in now.chains) for name in living}
    chains = tuple(
        _next_chain(shard, chain, number, wishes, living, load, length) for shard, chain in enumerate(now.chains)
    )
    if chains == now.chains:
        chains = _spread(now.chains, number, council, living, length, wishes)
    for name in (*council, *(place.server for chain in chains for place in chain.members)):
        servers.setdefault(name, now.servers.get(name, ""))  # one that may come back must be found
    following = Configuration(number, council, servers, chains)
    return None if (council, servers, chains) == (now.council, now.servers, now.chains) else following


def _council(now: tuple[str, ...], living: list[str], wishes: Wishes) -> tuple[str, ...]:
    """As many as make a majority meaningful, those that are in it first, the silent of these last.

    It shrinks only for certain deaths, and where the majority of a larger one would be silent (LAY-4)."""
    stay = sorted((name for name in now if name in living), key=lambda name: name in wishes.silent)
    candidates = [*stay, *(name for name in living if name not in stay and name not in wishes.silent)]
    if len(candidates) < len(now):
        candidates += [name for name in now if name not in living and name not in wishes.certain]
    chosen = _odd(candidates)
    if 2 * sum(name in wishes.silent for name in chosen) > len(chosen):
        chosen = _odd([name for name in candidates if name not in wishes.silent])
    return tuple(name for name in dict.fromkeys((*now, *chosen)) if name in chosen)


def _odd(candidates: list[str]) -> list[str]:
    size = min(LARGEST_COUNCIL, len(candidates))
    return candidates[: size - (size % 2 == 0)]


def _next_chain(
    shard: int, chain: Chain, number: int, wishes: Wishes, living: list[str], load: dict[str, int], length: int
) -> Chain:
    members = chain.members
    fresh = None if (shard, chain.fresh) in wishes.complete else chain.fresh
    alive = tuple(place for place in members if place.server not in wishes.dead)
    stay = tuple(place for place in alive if (shard, place) not in wishes.failed)
    there = tuple(place for place in members if place.server not in wishes.dead - wishes.leaving)
    has_rows = lambda some: any(one != fresh and one.server not in wishes.silent for one in some)  # noqa: E731
    members = next(filter(has_rows, (stay, alive, there)), members)
    joining = chain.joining
    if joining is not None:
        if joining.server in wishes.dead or (shard, joining) in wishes.failed:
            joining = None
        elif (shard, joining) in wishes.caught_up:
            members, joining, fresh = (*members, joining), None, joining
    spare = _spare(shard, members, wishes, living)
    if fresh not in members:
        fresh = None
    staying = sum(place.server not in wishes.dead for place in members)  # the others must wait for a successor
    if joining is None and fresh is None and spare and staying < length:
        chosen = _choose(spare, load)
        load[chosen] += 1
        joining = Place(chosen, number)
    is_same = (members, joining) == (chain.members, chain.joining)
    return Chain(chain.version + (not is_same), members, joining, fresh)


def _spare(shard: int, members: tuple[Place, ...], wishes: Wishes, living: list[str]) -> list[str]:
    """Who could join."""
    out = {place.server for place in members} | {place.server for failed, place in wishes.failed if failed == shard}
    return [name for name in living if name not in out]


def _choose(spare: list[str], load: dict[str, int]) -> str:
    """Among many servers the one with fewest replicas; among few with most, see `_Balance`."""
    return min(spare, key=lambda name: (-load[name] if _are_few(load) else load[name], name))


def _are_few(living: Collection[str]) -> bool:
    return len(living) <= LARGEST_COUNCIL


def _spread(
    chains: tuple[Chain, ...], number: int, council: tuple[str, ...], living: list[str], length: int, wishes: Wishes
) -> tuple[Chain, ...]:
    """When all is calm, a step of a planned move: a server joins a chain, or one is cut out that is too many.

    Of two servers the one that is not the council must be last everywhere: only so can it go on alone. It has to be cut
    out first, and so has the head that moves among as many servers as a chain has members: there is no other."""
    whole = min(length, len(living))
    is_calm = all(
        chain.joining is chain.fresh is None
        and len(chain.members) >= whole
        and all(place.server in living and place.server not in wishes.silent for place in chain.members)
        for chain in chains
    )
    if whole < 2 or not is_calm:
        return chains
    if whole == 2:
        wrong = [shard for shard, chain in enumerate(chains) if (chain.tail.server,) == council]
        return _without(chains, wrong[0], chains[wrong[0]].head) if wrong else chains
    balance = _Balance(chains, living)
    for shard, chain in enumerate(chains):
        if len(chain.members) > whole:
            return _without(chains, shard, balance.surplus(chain))
        if len(living) == whole and wishes.is_settled and balance.has_uneven_head(chain):
            return _without(chains, shard, chain.head)
    reasons = (balance.has_uneven_head, balance.is_misplaced)
    for is_due in reversed(reasons) if _are_few(living) else reasons:
        for shard, chain in enumerate(chains):
            spare = [name for name in _spare(shard, chain.members, wishes, living) if name not in wishes.silent]
            if spare and is_due(chain, guest := _choose(spare, balance.replicas)):
                longer = Chain(chain.version + 1, chain.members, Place(guest, number))
                return (*chains[:shard], longer, *chains[shard + 1 :])
    return chains


class _Balance:
    """Which moves are due: heads go where a server heads two chains more than its successor in one of them, replicas
    (of neither head nor, among many servers, tail) where another server has two less.

    Few servers keep all chains on the same ones, which then have every row, whoever else dies: replicas go where there
    are more. Moved replicas make heads no less even, and each move makes one of the two better: so this ends."""

    def __init__(self, chains: tuple[Chain, ...], living: list[str]) -> None:
        self.heads = {name: sum(chain.head.server == name for chain in chains) for name in living}
        self.replicas = {name: sum(chain.has(name) for chain in chains) for name in living}

    def has_uneven_head(self, chain: Chain, guest: str = "") -> bool:
        return self.heads[chain.head.server] > self.heads[chain.members[1].server] + 1

    def is_misplaced(self, chain: Chain, guest: str) -> bool:
        if _are_few(self.replicas):
            return self.replicas[guest] > min(self.replicas[place.server] for place in chain.members[1:])
        return self.replicas[chain.members[1].server] > self.replicas[guest] + 1

    def surplus(self, chain: Chain) -> Place:
        """Who goes, now that another has joined."""
        middle = chain.members[1]
        if _are_few(self.replicas):
            middle = min(chain.members[1:-1], key=lambda place: self.replicas[place.server])
            if self.replicas[middle.server] < self.replicas[chain.tail.server]:
                return middle
        return chain.head if self.has_uneven_head(chain) else middle


def _without(chains: tuple[Chain, ...], shard: int, cut: Place) -> tuple[Chain, ...]:
    chain = chains[shard]
    shorter = Chain(chain.version + 1, tuple(place for place in chain.members if place != cut))
    return (*chains[:shard], shorter, *chains[shard + 1 :])
