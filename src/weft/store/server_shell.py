"""A server of the control store: `store/state/chain_server` over sockets and storage.

Runs in a process of its own (`python -m weft.store`), one thread. It keeps a link to every server of the
configuration; one that breaks is made again at once, and when the other machine then says that nobody listens there,
that server is dead for certain. A server from which nothing comes for `SILENT_BEATS` is out of reach.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import sys
import time
from pathlib import Path

import msgspec

from weft.machine import own_folders
from weft.net import pulse
from weft.net.endpoint import Endpoint, dial, most_strangers
from weft.net.failure_log import FailureLog
from weft.net.loop import Loop, Timer
from weft.net.strangers import Strangers
from weft.net.tls import TlsSession
from weft.store.embedded import EmbeddedStorage
from weft.store.journal import pack, unpack
from weft.store.server_config import ServerConfig
from weft.store.state import chain_events as ev
from weft.store.state.chain_layout import Configuration, first_configuration
from weft.store.state.chain_messages import (
    AllRows,
    AnyMessage,
    AskConfiguration,
    Ballot,
    Changes,
    Decided,
    Entry,
    Hello,
    NotServing,
    Pulse,
    ReadRefused,
    ReadReply,
    WriteRefused,
    WriteReply,
)
from weft.store.state.chain_requests import Stale, decide
from weft.store.state.chain_server import StoreServer
from weft.store.state.chain_settings import ServerSettings
from weft.store.storage import (
    Storage,
    StorageDamaged,
    StorageRefused,
    check_answer,
    check_key,
    check_request,
)
from weft.store.store_link import StoreLink

BUSY_S = 0.02
IDLE_S = 0.25
REDIAL_S = 0.25
SOONEST_REDIAL_S = 0.002
BEAT_S = 0.5
"""So often each server says something to each other one."""
SILENT_BEATS = 5
__all__ = ["ServerConfig", "ServerShell"]
_encode = msgspec.msgpack.Encoder().encode
_TO_CLIENTS = (WriteReply, WriteRefused, ReadReply, ReadRefused, NotServing, Changes, AllRows)


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    """What the folder remembers beside the rows."""

    name: str
    configuration: Configuration
    promised: Ballot | None = None
    accepted_ballot: Ballot | None = None
    accepted: Configuration | None = None


class ServerShell:
    """One server, from its start to its end."""

    def __init__(self, loop: Loop, config: ServerConfig, token: bytes) -> None:
        self._loop = loop
        self._config = config
        self._token = token
        self._folder = Path(config.folder) if config.folder else None
        self._kept = self._read_kept()
        self._endpoint = Endpoint(config.host, config.port)
        name = config.name if self._kept is None else self._kept.name
        self.address = self._endpoint.address
        settings = ServerSettings(lease_s=config.lease_s, grace_s=config.grace_s)
        self.state = StoreServer(name, self.address, settings)
        self.storages: dict[int, Storage] = {}
        self._links: dict[str, StoreLink] = {}
        """By the peer's name."""
        self._unnamed: dict[StoreLink, None] = {}
        self._spare: dict[StoreLink, None] = {}
        """Second links, until who has dialled them closes them."""
        self._clients: set[str] = set()
        self._dirty: dict[StoreLink, None] = {}
        self._timer: Timer | None = None
        self._tick_at = 0.0
        self._redial_at: dict[str, float] = {}
        self._attempts: dict[str, int] = {}
        self._silent: set[str] = set()
        """Servers whose last connection fell silent."""
        self._beat_at = 0.0
        self._is_closed = False
        self._strangers = Strangers(most_strangers())
        self._failures = FailureLog(loop, f"control store {name[:12]}: ")
        self._endpoint.open(loop, self._accepted)
        self._begin()

    @property
    def name(self) -> str:
        return self.state.name

    def close(self) -> None:
        self._is_closed = True
        self._endpoint.close()
        for link in [*self._links.values(), *self._unnamed, *self._spare]:
            link.close()
        for storage in self.storages.values():
            if self._config.store and self._folder is None:  # nobody could use these rows again
                with contextlib.suppress(StorageRefused):
                    storage.clear()
            storage.close()

    def resign(self) -> None:
        """End the loop once the other servers can do without this one."""
        self._feed(ev.ResignAsked(time.monotonic()))

    # ---- the beginning ----

    def _begin(self) -> None:
        now = time.monotonic()
        self._clear_replaced()
        if self._kept is not None:
            kept = self._kept
            for shard, chain in enumerate(kept.configuration.chains):
                if any(place.server == self.name for place in chain.members):
                    storage = self.storages[shard] = self._open_storage(shard)
                    self.state.stored[shard] = storage.applied
            self._carry(self.state.found(kept.configuration, now))
            self.state.council.restore(kept.promised, kept.accepted_ballot, kept.accepted)
        elif not self._config.seeds:
            self._carry(self.state.found(first_configuration(self.name, self.address, self._config.shards), now))
        for address in self._config.seeds:
            self._dial("", address)
        self._tick()

    def _open_storage(self, shard: int) -> Storage:
        if self._config.store:
            return self._open_redis(shard, self.name)
        return EmbeddedStorage(None if self._folder is None else self._folder / f"shard-{shard}", self._config.fsync)

    def _open_redis(self, shard: int, server: str) -> Storage:
        from weft.store.redis_storage import EXPIRES_S, RedisStorage

        expires_s = 0 if self._folder is not None else EXPIRES_S  # without a folder nobody could use the rows again
        return RedisStorage(self._config.store, shard, f"weft:{server}", expires_s)

    def _clear_replaced(self) -> None:
        """What cannot be removed now expires."""
        if self._config.store and self._config.replaces:
            with contextlib.suppress(StorageRefused):
                for shard in range(self._config.shards):
                    storage = self._open_redis(shard, self._config.replaces)
                    storage.clear()
                    storage.close()

    # ---- links ----

    def _accepted(self, connection: socket.socket, tls: TlsSession | None) -> None:
        self._strangers.add(self._make_link(connection, True, 0, tls))

    def _make_link(self, connection: socket.socket, accepts: bool, error: int, tls: TlsSession | None) -> StoreLink:
        calls = (self._ready, self._messages, self._closed)
        link = StoreLink(self._loop, connection, self._token, accepts, *calls, error, tls)
        self._unnamed[link] = None
        return link

    def _dial(self, name: str, address: str) -> None:
        self._redial_at[name or address] = time.monotonic() + REDIAL_S
        try:
            connection, error, tls = dial(address, name in self._silent)
        except OSError:  # no descriptor is left now: again at a later tick
            return
        self._silent.discard(name)
        link = self._make_link(connection, False, error, tls)
        link.dialled = name or address

    def _dial_missing(self, now: float) -> None:
        current = self.state.configuration
        if current is None:
            if not self._links and not self._unnamed:
                for address in self._config.seeds:
                    self._dial("", address)
            return
        dialling = {link.dialled for link in self._unnamed}
        for name, address in current.servers.items():
            is_missing = name != self.name and name not in self._links and name not in dialling
            if is_missing and address and self._redial_at.get(name, 0.0) <= now:
                self._dial(name, address)

    def _redial_soon(self, name: str) -> None:
        """A process that is just ending may still accept a connection: ask again until it is clear."""
        attempts = self._attempts[name] = self._attempts.get(name, 0) + 1
        delay = min(REDIAL_S, SOONEST_REDIAL_S * 2**attempts)
        self._redial_at[name] = time.monotonic() + delay
        self._loop.call_later(delay, lambda: None if self._is_closed else self._dial_missing(time.monotonic()))

    def _beat(self, now: float) -> None:
        """A cut cable closes no connection."""
        current = self.state.configuration
        if current is not None and now - self._beat_at >= BEAT_S:
            self._beat_at = now
            for link in [link for name, link in self._links.items() if name in current.servers]:
                link.beat(AskConfiguration(current.number), SILENT_BEATS)

    def _ready(self, link: StoreLink) -> None:
        link.send(Hello(self.name, self.address))
        link.flush()

    def _closed(self, link: StoreLink, reason: str, code: int) -> None:
        self._unnamed.pop(link, None)
        self._spare.pop(link, None)
        self._dirty.pop(link, None)
        if self._is_closed:
            return
        name = link.peer or link.dialled
        if code == errno.ETIMEDOUT:
            self._silent.add(name)
        current = self.state.configuration
        is_server = current is not None and name in current.servers
        other = next((one for one in self._spare if one.peer == link.peer), None) if link.peer else None
        if link.peer and self._links.get(link.peer) is link and other is not None:
            self._links[link.peer] = other
            del self._spare[other]
        elif link.peer and self._links.get(link.peer) is link:
            del self._links[link.peer]
            self._clients.discard(link.peer)
            self._feed(ev.PeerLost(link.peer, False, time.monotonic()))
            if is_server and current is not None:
                self._dial(name, current.servers[name])
        elif not link.peer and is_server:
            if code == errno.ECONNREFUSED and name not in self._links:
                self._feed(ev.PeerLost(name, True, time.monotonic()))
            else:
                self._redial_soon(name)
        elif reason and not link.peer and code not in pulse.ENDED:
            self._failures.say(reason)

    def _messages(self, link: StoreLink, messages: list[AnyMessage]) -> None:
        now = time.monotonic()
        for message in messages:
            if isinstance(message, Hello):
                self._named(link, message, now)
            elif not link.peer:
                return link.close("it did not say who it is")
            elif isinstance(message, Pulse):
                self._send(link.peer, message)
                continue
            elif isinstance(message, _TO_CLIENTS):
                print(
                    f"weft: control store {self.name[:12]}: {link.peer[:12]} sent a {type(message).__name__}, which is "
                    "no message for a server",
                    file=sys.stderr,
                    flush=True,
                )
                return link.close("what came is no message for a server")
            self._carry(self.state.handle(ev.Received(link.peer, message, now)))
        self._end_round()
        return None

    def _named(self, link: StoreLink, message: Hello, now: float) -> None:
        self._unnamed.pop(link, None)
        link.peer = message.name
        self._attempts.pop(message.name, None)
        current = self.state.configuration
        if link.dialled and link.dialled != message.name and current is not None and link.dialled in current.servers:
            self._carry(self.state.handle(ev.PeerLost(link.dialled, True, now)))  # its port is another's now
        if not message.address:
            self._clients.add(message.name)
        before = self._links.get(message.name)
        self._links[message.name] = link
        if before is not None:
            self._keep_one(before, link)
        self._carry(self.state.handle(ev.PeerConnected(message.name, now)))

    def _keep_one(self, before: StoreLink, new: StoreLink) -> None:
        """Of two links to one peer: the newer where one side has dialled twice, else the one that the server with the
        smaller name has dialled. Both sides send over the same one, so neither finds its own silent."""
        is_crossed = bool(before.dialled) != bool(new.dialled)
        is_kept_dialled = self.name < new.peer
        kept, left = (new, before) if not is_crossed or bool(new.dialled) == is_kept_dialled else (before, new)
        self._links[new.peer] = kept
        self._spare[left] = None
        if left.dialled:
            left.close()

    # ---- events and instructions ----

    def _feed(self, event: ev.Event) -> None:
        self._carry(self.state.handle(event))
        self._end_round()

    def _end_round(self) -> None:
        self._carry(self.state.handle(ev.RoundEnded()))
        dirty, self._dirty = self._dirty, {}
        for link in dirty:
            link.flush()
        if self.state.is_out:
            self._loop.stop()
        if self.state.is_busy and self._tick_at > time.monotonic() + BUSY_S:
            self._tick_in(BUSY_S)

    def _tick_in(self, delay: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._tick_at = time.monotonic() + delay
        self._timer = self._loop.call_later(delay, self._tick)

    def _tick(self) -> None:
        if self._is_closed:
            return
        self._timer = None
        self._tick_at = 0.0
        now = time.monotonic()
        self._beat(now)
        self._dial_missing(now)
        for storage in self.storages.values():
            with contextlib.suppress(StorageRefused):  # who reads or writes is told
                storage.tick()
        self._feed(ev.Ticked(now))
        self._tick_in(BUSY_S if self.state.is_busy else IDLE_S)

    def _carry(self, instructions: list[ev.Instruction]) -> None:
        for one in instructions:
            if isinstance(one, ev.Send):
                self._send(one.to, one.message)
            elif isinstance(one, ev.DecideWrite | ev.ApplyEntries | ev.LoadRows):
                self._carry(self.state.handle(self._store(one)))
            elif isinstance(one, ev.ReadRows):
                self._read_rows(one)
            elif isinstance(one, ev.ServeRead):
                self._serve_read(one)
            elif isinstance(one, ev.ServeAllRows):
                with contextlib.suppress(StorageRefused):  # who subscribes asks again
                    rows = self.storages[one.shard].scan(one.table, one.prefix)
                    self._send(one.to, AllRows(one.shard, one.subscription, one.through, rows))
            elif isinstance(one, ev.KeepConfiguration):
                self._keep(one.configuration)
            elif isinstance(one, ev.KeepVotes):
                self._keep_votes(one)
            elif isinstance(one, ev.OpenShard):
                self._open_shard(one)
            elif isinstance(one, ev.DropShard):
                with contextlib.suppress(StorageRefused):  # it expires then
                    self.storages.pop(one.shard).clear()
            elif isinstance(one, ev.Report):
                print(f"weft: control store {self.name[:12]}: {one.text}", file=sys.stderr, flush=True)
            else:
                raise TypeError(f"{type(one).__name__} is no instruction for a server")

    def _send(self, to: str, message: AnyMessage) -> None:
        link = self._links.get(to)
        if link is not None:
            link.send(message)
            self._dirty[link] = None

    # ---- storage ----

    def _open_shard(self, one: ev.OpenShard) -> None:
        storage = self.storages.get(one.shard)
        if one.is_new:
            if storage is not None:
                storage.clear()
            elif self._folder is not None or self._config.store:
                self._open_storage(one.shard).clear()
            self.storages[one.shard] = self._open_storage(one.shard)
        elif storage is None:
            self.storages[one.shard] = self._open_storage(one.shard)

    def _read_rows(self, one: ev.ReadRows) -> None:
        with contextlib.suppress(StorageRefused):  # who copies asks again
            rows, following = self.storages[one.shard].rows_after(one.after)
            self._carry(self.state.handle(ev.RowsRead(one.shard, one.to, one.after, following, rows)))

    def _store(self, one: ev.DecideWrite | ev.ApplyEntries | ev.LoadRows) -> ev.Event:
        storage = self.storages[one.shard]
        if isinstance(one, ev.DecideWrite):
            return self._decide(storage, one)
        try:
            if isinstance(one, ev.ApplyEntries):
                storage.apply(one.entries)
            else:
                storage.load(one.rows, one.is_first, one.applied)
        except StorageRefused as error:
            return ev.ApplyFailed(one.shard, str(error))
        return ev.EntriesApplied(one.shard)

    def _decide(self, storage: Storage, one: ev.DecideWrite) -> ev.Event:
        try:
            check_request(one.request)
            changes, outcomes = decide(storage, one.request)
            if changes is None:
                return ev.WriteDecided(one.shard, None, outcomes)
            entry = Entry(one.seq, changes)
            storage.apply([entry])
        except StorageRefused as error:
            return ev.WriteRejected(one.shard, f"shard {one.shard} cannot store it: {error}", True)
        except (Stale, ValueError) as error:
            return ev.WriteRejected(one.shard, str(error))
        return ev.WriteDecided(one.shard, entry, outcomes)

    def _serve_read(self, one: ev.ServeRead) -> None:
        request = one.request
        storage = self.storages[request.shard]
        try:
            if request.table:
                check_key(request.table, request.prefix)
            for table, key in request.keys:
                check_key(table, key)
            rows = storage.scan(request.table, request.prefix) if request.table else []
            values = storage.read(request.keys)
            check_answer(sum(len(value or b"") for value in values) + sum(len(key) + len(value) for key, value in rows))
            self._send(one.to, ReadReply(request.shard, request.number, values, rows))
        except (ValueError, StorageRefused) as error:
            self._send(one.to, ReadRefused(request.shard, request.number, str(error)))

    # ---- what outlives the process ----

    def _keep(self, configuration: Configuration) -> None:
        self._write_kept(_Kept(self.name, configuration))
        for client in self._clients:
            self._send(client, Decided(configuration))
        self._loop.call_later(0, lambda: None if self._is_closed else self._dial_missing(time.monotonic()))

    def _keep_votes(self, one: ev.KeepVotes) -> None:
        current = self.state.configuration
        if current is not None:
            self._write_kept(_Kept(self.name, current, one.promised, one.accepted_ballot, one.accepted))

    def _write_kept(self, kept: _Kept) -> None:
        if self._folder is None:
            return
        temporary = self._folder / "council.part"
        try:
            with open(temporary, "wb") as file:
                file.write(pack(_encode(kept)))
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(self._folder / "council")
        except OSError as error:  # a vote that may be forgotten must not be given
            raise StorageDamaged(
                f"its part in the council cannot be kept in {self._folder}: {error.strerror or error}. Once that is "
                "mended it comes back with its rows"
            ) from error

    def _read_kept(self) -> _Kept | None:
        if self._folder is None:
            return None
        own_folders.make_closed(self._folder)
        path = self._folder / "council"
        if not path.exists():
            return None
        try:
            return msgspec.msgpack.decode(unpack(path.read_bytes()), type=_Kept)
        except ValueError as error:
            raise StorageDamaged(
                f"{path} is damaged: {error}. If other servers of the store live, remove the folder {self._folder} and "
                "let this one join again; else restore it from a backup."
            ) from error
