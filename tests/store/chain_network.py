"""The control store's machines over a network that loses, delays and repeats, with crashes, partitions and pauses.

All is decided by a seed. Time is virtual; every server's clock runs a little differently.

Invariants, beside linearizable rows:
    NET-1  for each number one configuration is chosen.
    NET-2  no configuration builds on the dead: a majority of its council, and of each chain that it cuts a member that
           has all rows, lived when the proposal that it came from began.
    NET-3  every call ends, unless the end is forced: more of the newest council than it can lose, or all that had a
           shard's rows, crashed since that proposal began and before a next one was chosen. Resignations force none.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from chain_bugs import PLANTED
from histories import Operation, is_linearizable

from weft.store.state import chain_calls as cc
from weft.store.state import chain_events as ev
from weft.store.state.chain_client import StoreClient
from weft.store.state.chain_layout import Configuration, first_configuration
from weft.store.state.chain_messages import Accept, AllRows, Decided, Entry, Hello, ReadReply, ReadRequest, encode
from weft.store.state.chain_requests import Stale, decide
from weft.store.state.chain_rows import Delete, Put
from weft.store.state.chain_server import StoreServer
from weft.store.state.chain_settings import ServerSettings

SHARDS = 2
TABLE = "kv"
PIECE_ROWS = 3
KINDS = ("read", "read", "put", "put", "put_if_absent", "delete")


class DictStorage:
    """The rows of one shard, and what was applied."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, bytes], bytes] = {}
        self.journal: list[Entry] = []

    def get(self, table: str, key: bytes) -> bytes | None:
        return self.rows.get((table, key))

    def apply(self, entries: list[Entry]) -> None:
        for entry in entries:
            self.journal.append(entry)
            for table, key, value in entry.changes:
                if value is None:
                    self.rows.pop((table, key), None)
                else:
                    self.rows[(table, key)] = value


@dataclass
class Faults:
    """How bad the world is."""

    loss: float = 0.02
    repeats: float = 0.02
    slowest_s: float = 0.004
    crashes: int = 2
    partitions: int = 2
    pauses: int = 2
    joins: int = 4
    resignations: int = 1


@dataclass
class SimulatedServer:
    state: StoreServer
    rate: float
    offset: float
    storages: dict[int, DictStorage] = field(default_factory=dict)
    is_alive: bool = True
    is_full: bool = False
    """Its disk takes nothing."""
    paused_until: float = 0.0
    held: list[ev.Event] = field(default_factory=list)
    is_leaving: bool = False
    """It was asked to resign; one that is paused does so later."""
    ended_at: float = math.inf
    has_crashed: bool = False
    """And did not end because it was out."""


@dataclass
class SimulatedClient:
    state: StoreClient
    running: dict[int, Operation] = field(default_factory=dict)
    heard: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    was_reset: bool = False
    subscription: int = 0


class Network:
    """A store with servers and clients, from its founding until all is calm again."""

    def __init__(self, seed: int, faults: Faults, bug: str = "", servers: int = 3, shards: int = SHARDS) -> None:
        self.random = random.Random(seed)
        self.faults = faults
        self.now = 0.0
        self.settings = ServerSettings(
            lease_s=0.3,
            grace_s=0.1,
            patience_s=0.03,
            unfit_s=0.5,
            settle_s=0.4,
            kept_entries=20,
            **PLANTED.get(bug, {}),
        )
        self.servers: dict[str, SimulatedServer] = {}
        self.clients: dict[str, SimulatedClient] = {}
        self.history: dict[bytes, list[Operation]] = {}
        self.chosen: dict[int, Configuration] = {}
        self._begun_at: dict[bytes, float] = {}
        """When the proposal of each configuration began, at the earliest."""
        self.forced_end = ""
        """Why calls were not answered, where nothing could have answered them (NET-3)."""
        self.groups: dict[str, int] = {}
        """The side of the partition that everyone is on; the same without one."""
        self.broken: set[frozenset[str]] = set()
        """Pairs that do not reach each other, whoever reaches both."""
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._tickets = itertools.count(1)
        self._values = itertools.count(1)
        self._names = itertools.count(1)
        self.is_calm = False
        self.refused = 0
        """Writes that a full disk did not take."""
        first = self.add_server()
        self._carry(first, self.servers[first].state.found(first_configuration(first, first, shards), 0.0))
        for _ in range(servers - 1):
            self.add_server()

    # ---- time ----

    def later(self, delay: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now + delay, next(self._numbers), call))

    def run_until(self, end: float, condition: Callable[[], bool] = lambda: False) -> None:
        while self._queue and self._queue[0][0] <= end and not condition():
            self.now, _, call = heapq.heappop(self._queue)
            call()

    # ---- servers ----

    def add_server(self) -> str:
        name = f"s{next(self._names)}"
        state = StoreServer(name, name, self.settings)
        server = SimulatedServer(state, self.random.uniform(0.95, 1.05), self.random.uniform(0.0, 5.0))
        known = [other for other in self.living() if other.state.configuration is not None]
        self.servers[name] = server
        self.groups[name] = 0
        if known:
            configuration = self.random.choice(known).state.configuration
            assert configuration is not None
            self._feed(name, ev.Received(known[0].state.name, Decided(configuration), self._clock(name)))
        self._tick_server(name)
        for other in [*self.servers, *self.clients]:
            if other != name:
                self.later(0.001, lambda other=other: self._connected(other, name))
        return name

    def living(self) -> list[SimulatedServer]:
        return [server for server in self.servers.values() if server.is_alive]

    def crash(self, name: str, is_certain: bool | None = None) -> None:
        server = self.servers[name]
        server.is_alive, server.has_crashed, server.ended_at = False, True, self.now
        if is_certain is None:
            is_certain = self.random.random() < 0.5
        for other in [*self.servers, *self.clients]:
            self.later(self.random.uniform(0.0, 0.01), lambda other=other: self._lost(other, name, is_certain))

    def resign(self, name: str) -> None:
        """It is asked to end, and ends when it says that it may."""
        self.servers[name].is_leaving = True
        self._feed(name, ev.ResignAsked(self._clock(name)))

    def _end_if_out(self, name: str) -> None:
        if self.servers[name].is_alive and self.servers[name].state.is_out:
            self.crash(name, is_certain=True)
            self.servers[name].has_crashed = False

    def pause(self, name: str, duration: float) -> None:
        """It does nothing for a while, and then goes on as if nothing had been."""
        server = self.servers[name]
        server.paused_until = self.now + duration
        self.later(duration, lambda: self._resume(name))
        if duration > 0.05:
            for other in [*self.servers, *self.clients]:
                if other != name:
                    self.later(0.05, lambda other=other: self._lost(other, name, False))
                    self.later(duration + 0.001, lambda other=other: self._connected(other, name))

    def _resume(self, name: str) -> None:
        server = self.servers[name]
        held, server.held = server.held, []
        for event in held:
            self._feed(name, event)

    def partition(self, duration: float, apart: Collection[str] | None = None) -> None:
        """Those apart, or as chance has it."""
        names = [*self.servers, *self.clients]
        for name in names:
            self.groups[name] = self.random.randrange(2) if apart is None else name in apart
        cut = [(a, b) for a in names for b in names if self.groups[a] != self.groups[b]]
        for a, b in cut:
            self.later(self.random.uniform(0.0, 0.05), lambda a=a, b=b: self._lost(a, b, False))
        self.later(duration, lambda: self._heal(cut))

    def break_link(self, one: str, other: str) -> None:
        """Nothing passes between the two any more."""
        self.broken.add(frozenset((one, other)))
        for at, peer in ((one, other), (other, one)):
            self.later(self.random.uniform(0.0, 0.05), lambda at=at, peer=peer: self._lost(at, peer, False))

    def _heal(self, cut: list[tuple[str, str]]) -> None:
        self.groups = dict.fromkeys(self.groups, 0)
        for a, b in cut:
            self._connected(a, b)

    def _lost(self, at: str, peer: str, is_certain: bool) -> None:
        is_broken = frozenset((at, peer)) in self.broken
        if is_certain or is_broken or self.groups[at] != self.groups[peer] or not self._is_up(peer):
            self._feed(at, ev.PeerLost(peer, is_certain, self._clock(at)))

    def _is_up(self, name: str) -> bool:
        server = self.servers.get(name)
        return server is None or (server.is_alive and server.paused_until <= self.now)

    def _connected(self, a: str, b: str) -> None:
        if frozenset((a, b)) in self.broken:
            return
        for at, peer in ((a, b), (b, a)):
            if self.groups[a] == self.groups[b] and all(n in self.clients or self.servers[n].is_alive for n in (a, b)):
                self._feed(at, ev.PeerConnected(peer, self._clock(at)))
        if a in self.clients and b in self.servers:
            self._send(a, b, Hello(a))
        elif b in self.clients and a in self.servers:
            self._send(b, a, Hello(b))

    def _tick_server(self, name: str) -> None:
        if self.servers[name].is_alive:
            self._feed(name, ev.Ticked(self._clock(name)))
            self.later(0.02, lambda: self._tick_server(name))

    def _clock(self, name: str) -> float:
        server = self.servers.get(name)
        return self.now if server is None else self.now * server.rate + server.offset

    # ---- feeding and carrying out ----

    def _feed(self, name: str, event: ev.Event) -> None:
        if name in self.clients:
            self._carry_client(name, self.clients[name].state.handle(event))
            self._carry_client(name, self.clients[name].state.handle(ev.RoundEnded()))
            return
        server = self.servers[name]
        if not server.is_alive:
            return
        if server.paused_until > self.now:
            if not isinstance(event, ev.Ticked):
                server.held.append(event)
            return
        if hasattr(event, "now"):
            event = type(event)(**{**{f: getattr(event, f) for f in event.__struct_fields__}, "now": self._clock(name)})
        self._carry(name, server.state.handle(event))
        if self.random.random() < 0.7:
            self._carry(name, server.state.handle(ev.RoundEnded()))
        self._end_if_out(name)

    def _carry(self, name: str, instructions: list[ev.Instruction]) -> None:
        server = self.servers[name]
        for one in instructions:
            if isinstance(one, ev.Send):
                self._send(name, one.to, one.message)
            elif isinstance(one, ev.OpenShard):
                server.storages[one.shard] = DictStorage()
            elif isinstance(one, ev.DropShard):
                del server.storages[one.shard]
            elif isinstance(one, ev.KeepConfiguration):
                self._check_chosen(one.configuration)
                for client in self.clients:
                    self._send(name, client, Decided(one.configuration))
            elif isinstance(one, ev.ServeRead):
                self._serve(name, one)
            elif isinstance(one, ev.ServeAllRows):
                rows = self._rows(server.storages[one.shard], one.table, one.prefix)
                self._send(name, one.to, AllRows(one.shard, one.subscription, one.through, rows))
            elif not isinstance(one, ev.Report | ev.KeepVotes):
                self._carry(name, server.state.handle(self._store(server, one)))

    def _store(self, server: SimulatedServer, one: ev.Instruction) -> ev.Event:
        if server.is_full and isinstance(one, ev.DecideWrite):
            return ev.WriteRejected(one.shard, "the disk is full", True)
        if server.is_full and isinstance(one, ev.ApplyEntries | ev.LoadRows):
            return ev.ApplyFailed(one.shard, "the disk is full")
        if isinstance(one, ev.DecideWrite):
            storage = server.storages[one.shard]
            try:
                changes, outcomes = decide(storage, one.request)
            except Stale as error:
                return ev.WriteRejected(one.shard, str(error))
            if changes is None:
                return ev.WriteDecided(one.shard, None, outcomes)
            entry = Entry(one.seq, changes)
            storage.apply([entry])
            return ev.WriteDecided(one.shard, entry, outcomes)
        if isinstance(one, ev.ApplyEntries):
            server.storages[one.shard].apply(list(one.entries))
            return ev.EntriesApplied(one.shard)
        if isinstance(one, ev.LoadRows):
            storage = server.storages[one.shard]
            if one.is_first:
                storage.rows.clear()
                storage.journal.clear()
            storage.rows.update({(table, key): value for table, key, value in one.rows})
            return ev.EntriesApplied(one.shard)
        assert isinstance(one, ev.ReadRows), one
        rows = sorted(server.storages[one.shard].rows.items())
        piece = [(key, value) for key, value in rows if one.after is None or key > one.after][: PIECE_ROWS + 1]
        following = piece[PIECE_ROWS - 1][0] if len(piece) > PIECE_ROWS else None
        found = [(*key, value) for key, value in piece[:PIECE_ROWS]]
        return ev.RowsRead(one.shard, one.to, one.after, following, found)

    def _serve(self, name: str, one: ev.ServeRead) -> None:
        storage = self.servers[name].storages[one.request.shard]
        request: ReadRequest = one.request
        rows = self._rows(storage, request.table, request.prefix) if request.table else []
        values = [storage.get(*key) for key in request.keys]
        self._send(name, one.to, ReadReply(request.shard, request.number, values, rows))

    def _rows(self, storage: DictStorage, table: str, prefix: bytes) -> list[tuple[bytes, bytes]]:
        return sorted((k, v) for (t, k), v in storage.rows.items() if t == table and k.startswith(prefix))

    def _send(self, sender: str, to: str, message: object) -> None:
        if isinstance(message, Accept):
            self._begun_at.setdefault(encode(message.value), self.now - 1.1 * self.settings.patience_s)
        copies = 1
        if not self.is_calm:
            if self.random.random() < self.faults.loss:
                return
            copies += self.random.random() < self.faults.repeats
        for _ in range(copies):
            self.later(self.random.uniform(0.0002, self.faults.slowest_s), lambda: self._deliver(sender, to, message))

    def _deliver(self, sender: str, to: str, message: object) -> None:
        if frozenset((sender, to)) in self.broken:
            return
        if to in self.groups and self.groups[sender] == self.groups[to]:
            self._feed(to, ev.Received(sender, message, self._clock(to)))

    def _check_chosen(self, configuration: Configuration) -> None:
        number = configuration.number
        if number not in self.chosen and self.chosen:
            self._check_lives(self.chosen[max(self.chosen)], configuration)
        known = self.chosen.setdefault(number, configuration)
        assert known == configuration, f"two configurations have the number {number}"

    def _check_lives(self, before: Configuration, chosen: Configuration) -> None:
        """NET-2."""
        begun_at = self._begun_at.get(encode(chosen), self.now)
        lived = {name for name, server in self.servers.items() if server.ended_at >= begun_at}
        voters = lived.intersection(chosen.council)
        assert len(voters) >= chosen.majority, f"{chosen.council} was chosen when only {sorted(voters)} lived"
        for shard, chain in enumerate(chosen.chains):
            whole = [place for place in chain.members if place != chain.fresh]
            is_cut = not set(before.chains[shard].members) <= set(chain.members)
            assert not is_cut or any(place.server in lived for place in whole), f"shard {shard} was left to the dead"

    def _why_nobody_answers(self) -> str:
        """NET-3: empty where the end is not forced."""
        newest = self.chosen[max(self.chosen)]
        crashed = {name for name, server in self.servers.items() if server.has_crashed}
        voters = [name for name in newest.council if name not in crashed]
        if len(voters) < newest.majority:
            return f"of the council {newest.council} only {voters} have not crashed"
        for shard, chain in enumerate(newest.chains):
            if crashed.issuperset(place.server for place in chain.members if place != chain.fresh):
                return f"all that had the rows of shard {shard} have crashed: {chain.members}"
        return ""

    # ---- clients ----

    def add_client(self, subscribes: bool = False) -> str:
        name = f"c{next(self._names)}"
        client = SimulatedClient(StoreClient(name, retry_s=0.05, renew_s=0.1))
        self.clients[name] = client
        self.groups[name] = 0
        for server in self.servers:
            self._connected(name, server)
        if subscribes:
            client.subscription = next(self._tickets)
            asked = cc.SubscribeAsked(client.subscription, TABLE, b"", self.now, self.now + 60.0)
            self._feed(name, asked)
        self._tick_client(name)
        return name

    def _tick_client(self, name: str) -> None:
        self._feed(name, ev.Ticked(self.now))
        self.later(0.01, lambda: self._tick_client(name))

    def ask(self, name: str, keys: list[bytes], kinds: Sequence[str] = KINDS) -> None:
        """One operation, chosen at random."""
        key = self.random.choice(keys)
        kind = self.random.choice(kinds)
        value = f"v{next(self._values)}".encode() if kind.startswith("put") else None
        operation = Operation(kind, value, self.now)
        ticket = next(self._tickets)
        self.clients[name].running[ticket] = operation
        self.history.setdefault(key, []).append(operation)
        deadline = self.now + 60.0
        if kind == "read":
            self._feed(name, cc.ReadAsked(ticket, [(TABLE, key)], self.now, deadline))
        elif kind == "delete":
            self._feed(name, cc.WriteAsked(ticket, [Delete(TABLE, key)], self.now, deadline))
        else:
            assert value is not None
            put = Put(TABLE, key, value, kind == "put_if_absent")
            self._feed(name, cc.WriteAsked(ticket, [put], self.now, deadline))

    def _carry_client(self, name: str, instructions: list[ev.Instruction]) -> None:
        client = self.clients[name]
        for one in instructions:
            if isinstance(one, ev.Send):
                self._send(name, one.to, one.message)
            elif isinstance(one, cc.Complete):
                operation = client.running.pop(one.ticket, None)
                if operation is not None:
                    operation.answered = self.now
                    operation.result = one.result[0] if operation.kind == "read" else one.result
            elif isinstance(one, cc.Fail):
                assert "the disk is full" in one.reason, f"a call failed: {one.reason}"
                del client.running[one.ticket]
                self.refused += 1
            elif isinstance(one, cc.TellChanges):
                client.heard += one.changes

    # ---- a whole run ----

    def run(self, duration: float = 2.0, clients: int = 4, keys: int = 4, pause_s: float = 0.01) -> None:
        names = [add for _ in range(clients) if (add := self.add_client())]
        listener = self.add_client(subscribes=True)
        self.run_until(0.3)
        rows = [b"k0", b"k4", b"k1", b"k5"][:keys]  # in both shards
        for name in names:
            self._work(name, rows, duration, pause_s)
        self._plan_faults(duration)
        self.run_until(duration)
        self.calm_down(rows, listener)

    def calm_down(self, rows: list[bytes], listener: str) -> None:
        """Let everything end, and see that it ended well."""
        self.is_calm = True
        self._heal([(a, b) for a in self.groups for b in self.groups if a != b])
        self.run_until(self.now + 30.0, lambda: not any(client.running for client in self.clients.values()))
        stuck = {name: list(client.running.values()) for name, client in self.clients.items() if client.running}
        if stuck:
            self.forced_end = self._why_nobody_answers()
            assert self.forced_end, f"these calls never ended: {stuck}"
            self.check_histories()
            return
        self.run_until(self.now + 2.0)
        self.check(rows, listener)

    def _work(self, name: str, keys: list[bytes], end: float, pause_s: float) -> None:
        if self.now < end:
            if len(self.clients[name].running) < 2:
                self.ask(name, keys)
            self.later(self.random.expovariate(1 / pause_s), lambda: self._work(name, keys, end, pause_s))

    def _plan_faults(self, duration: float) -> None:
        at = lambda: self.random.uniform(0.0, duration * 0.8 - self.now)  # noqa: E731
        for _ in range(self.faults.joins):
            self.later(at(), self.add_server)
        for _ in range(self.faults.crashes):
            self.later(at(), self.crash_some)
        for _ in range(self.faults.resignations):
            self.later(at(), self.resign_some)
        for _ in range(self.faults.partitions):
            self.later(at(), lambda: self.partition(self.random.uniform(0.05, 0.6)))
        for _ in range(self.faults.pauses):
            self.later(
                at(), lambda: self.pause(self.random.choice(self.living()).state.name, self.random.uniform(0.01, 0.7))
            )

    def crash_some(self) -> None:
        """One that the store survives: not the last complete replica of a shard, nor a majority of the council."""
        candidates = [server.state.name for server in self.living() if self._can_do_without(server.state.name)]
        if candidates:
            self.crash(self.random.choice(candidates))

    def resign_some(self) -> None:
        """One of more than two that take part: who only wants to has no rows yet."""
        taking_part = self.chosen[max(self.chosen)].servers
        candidates = self._staying()
        if sum(name in taking_part for name in candidates) > 2:
            self.resign(self.random.choice(candidates))

    def _staying(self) -> list[str]:
        return [server.state.name for server in self.living() if not server.is_leaving]

    def _can_do_without(self, name: str) -> bool:
        newest = self.chosen[max(self.chosen)]
        alive = set(self._staying()) - {name}
        council = sum(member in alive for member in newest.council)
        # A configuration that is being decided may cut others, so two complete ones must be left.
        complete = [
            sum(
                place.server in alive
                and (replica := self.servers[place.server].state.replicas.get(shard)) is not None
                and replica.is_complete
                for place in chain.members
            )
            for shard, chain in enumerate(newest.chains)
        ]
        is_settled = all(
            member in alive for chain in newest.chains for member in (p.server for p in chain.members) if member != name
        )
        return council >= newest.majority and min(complete) >= 2 and is_settled

    # ---- what must hold ----

    def longest_call(self) -> float:
        """So long somebody waited for an answer, or waits."""
        return max(min(one.answered, self.now) - one.called for calls in self.history.values() for one in calls)

    def check_order(self) -> None:
        """REP-1, between those that have adopted the same version."""
        for server in self.living():
            for shard, replica in server.state.replicas.items():
                successor = replica.successor
                if successor is None or not self.servers[successor.server].is_alive or not replica.is_complete:
                    continue
                other = self.servers[successor.server].state.replicas.get(shard)
                if other is not None and other.place == successor and other.chain == replica.chain:
                    assert other.applied <= replica.applied, f"{successor} is ahead of {replica.place}"

    def check_histories(self) -> None:
        for key, operations in self.history.items():
            assert is_linearizable(operations), f"the history of {key!r} is not linearizable: {operations}"

    def check(self, keys: list[bytes], listener: str) -> None:
        self.check_histories()
        newest = self.chosen[max(self.chosen)]
        final: dict[bytes, bytes] = {}
        journals: list[list[Entry]] = []
        for shard, chain in enumerate(newest.chains):
            storages = [self.servers[place.server].storages[shard] for place in chain.members]
            assert all(storage.rows == storages[0].rows for storage in storages), f"replicas of {shard} differ"
            final.update({key: value for (table, key), value in storages[-1].rows.items() if table == TABLE})
            journals.append(storages[-1].journal)
        heard: dict[bytes, bytes | None] = {}
        for key, value in self.clients[listener].heard:
            heard[key] = value
        told = {key: value for key, value in heard.items() if value is not None}
        written_after = {key: value for key, value in final.items() if key in heard or key in told}
        assert told == written_after, f"a subscriber believes {told}, but there is {final}"
