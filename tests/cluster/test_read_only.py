"""The read-only token: its holder looks at all and changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.cluster_utils import Cluster
from weft.engine.cluster import launch
from weft.engine.cluster.client import Client
from weft.engine.node.config import ClusterConfig, NodeConfig
from weft.engine.node.operations import Outcome, value_of
from weft.engine.wire import link_codec, roles
from weft.engine.wire import link_messages as lm
from weft.engine.wire.link import CHUNK, HEADER, MESSAGE, NAME, RECORDS, RESUME
from weft.job_submission import JobSubmissionClient
from weft.net.auth import Refused, read_only
from weft.net.endpoint import BlockingStream


@pytest.fixture
def reader(cluster: Cluster) -> bytes:
    return read_only(cluster._token)


def ask(cluster: Cluster, token: bytes, method: str, **params: object) -> object:
    answer = launch.exchange(cluster.address, token, lm.Call(1, method, params), 10)
    assert isinstance(answer, lm.CallAnswer)
    return value_of(Outcome(answer.value, answer.error, answer.error_kind))


def test_its_holder_sees_the_cluster_changes_nothing_and_is_told_why(cluster: Cluster, reader: bytes) -> None:
    assert len(launch.ask_nodes(cluster.address, reader).members) == 1
    assert ask(cluster, reader, "status")
    assert ask(cluster, reader, "job_list") == []
    for method in ("job_submit", "job_run", "job_upload", "job_stop", "end_cluster", "drain", "inputs", "dashboard"):
        with pytest.raises(RuntimeError, match="the read-only token is not for"):
            ask(cluster, reader, method)
    with pytest.raises(Refused, match="the token is wrong"):
        launch.ask_nodes(cluster.address, read_only(reader))
    assert ask(cluster, cluster._token, "job_list") == []


def test_its_holder_submits_no_job_and_joins_with_no_node(cluster: Cluster, reader: bytes, tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(reader)
    client = JobSubmissionClient(cluster.address, token_file=str(tmp_path / "token"))
    assert client.list_jobs() == []
    with pytest.raises(RuntimeError, match="read-only"):
        client.submit_job(entrypoint="echo no")
    joining = ClusterConfig(-1, head=cluster.address, is_leashed=True)
    with pytest.raises(RuntimeError, match="its token may only read"):
        launch.start(NodeConfig(num_cpus=1), reader, joining)


def test_frames_that_are_no_questions_end_the_connection(cluster: Cluster, reader: bytes) -> None:
    for kind in (NAME, CHUNK, RECORDS, RESUME):
        with BlockingStream(cluster.address, 10) as stream:
            launch.prove(stream, reader)
            stream.send(HEADER.pack(16, kind) + bytes(16))
            with pytest.raises(ConnectionError):
                stream.receive()


def test_a_question_that_is_nested_without_end_ends_the_connection_and_not_the_node(
    cluster: Cluster, reader: bytes
) -> None:
    question = link_codec.encode(lm.Call(1, "status", {"a": None})).removesuffix(b"\xc0") + b"\x91" * 100_000
    with BlockingStream(cluster.address, 10) as stream:
        launch.prove(stream, reader)
        stream.send(HEADER.pack(len(question), MESSAGE) + question)
        with pytest.raises(ConnectionError):
            stream.receive()
    assert ask(cluster, reader, "status")


def test_what_it_is_for_is_there(cluster: Cluster) -> None:
    assert cluster.head_node is not None
    client = Client(cluster.head_node.local_address)
    for method in sorted(roles.READS - {"job_info", "job_log", "job_wait", "drain_state"}):  # these want an id
        client.ask(method, **({"what": "tasks", "limit": 1} if method == "rows" else {}))
