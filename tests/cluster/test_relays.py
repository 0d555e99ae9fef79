"""Another user of the machine listens where a dead node did, and passes on what comes to a living one: he reads and
changes nothing of it, and has nobody do anything for him."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from waiting import wait_until
from weft.cluster_utils import Cluster, ClusterNode
from weft.engine.cluster import launch
from weft.engine.node.config import ClusterConfig, NodeConfig
from weft.engine.wire import link_messages as lm
from weft.job_submission import JobSubmissionClient
from weft.net import endpoint
from weft.net.auth import Refused
from weft.net.endpoint import BlockingStream
from weft.net.tls import Certificate, TlsSession
from weft.store.state.chain_rows import Put
from weft.store.store_client import BlockingClient, ControlStoreError

HONEST, FORGED = "echo honest", "echo forged"


class Relay:
    """Listens on a port of its own, passes all on, and writes FORGED wherever it finds HONEST."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.seen = bytearray()
        self._open: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                one, _ = self._listener.accept()
                other = socket.create_connection(self._target)
                self._open += [one, other]
                for source, sink in ((one, other), (other, one)):
                    threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self.seen += data
                sink.sendall(data.replace(HONEST.encode(), FORGED.encode()))
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


@pytest.fixture
def relay(cluster: Cluster) -> Iterator[Relay]:
    made = Relay(cluster.address)
    yield made
    made.close()


def test_a_relay_changes_no_command_of_a_submitted_job_and_reads_none(
    cluster: Cluster, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_TOKEN", cluster._token.decode())
    client = JobSubmissionClient(relay.address)
    job = client.submit_job(entrypoint=HONEST)
    assert client.get_job_info(job).entrypoint == HONEST
    wait_until(lambda: client.get_job_status(job).is_terminal())
    assert client.get_job_logs(job).strip() == "honest"
    assert relay.seen and HONEST.encode() not in relay.seen and b"echo" not in relay.seen


def test_a_node_that_joins_through_a_relay_tells_it_nothing(cluster: Cluster, relay: Relay) -> None:
    config = ClusterConfig(-1, head=relay.address, is_leashed=True, name=cluster.address)
    node = ClusterNode(launch.start(NodeConfig(num_cpus=1, labels={"say": HONEST}), cluster._token, config), False)
    try:
        members = launch.ask_nodes(cluster.address, cluster._token).members
        assert {"say": HONEST} in [member.labels for member in members]
    finally:
        node.kill()
    assert relay.seen and HONEST.encode() not in relay.seen


@pytest.mark.parametrize("to_node", ["0", "1"], ids=["over TLS", "over the local socket"])
def test_a_relay_that_ends_the_encryption_itself_is_refused(
    cluster: Cluster, to_node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """He has a certificate of his own, and passes on what he has decrypted."""
    monkeypatch.setenv(endpoint.VARIABLE, to_node)
    listener = socket.create_server(("127.0.0.1", 0))
    certificate = Certificate()
    outcome: list[str] = []

    def relay() -> None:
        connection, _ = listener.accept()
        front = TlsSession(certificate)
        with connection, BlockingStream(cluster.address, 10) as back:
            try:
                while came := connection.recv(1 << 16):
                    data = front.feed(came)
                    connection.sendall(front.take_output())
                    if data:
                        back.send(data)
                        front.encrypt(memoryview(back.receive()))
                        connection.sendall(front.take_output())
                outcome.append("the victim left")
            except (OSError, Refused, ValueError) as error:
                outcome.append(repr(error))

    thread = threading.Thread(target=relay)
    thread.start()
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises((Refused, OSError)):
        launch.exchange(address, cluster._token, lm.Ask("nodes"), 10)
    thread.join()
    listener.close()
    assert outcome


def test_a_relay_before_the_control_store_reads_and_changes_no_row() -> None:
    from weft.store.server_config import ServerConfig
    from weft.store.server_process import RunningServer, new_name

    server = RunningServer(ServerConfig(new_name(), "127.0.0.1", shards=1), b"token")
    relay = Relay(server.wait_up().address)
    client = BlockingClient(new_name(), b"token", [relay.address], give_up_s=20)
    try:
        with contextlib.suppress(ControlStoreError):
            client.write([Put("kv", b"key", HONEST.encode())])
            assert client.read([("kv", b"key")]) == [HONEST.encode()]
        assert relay.seen and HONEST.encode() not in relay.seen
    finally:
        client.close()
        relay.close()
        server.end()
