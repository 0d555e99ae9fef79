"""The connections between servers of the control store, in one process and one loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from stores import DEADLINE_S, TOKEN

from weft.net.loop import Loop
from weft.store.server_shell import SILENT_BEATS, ServerConfig, ServerShell


class Servers:
    """Two that know each other; the first one's name is the smaller."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.first = ServerShell(self.loop, ServerConfig("a", shards=1), TOKEN)
        self.second = ServerShell(self.loop, ServerConfig("b", seeds=(self.first.address,), shards=1), TOKEN)
        self.run_until(lambda: all(self._is_whole(one) for one in (self.first, self.second)))

    def _is_whole(self, shell: ServerShell) -> bool:
        current = shell.state.configuration
        return current is not None and len(current.servers) == 2 and current.chains[0].fresh is None

    def run_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, "it never came"
            self.loop.run_once(0.02)

    def close(self) -> None:
        self.first.close()
        self.second.close()
        self.loop.close()


@pytest.fixture
def servers() -> Iterator[Servers]:
    made = Servers()
    try:
        yield made
    finally:
        made.close()


def test_two_servers_that_dial_each_other_at_once_send_over_the_same_connection(servers: Servers) -> None:
    first, second = servers.first, servers.second
    for link in [*first._links.values(), *second._links.values()]:
        link.close()
    first._dial("b", second.address)
    second._dial("a", first.address)
    servers.run_until(
        lambda: "b" in first._links and "a" in second._links and not first._unnamed and not second._unnamed
    )
    servers.run_until(lambda: not first._spare and not second._spare)
    assert first._links["b"].dialled and not second._links["a"].dialled, "the smaller name's is kept"
    kept = (first._links["b"], second._links["a"])
    for _ in range(2 * SILENT_BEATS):
        for shell in (first, second):
            shell._beat_at = 0.0
            shell._beat(time.monotonic())
        for _ in range(4):
            servers.loop.run_once(0.0)
    assert (first._links["b"], second._links["a"]) == kept, "neither took it for silent"
