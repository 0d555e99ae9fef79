"""Stores of real server processes on this machine."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from weft.store.server_process import RunningServer, new_name
from weft.store.server_shell import ServerConfig
from weft.store.state.chain_layout import Configuration
from weft.store.store_client import BlockingClient

TOKEN = b"a token of the tests"
DEADLINE_S = 60.0


class Store:
    """Some servers, and clients of them."""

    def __init__(self, servers: int = 3, shards: int = 2) -> None:
        self.log = os.memfd_create("store-log")
        self.servers: dict[str, RunningServer] = {}
        self.clients: list[BlockingClient] = []
        self.shards = shards
        for _ in range(servers):
            self.add_server()

    def add_server(self, folder: str = "") -> str:
        seeds = tuple(server.up.address for server in self.servers.values() if server.up is not None)
        server = RunningServer(
            ServerConfig(new_name(), seeds=seeds, shards=self.shards, folder=folder), TOKEN, self.log
        )
        up = server.wait_up()
        self.servers[up.name] = server
        return up.name

    def client(self, token: bytes = TOKEN, give_up_s: float = 30.0) -> BlockingClient:
        addresses = [server.up.address for server in self.servers.values() if server.up is not None]
        self.clients.append(BlockingClient(new_name(), token, addresses, give_up_s))
        return self.clients[-1]

    def kill(self, name: str) -> None:
        self.servers.pop(name).kill()

    def wait_for(self, client: BlockingClient, condition: Callable[[Configuration], bool]) -> Configuration:
        """A configuration for which it holds."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            current = client.client.state.configuration
            if current is not None and condition(current):
                return current
            assert time.monotonic() < deadline, f"it never came: {current}\n{self.log_text()}"
            client.run_for(0.02)

    def wait_whole(self, client: BlockingClient, length: int) -> Configuration:
        """Until every chain has so many complete members and nobody joins."""
        return self.wait_for(
            client,
            lambda one: all(
                len(chain.members) == length and chain.joining is None and chain.fresh is None for chain in one.chains
            ),
        )

    def log_text(self) -> str:
        return os.pread(self.log, 1 << 20, 0).decode()

    def close(self) -> None:
        for client in self.clients:
            client.close()
        threads = [threading.Thread(target=server.end) for server in self.servers.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        os.close(self.log)
