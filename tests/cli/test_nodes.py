"""`weft start`, `status` and `stop`, as a person types them."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import Run

import weft
from waiting import wait_until
from weft.cli import drain
from weft.engine.cluster import launch
from weft.engine.cluster.client import Client
from weft.engine.cluster.launch import cluster_of
from weft.engine.node.config import ClusterConfig, NodeConfig
from weft.engine.node.launch import find_nodes


def test_the_token_is_kept_when_nobody_reads_what_is_printed(cli: Run, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "weft.cli", "start", "--head", "--port", str(port), "--num-cpus", "1"]
    reading, writing = os.pipe()
    os.close(reading)
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    try:
        subprocess.run(command, env=environment, stdout=writing, stderr=subprocess.DEVNULL, timeout=280)
        assert list(tmp_path.glob("weft/token-*"))
    finally:
        os.close(writing)
        cli("stop", "--address", f"127.0.0.1:{port}")


def test_a_cluster_from_the_command_line(cli: Run, tmp_path: Path) -> None:
    started = cli("start", "--head", "--port", "0", "--num-cpus", "1")
    assert started.returncode == 0, started.stderr
    address = started.stdout.split("of the cluster ")[1].split()[0]
    try:
        (token,) = tmp_path.glob("weft/token-*")
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
        assert token.read_text().strip() not in started.stdout
        refused = cli("start", "--address", address, WEFT_TOKEN="wrong")
        assert refused.returncode == 1
        assert "the token is wrong" in refused.stderr
        joined = cli("start", "--address", address, "--num-cpus", "2", "--resources", '{"extra": 3}')
        assert joined.returncode == 0, joined.stderr
        shown = cli("status", "--address", address)
        assert "2 of 2 nodes are alive" in shown.stdout, shown
        assert ["extra", "0", "3", "3"] in [line.split() for line in shown.stdout.splitlines()]
        weft.init(address=address)

        @weft.remote(resources={"extra": 1})
        def node_id() -> str:
            return weft.get_runtime_context().get_node_id()

        assert weft.get(node_id.remote(), timeout=60)
        weft.shutdown()
    finally:
        weft.shutdown()
        stopped = cli("stop", "--address", address)
    assert "2 of 2 nodes ended" in stopped.stdout, stopped
    assert not list(tmp_path.glob("weft/token-*"))
    gone = cli("status", "--address", address)
    assert gone.returncode == 1
    assert "no node of the cluster" in gone.stderr


def test_a_head_that_is_started_again_joins_the_cluster_that_outlived_it(cli: Run) -> None:
    started = cli("start", "--head", "--port", "0", "--num-cpus", "1")
    address = started.stdout.split("of the cluster ")[1].split()[0]
    port = address.rpartition(":")[2]
    try:
        others = [cli("start", "--address", address, "--num-cpus", "1") for _ in range(2)]
        assert [other.returncode for other in others] == [0, 0], others
        asked = Client(address)
        wait_until(lambda: asked.ask("head")["store"]["replicas"] >= 3)
        os.kill(int(started.stdout.split("(pid ")[1].split(")")[0]), signal.SIGKILL)
        shown = cli("status", "--address", address)
        assert "2 of 3 nodes are alive" in shown.stdout, shown
        again = cli("start", "--head", "--port", port, "--num-cpus", "1")
        assert "lives on with another head" in again.stdout, again
        assert "3 of 4 nodes are alive" in cli("status", "--address", address).stdout
        assert Client(address).ask("head")["epoch"] == 2
    finally:
        stopped = cli("stop", "--address", address)
    assert "3 of 3 nodes ended" in stopped.stdout, stopped


def test_a_head_that_is_stopped_hands_over_and_comes_back_as_a_node(cli: Run, tmp_path: Path) -> None:
    """A node that a test has started stands for one of another machine: `weft stop` leaves it alone."""
    started = cli("start", "--head", "--port", "0", "--num-cpus", "1")
    address = started.stdout.split("of the cluster ")[1].split()[0]
    (token,) = tmp_path.glob("weft/token-*")
    far = launch.start(
        NodeConfig(1.0, 0.0, {}, None, {}),
        token.read_bytes().strip(),
        ClusterConfig(-1, head=address, is_leashed=True, name=address),
    )
    try:
        asked = Client(far.up.local_address)
        wait_until(lambda: asked.ask("head")["store"]["replicas"] >= 2)
        stopped = cli("stop", "--address", address)
        assert "1 of 1 nodes ended" in stopped.stdout and f"the cluster {address} goes on" in stopped.stdout, stopped
        again = cli("start", "--head", "--port", address.rpartition(":")[2], "--num-cpus", "1")
        assert "lives on with another head" in again.stdout, again
        assert asked.ask("head")["node_id"] == far.up.node_id
        ended = cli("stop", "--cluster", "--address", address)
        assert f"the cluster {address} ends, with its 2 nodes" in ended.stdout, ended
        assert far.process.wait(30) == 0 and not token.exists()
    finally:
        far.end()
        cli("stop", "--address", address)


def test_without_a_token_the_way_to_one_is_named(cli: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        failed = cli("start", "--address", f"127.0.0.1:{somebody.getsockname()[1]}")
    assert failed.returncode == 1
    assert "WEFT_TOKEN" in failed.stderr


@pytest.mark.parametrize("token", [{}, {"WEFT_TOKEN": "x"}])
@pytest.mark.parametrize("command", ["start", "status"])
def test_a_wrong_port_is_named_before_a_token_is_asked_for(cli: Run, command: str, token: dict[str, str]) -> None:
    failed = cli(command, "--address", "127.0.0.1:1", **token)
    assert failed.returncode == 1
    assert "Connection refused" in failed.stderr, failed.stderr
    assert "WEFT_TOKEN" not in failed.stderr and "Traceback" not in failed.stderr


def test_where_several_clusters_run_none_is_changed_before_one_is_named(cli: Run) -> None:
    addresses: list[str] = []
    try:
        for _ in range(2):
            started = cli("start", "--head", "--port", "0", "--num-cpus", "1")
            addresses.append(started.stdout.split("of the cluster ")[1].split()[0])
        for command in (
            ["stop"],
            ["stop", "--cluster"],
            ["job", "submit", "--", "true"],
            ["serve", "shutdown"],
        ):
            refused = cli(*command)
            assert refused.returncode == 1, refused
            assert all(address in refused.stderr for address in addresses), refused
            assert "--address" in refused.stderr and "Traceback" not in refused.stderr
        looked = cli("status")
        assert all(address in looked.stdout for address in addresses) and "other sessions" in looked.stdout, looked
        assert "other sessions" not in cli("status", "--address", addresses[0]).stdout
        done = cli("job", "submit", "--", "true", WEFT_ADDRESS=addresses[0])
        assert done.returncode == 0 and f"is submitted to {addresses[0]};" in done.stderr, done
    finally:
        stopped = [cli("stop", "--address", address) for address in addresses]
    assert [
        f"1 of 1 nodes ended, of the cluster {address}" in one.stdout
        for address, one in zip(addresses, stopped, strict=True)
    ] == [True, True], stopped


@pytest.mark.parametrize(
    ("running", "meant"),
    [
        (["@weft-0-1"], "@weft-0-1"),
        (["@weft-0-3", "@weft-0-2+a:1+nl", "@weft-0-1+a:1+hl"], "@weft-0-1+a:1+hl"),
        (["@weft-0-3+b:1+hl", "@weft-0-2+a:1+n", "@weft-0-1+a:1+h"], "@weft-0-1+a:1+h"),
        ([], "no Weft node of this user runs"),
        (["@weft-0-2", "@weft-0-1"], "2 clusters have nodes of this user on this machine: @weft-0-2, @weft-0-1"),
        (["@weft-0-2+a:1+h", "@weft-0-1+b:1+n"], "2 clusters have nodes of this user on this machine: a:1, b:1"),
    ],
)
def test_the_cluster_that_is_meant_is_the_only_one(
    monkeypatch: pytest.MonkeyPatch, running: list[str], meant: str
) -> None:
    monkeypatch.setattr("weft.engine.node.launch.find_nodes", lambda: running)
    if meant.startswith("@"):
        assert launch.the_only() == meant
    else:
        with pytest.raises(ConnectionError, match=meant):
            launch.the_only()


@pytest.mark.parametrize(
    ("running", "meant"),
    [
        ([], None),
        (["@weft-0-2", "@weft-0-1"], "@weft-0-2"),
        (["@weft-0-3+b:1+nl", "@weft-0-2+b:1+hl", "@weft-0-1"], "@weft-0-2+b:1+hl"),
        (["@weft-0-4", "@weft-0-3+b:1+hl", "@weft-0-2+a:1+n", "@weft-0-1+a:1+h"], "@weft-0-1+a:1+h"),
        (["@weft-0-5", "@weft-0-4+c:1+n", "@weft-0-1+a:1+h"], "@weft-0-4+c:1+n"),
    ],
)
def test_auto_means_the_newest_cluster_of_weft_start_before_what_a_program_has_for_itself(
    monkeypatch: pytest.MonkeyPatch, running: list[str], meant: str | None
) -> None:
    monkeypatch.setattr("weft.engine.node.launch.find_nodes", lambda: running)
    assert launch.newest() == meant


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--address", "127.0.0.1:1", "--store", "redis://127.0.0.1:1"], "--store is an option of --head"),
        (["--head", "--store", "redis://127.0.0.1:1"], "--store cannot be used"),
        (["--head", "--store", "nonsense"], "a store must be redis://host:port"),
        (["--address", "127.0.0.1:1", "--shards", "8"], "--shards is an option of --head"),
        (["--head", "--shards", "0"], "--shards must be from 1 to 256, but got 0"),
    ],
)
def test_a_store_that_can_not_be_used_is_named(cli: Run, arguments: list[str], text: str) -> None:
    failed = cli("start", *arguments, WEFT_TOKEN="x")
    assert failed.returncode == 1 and text in failed.stderr, failed.stderr
    assert "Traceback" not in failed.stderr


def test_the_password_of_a_store_is_shown_nowhere(cli: Run, tmp_path: Path) -> None:
    """On the command line every user of the machine would see it."""
    url = "redis://user:hunter2@127.0.0.1:1"
    shown = cli("start", "--head", "--store", url)
    assert shown.returncode != 0 and "--store-file" in shown.stderr
    (tmp_path / "store").write_text(url + "\n")
    from_file = cli("start", "--head", "--store-file", str(tmp_path / "store"))
    from_variable = cli("start", "--head", WEFT_STORE=url)
    broken = cli("start", "--head", WEFT_STORE="redis://:hunter2/hunter2@127.0.0.1:1")
    assert "no server of the store answers: redis://user:***@127.0.0.1:1" in from_file.stderr
    assert "no server of the store answers" in from_variable.stderr and "%2F" in broken.stderr
    for each in (shown, from_file, from_variable, broken):
        assert each.returncode == 1 and "hunter2" not in each.stderr + each.stdout


def test_a_port_in_use_is_named(cli: Run) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        failed = cli("start", "--head", "--port", str(port))
    assert failed.returncode == 1
    assert f"127.0.0.1:{port} is in use" in failed.stderr, failed.stderr
    assert "Traceback" not in failed.stderr


def test_a_head_that_is_not_there_is_named(cli: Run) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        failed = cli("start", "--address", address, WEFT_TOKEN="x")
    assert failed.returncode == 1
    assert f"nobody listens at {address}" in failed.stderr, failed.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["start", "--head", "--resources", "[1]"], "must be a JSON object"),
        (["start", "--head", "--resources", "{"], "must be JSON such as"),
        (["start"], "one of the arguments --head --address is required"),
        (["nonsense"], "invalid choice: 'nonsense'"),
    ],
)
def test_a_command_that_makes_no_sense_ends_with_2(cli: Run, arguments: list[str], text: str) -> None:
    failed = cli(*arguments)
    assert failed.returncode == 2
    assert text in failed.stderr


def test_an_address_without_a_port_is_refused(cli: Run) -> None:
    failed = cli("start", "--address", "somewhere", WEFT_TOKEN="x")
    assert failed.returncode == 1
    assert "must be HOST:PORT" in failed.stderr


def test_stopping_where_nothing_runs_is_no_error(cli: Run) -> None:
    stopped = cli("stop", "--address", "127.0.0.1:1")
    assert stopped.returncode == 0
    assert "no node of the cluster 127.0.0.1:1 was running here" in stopped.stdout


@pytest.mark.parametrize(
    "command", ["", "start", "stop", "status", "demand", "drain", "health", "job", "job submit", "job logs"]
)
def test_every_command_has_help(cli: Run, command: str) -> None:
    shown = cli(*command.split(), "--help")
    assert shown.returncode == 0
    assert shown.stdout.startswith(f"usage: weft {command}".rstrip())
    assert max(map(len, shown.stdout.splitlines())) <= 100


def test_a_node_can_be_told_to_drain_itself_as_a_pod_does_before_it_ends(cli: Run) -> None:
    started = cli("start", "--head", "--port", "0", "--num-cpus", "0")
    cluster = started.stdout.split("of the cluster ")[1].split()[0]
    try:
        (head,) = [name for name in find_nodes() if cluster_of(name) == cluster]
        assert cli("start", "--address", cluster, "--num-cpus", "1").returncode == 0
        (local,) = [name for name in find_nodes() if cluster_of(name) == cluster and name != head]
        assert cli("health", "--address", local).returncode == 0
        node = next(n for n in Client(cluster).ask("status")["nodes"] if not n["is_head"])
        left = cli("drain", node["address"], "--deadline", "30", "--reason", "test", "--address", local)
        assert (left.returncode, "has left" in left.stdout) == (0, True), left
        assert [n["state"] for n in Client(cluster).ask("status")["nodes"]] == ["alive", "dead"]
        gone = cli("health", "--address", local)
        assert gone.returncode == 1
    finally:
        cli("stop", "--address", cluster)


def test_a_node_that_closes_connections_before_it_stops_to_listen_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ending:
        listens = iter((True, True, False))

        def ask(self, method: str, **params: object) -> None:
            raise ConnectionError("the node daemon closed the connection")

        def still_answers(self) -> bool:
            return next(self.listens)

    monkeypatch.setattr(drain, "LOOK_S", 0.0)
    assert drain._state(Ending(), "a node")["state"] == "dead"  # type: ignore[arg-type]


def test_a_node_in_the_foreground_ends_with_its_command(cli: Run, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "weft.cli", "start", "--head", "--port", "0", "--num-cpus", "1", "--block"]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as node:
        assert node.stdout is not None
        lines = iter(node.stdout.readline, "")
        address = next(line for line in lines if "of the cluster" in line).split("of the cluster ")[1].split()[0]
        assert any("to end it" in line for line in lines)
        assert cli("health", "--address", address).returncode == 0
        node.send_signal(signal.SIGTERM)
        assert node.wait(30) == 0
    assert cli("health", "--address", address).returncode == 1
