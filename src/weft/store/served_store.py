"""A node's access to the cluster's control store: a server beside its daemon, and clients of it.

Runs in the daemon's thread. Not every node has one: the head has some of the others start a server (`heading`), and
only such a node can become the head. What a head writes goes out under one name with numbers that begin with its
epoch: once a shard has done a request of a later head it refuses those of an earlier one, however late they come.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from weft.net.loop import Loop
from weft.store.server_config import SHARDS
from weft.store.state.chain_rows import Key, Write

if TYPE_CHECKING:  # a cluster of one node has no store and need not load it
    from weft.store.server_process import RunningServer
    from weft.store.store_client import ControlClient, Done

HEAD = "head"
EPOCH_SHIFT = 40
WITHDRAW_S = 2.0
"""A node that ends waits no longer for the other servers to do without its own."""
FOR_EVER_S = 1e9
"""A head's writes are never given up: it has told nobody yet that they are done."""
AGAIN_S = 1.0
_STANDARD_ERROR = 2


class Store(Protocol):
    """What a daemon needs of the control store."""

    address: str
    """Where the server beside this daemon listens; empty while there is none."""
    url: str
    """redis://… where the servers keep the rows; empty: in their memory."""
    shards: int
    """Of how many it is made: what a founder was told, or another node has heard when it was to join."""

    def found(self, on_up: Callable[[], None]) -> None:
        """Begin a store."""

    def join(self, seeds: Sequence[str], on_up: Callable[[], None]) -> None:
        """Start a server that takes part in the store of those."""

    def reach(self, seeds: Sequence[str]) -> None:
        """Use the store of those without a server of one's own."""

    def withdraw(self, then: Callable[[], None]) -> None:
        """End the server beside this daemon; `then` is called when the others do without it, or soon in any case.
        Who asks again meanwhile is not called."""

    def begin_epoch(self, epoch: int) -> None:
        """What is kept from now on is written as the head of that epoch."""

    def keep(self, batch: Sequence[Write], done: Done) -> None: ...
    def write(self, batch: Sequence[Write], done: Done) -> None: ...
    def read(self, keys: Sequence[Key], done: Done) -> None: ...
    def scan(self, table: str, done: Done, prefix: bytes = b"") -> None: ...
    def close(self) -> None: ...

    @property
    def is_lost(self) -> bool:
        """Whether most of those that decide, or all that had a shard's rows, are certainly dead: it is of no use."""

    def statistics(self) -> dict[str, int]:
        """servers, shards, and replicas of the shard that has fewest."""


class ServedStore:
    """A server that is a child of this daemon."""

    def __init__(
        self, loop: Loop, token: bytes, host: str, on_lost: Callable[[], None], url: str = "", shards: int = SHARDS
    ) -> None:
        """`on_lost`: the only server of the store is gone, and all rows with it; an empty one is being begun.
        `shards`: of a store that is begun here; another has what its founder gave it."""
        self._loop = loop
        self._token = token
        self._host = host
        self._on_lost = on_lost
        self._on_up: Callable[[], None] = lambda: None
        self._seeds: tuple[str, ...] = ()
        self._server: RunningServer | None = None
        self._client: ControlClient | None = None
        self._head: ControlClient | None = None
        self._epoch = 0
        self._early: list[Callable[[], None]] = []
        """Calls from before the server was up."""
        self._on_ended: Callable[[], None] | None = None
        """Set when the server was asked to end."""
        self._dead = ""
        """The server that the next one takes the place of."""
        self._is_closed = False
        self.address = ""
        self.url = url
        self.shards = shards

    def found(self, on_up: Callable[[], None]) -> None:
        self._on_up = on_up
        self._start(())

    def join(self, seeds: Sequence[str], on_up: Callable[[], None]) -> None:
        self._on_up = on_up
        self._start(tuple(seeds))

    def _start(self, seeds: tuple[str, ...]) -> None:
        from weft.store.server_config import ServerConfig
        from weft.store.server_process import RunningServer, new_name

        self._seeds = seeds
        config = ServerConfig(
            new_name(), self._host, seeds=seeds, shards=self.shards, store=self.url, replaces=self._dead
        )
        self._dead = config.name
        try:
            self._server = RunningServer(config, self._token, log=_STANDARD_ERROR)
        except OSError as error:
            print(f"weft: the control store's server cannot be started now: {error}", file=sys.stderr, flush=True)
            self._loop.call_later(AGAIN_S, lambda: None if self._is_closed else self._start(seeds))
            return
        self._loop.watch(self._server.fileno(), self._server_says)

    def _server_says(self) -> None:
        """It is up, or has ended."""
        assert self._server is not None
        server, fd = self._server, self._server.fileno()
        if server.up is None and (up := server.take_up()) is not None:
            self.address = up.address
            self._connect()
            return
        self._loop.unwatch(fd)
        server.end()
        self._server = None
        if self._on_ended is not None:
            self._on_ended()
            return
        print(f"weft: the control store's server of this node ended ({server.process.returncode})", file=sys.stderr)
        self._loop.call_later(AGAIN_S, self._start_again)

    def withdraw(self, then: Callable[[], None]) -> None:
        if self._on_ended is not None:
            return
        if self._server is None or self._server.up is None:
            then()
            return
        calls = [then]
        self._on_ended = lambda: calls.pop()() if calls else None
        self._loop.call_later(WITHDRAW_S, self._on_ended)
        self._server.resign()

    def _start_again(self) -> None:
        if self._is_closed or self._on_ended is not None:
            return
        configuration = self._client.state.configuration if self._client is not None else None
        known = configuration.servers.values() if configuration is not None else self._seeds
        seeds = tuple(address for address in known if address and address != self.address)
        if not seeds and self._client is not None:
            for client in (self._client, self._head):
                if client is not None:
                    client.close()
            self._client = self._head = None
            self._on_lost()
        self._start(seeds)

    def reach(self, seeds: Sequence[str]) -> None:
        """It connects at the first need."""
        self._seeds = tuple(seeds)
        if self._early:
            self._make_client()

    def _connect(self) -> None:
        if self._client is None:
            self._make_client()
        self._on_up()

    def _make_client(self) -> None:
        from weft.store.server_process import new_name
        from weft.store.store_client import ControlClient

        seeds = [address for address in (self.address, *self._seeds) if address]
        self._client = ControlClient(self._loop, new_name(), self._token, seeds)
        if self._epoch:
            self.begin_epoch(self._epoch)
        early, self._early = self._early, []
        for call in early:
            call()

    def begin_epoch(self, epoch: int) -> None:
        from weft.store.store_client import ControlClient

        self._epoch = epoch
        if self._client is not None:
            seeds = [self.address, *self._seeds]
            first = epoch << EPOCH_SHIFT
            self._head = ControlClient(self._loop, HEAD, self._token, seeds, FOR_EVER_S, first)

    def keep(self, batch: Sequence[Write], done: Done) -> None:
        self._when_up(lambda: self._head_client().write(batch, done))

    def write(self, batch: Sequence[Write], done: Done) -> None:
        self._when_up(lambda: self._any_client().write(batch, done))

    def read(self, keys: Sequence[Key], done: Done) -> None:
        self._when_up(lambda: self._any_client().read(keys, done))

    def scan(self, table: str, done: Done, prefix: bytes = b"") -> None:
        self._when_up(lambda: self._any_client().scan(table, prefix, done))

    def _when_up(self, call: Callable[[], Any]) -> None:
        if self._client is None and self._seeds and not self.address and self._server is None:
            self._make_client()
        if self._client is None:
            self._early.append(call)
        else:
            call()

    def _any_client(self) -> ControlClient:
        assert self._client is not None
        return self._client

    def _head_client(self) -> ControlClient:
        assert self._head is not None
        return self._head

    @property
    def is_lost(self) -> bool:
        configuration = self._client.state.configuration if self._client is not None else None
        if self._client is None or configuration is None or not self.address:
            return False
        return configuration.is_lost(self._client.refused)

    def statistics(self) -> dict[str, int]:
        configuration = self._client.state.configuration if self._client is not None else None
        if configuration is None:
            return {"servers": 0, "shards": 0, "replicas": 0}
        replicas = min(len(chain.members) - (chain.fresh is not None) for chain in configuration.chains)
        return {"servers": len(configuration.servers), "shards": len(configuration.chains), "replicas": replicas}

    def close(self) -> None:
        self._is_closed = True
        for client in (self._client, self._head):
            if client is not None:
                client.close()
        if self._server is not None:
            self._loop.unwatch(self._server.fileno())
            self._server.end()
