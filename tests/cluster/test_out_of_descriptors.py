"""A node daemon that has no descriptor left: what needs one waits, nobody ends, and all goes on when there are some."""

from __future__ import annotations

import contextlib
import resource
import socket
from collections.abc import Iterator

import pytest
from clusters import THERE, TwoNodes

import weft
from waiting import wait_until
from weft.cluster_utils import ClusterNode
from weft.engine.cluster import launch
from weft.engine.cluster.client import Client
from weft.engine.node.config import ClusterConfig, NodeConfig
from weft.net.loop import Loop


@pytest.fixture
def nodes() -> Iterator[TwoNodes]:
    made = TwoNodes()
    try:
        yield made
    finally:
        weft.shutdown()
        made.cluster.shutdown()


@weft.remote(num_cpus=0)
class Here:
    def say(self) -> str:
        return "here"


@contextlib.contextmanager
def starved(node: ClusterNode) -> Iterator[None]:
    """That node's daemon gets no descriptor; those that it has it keeps."""
    before = resource.prlimit(node.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (4, before[1]))
    try:
        yield
    finally:
        resource.prlimit(node.pid, resource.RLIMIT_NOFILE, before)


def test_strangers_take_a_part_of_few_descriptors_and_the_rest_is_for_the_honest() -> None:
    few = ["bash", "-c", 'ulimit -n 256; exec "$0" "$@"']
    cluster = ClusterConfig(-1, is_leashed=True)
    running = launch.start(NodeConfig(num_cpus=1), b"token", cluster, prefix=few)
    host, _, port = running.up.address.rpartition(":")
    strangers = [socket.create_connection((host, int(port)), 20) for _ in range(400)]
    try:
        assert strangers[0].recv(1) == b""  # others came after it
        assert Client(running.up.local_address).ask("status", timeout_s=5)
        weft.init(address=running.up.local_address)
        assert weft.get(Here.remote().say.remote(), timeout=30) == "here"
        assert running.process.poll() is None
        assert "no descriptor is left" not in running.log()
    finally:
        weft.shutdown()
        for stranger in strangers:
            stranger.close()
        running.end()


def test_a_module_that_cannot_be_opened_for_want_of_descriptors_is_waited_for() -> None:
    """The import system says then that it does not exist."""
    loop = Loop()
    tries: list[bool] = []

    def needs_a_module() -> None:
        tries.append(True)
        if len(tries) == 1:
            raise ModuleNotFoundError("No module named 'ssl'")

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    loop.call_later(0, needs_a_module)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        loop.run_once(0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    wait_until(lambda: loop.run_once(0.01) or len(tries) == 2)
    loop.call_later(0, lambda: __import__("weft_has_no_such_module"))
    with pytest.raises(ModuleNotFoundError):
        loop.run_once(0.01)
    loop.close()


@pytest.mark.parametrize("which", ["head", "other"])
def test_a_daemon_without_descriptors_lives_and_goes_on_when_it_has_some(nodes: TwoNodes, which: str) -> None:
    head, other = nodes.cluster.head_node, nodes.other
    assert head is not None
    node = head if which == "head" else other
    here = {} if which == "head" else THERE
    host, _, port = node.node_address.rpartition(":")
    with starved(node), socket.create_connection((host, int(port))) as stranger:
        actors = [Here.options(max_restarts=-1, max_task_retries=-1, **here).remote() for _ in range(3)]
        calls = [actor.say.remote() for actor in actors]
        with pytest.raises((TimeoutError, ConnectionError)):
            Client(node.local_address).ask("status", timeout_s=2)
        stranger.send(b"x")
        assert head.is_alive() and other.is_alive(), head.log() + other.log()
    assert weft.get(calls, timeout=60) == ["here"] * 3
    assert len(Client(node.local_address).ask("status")["nodes"]) == 2
    late = nodes.cluster.add_node(num_cpus=1)
    wait_until(lambda: sum(row["Alive"] for row in weft.nodes()) == 3)
    assert all(one.is_alive() for one in (head, other, late))
