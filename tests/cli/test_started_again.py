"""Every process of a cluster ends at once, as after a power cut, and `weft start --head` starts it again."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from command_line import Run

import weft
import weft.serve as serve
from waiting import wait_until
from weft.engine.cluster.client import Client
from weft.engine.node.launch import find_nodes
from weft.engine.process.session import rpc
from weft.job_submission import JobSubmissionClient
from weft.util.placement_group import get_placement_group, placement_group


@weft.remote(checkpoint=5, num_cpus=0, lifetime="detached")
class Counter:
    """Exact."""

    def __init__(self, start: int) -> None:
        self.value = start

    def add(self) -> int:
        self.value += 1
        return self.value


@weft.remote(num_cpus=0)
class Greeter:
    """Plain."""

    def __init__(self, name: str) -> None:
        self.name = name

    def greet(self) -> str:
        return f"hello {self.name}"


@serve.deployment
class Echo:
    """An application."""

    def __init__(self, before: str) -> None:
        self.before = before

    def __call__(self, text: str) -> str:
        return self.before + text


class Cluster:
    """On a port of its own, with a state folder of its own."""

    def __init__(self, cli: Run, state: Path) -> None:
        self.cli = cli
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.store = state / "weft" / f"store-127.0.0.1-{self.port}"
        self.head_command = ("start", "--head", "--port", str(self.port), "--num-cpus", "2")
        self.pids: list[int] = []

    def start_head(self, *options: str) -> str:
        return self._started(*self.head_command, *options)

    def add_node(self, *options: str) -> int:
        self._started("start", "--address", self.address, "--num-cpus", "1", *options)
        return self.pids[-1]

    def _started(self, *command: str) -> str:
        done = self.cli(*command)
        assert done.returncode == 0, done
        self.pids.append(int(done.stdout.split("(pid ")[1].split(")")[0]))
        return done.stdout

    def kill_all(self) -> None:
        """Daemons first, as nobody is to see another one die; all that is below them goes with them."""
        below = [child for pid in self.pids for child in psutil.Process(pid).children(recursive=True)]
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
        self.pids = []
        for child in below:
            with contextlib.suppress(psutil.NoSuchProcess):  # it may have ended with its daemon
                child.kill()
        psutil.wait_procs(below)
        weft.shutdown()


@pytest.fixture
def cluster(cli: Run, tmp_path: Path) -> Cluster:
    return Cluster(cli, tmp_path)


def events() -> list[str]:
    return [row["message"] for row in rpc.request("list_cluster_events", limit=1000)]


def test_what_a_cluster_has_is_there_after_each_of_two_full_stops(cluster: Cluster) -> None:
    try:
        assert f"its store: {cluster.store}\n" in cluster.start_head()
        cluster.add_node("--resources", '{"elsewhere": 1}')
        weft.init(address=cluster.address, namespace="n")
        counter = Counter.options(name="counter").remote(10)
        assert weft.get([counter.add.remote() for _ in range(7)]) == list(range(11, 18))
        far = Counter.options(name="far", resources={"elsewhere": 1}).remote(0)
        assert weft.get(far.add.remote()) == 1
        greeter = Greeter.options(name="greeter", lifetime="detached").remote("you")
        assert weft.get(greeter.greet.remote()) == "hello you"
        large = Greeter.options(name="large", lifetime="detached").remote("x" * 200_000)  # an object of this driver
        assert weft.get(large.greet.remote())
        mine = Greeter.options(name="mine").remote("me")
        assert weft.get(mine.greet.remote()) == "hello me"
        rpc.request("kv_put", key="key", value=b"value")
        serve.run(Echo.bind("served: "), name="echo", route_prefix=None)
        group = placement_group([{"CPU": 1}], name="group", lifetime="detached")
        assert weft.get(group.ready(), timeout=60)
        jobs = JobSubmissionClient(cluster.address)
        done = jobs.submit_job(entrypoint="echo from a job")
        cut_off = jobs.submit_job(entrypoint="echo begun; sleep 600")
        wait_until(lambda: jobs.get_job_status(done) == "SUCCEEDED" and "begun" in jobs.get_job_logs(cut_off))
        for number in range(2):
            cluster.kill_all()
            shown = cluster.start_head()
            assert "started again with" in shown, shown
            weft.init(address=cluster.address, namespace="n")
            assert weft.get(weft.get_actor("counter").add.remote(), timeout=30) == 18 + number
            assert weft.get(weft.get_actor("greeter").greet.remote(), timeout=30) == "hello you"
            with pytest.raises(ValueError, match="mine"):
                weft.get_actor("mine")  # its driver has ended
            assert rpc.request("kv_get", key="key") == b"value"
            assert weft.get(get_placement_group("group").ready(), timeout=30)
            assert serve.get_app_handle("echo").remote("text").result(timeout_s=30) == "served: text"
            jobs = JobSubmissionClient(cluster.address)
            assert jobs.get_job_status(done) == "SUCCEEDED"
            assert jobs.get_job_logs(done) == "from a job\n"
            failed = jobs.get_job_info(cut_off)
            assert failed.status == "FAILED"
            assert failed.message == "the cluster was stopped while it ran, and started again"
            assert jobs.get_job_logs(cut_off) == "begun\n"
            waiting = weft.get_actor("far").add.remote()  # for a node that has what it needs
            cluster.add_node("--resources", '{"elsewhere": 1}')
            assert weft.get(waiting, timeout=30) == 2 + number
        wait_until(lambda: any("the constructor of actor Greeter 'large'" in text for text in events()))
        assert sum("started the cluster again, as head" in text for text in events()) == 2
    finally:
        weft.shutdown()
        stopped = cluster.cli("stop", "--address", cluster.address)
    assert "2 of 2 nodes ended" in stopped.stdout, stopped


def kill_while_it_starts(cluster: Cluster, log: Path, grown: int) -> None:
    """When it has the folder, and has written so many bytes to its log."""
    size, before = log.stat().st_size, (cluster.store / "lock").read_text()
    command = [sys.executable, "-m", "weft.cli", *cluster.head_command]
    starting = subprocess.Popen(command, env={**os.environ, "XDG_STATE_HOME": str(cluster.store.parents[1])})
    wait_until(lambda: (cluster.store / "lock").read_text() not in (before, "") and log.stat().st_size >= size + grown)
    os.kill(int((cluster.store / "lock").read_text().split()[1]), signal.SIGKILL)
    starting.wait()


def test_a_start_that_is_killed_on_its_way_costs_nothing(cluster: Cluster) -> None:
    try:
        cluster.start_head()
        weft.init(address=cluster.address, namespace="n")
        counter = Counter.options(name="counter").remote(0)
        assert weft.get([counter.add.remote() for _ in range(3)]) == [1, 2, 3]
        cluster.kill_all()
        (log,) = cluster.store.glob("rows-*/log-*")
        for grown in (0, 1, 300):
            kill_while_it_starts(cluster, log, grown)
        assert "started again with 1 actor," in cluster.start_head()
        weft.init(address=cluster.address, namespace="n")
        assert weft.get(weft.get_actor("counter").add.remote(), timeout=30) == 4
    finally:
        weft.shutdown()
        cluster.cli("stop", "--address", cluster.address)


def test_the_folder_is_kept_by_whoever_is_the_head_and_by_one_at_a_time(cluster: Cluster) -> None:
    try:
        cluster.start_head()
        refused = cluster.cli("start", "--head", "--port", "0", "--store", str(cluster.store))
        assert refused.returncode == 1
        assert f"in use by another head (pid {cluster.pids[0]} on" in refused.stderr, refused
        second = cluster.add_node()
        cluster.add_node()
        weft.init(address=cluster.address, namespace="n")
        counter = Counter.options(name="counter").remote(0)
        assert weft.get(counter.add.remote()) == 1
        weft.shutdown()
        asked = Client(cluster.address)
        wait_until(lambda: asked.ask("head")["store"]["replicas"] >= 3)
        os.kill(cluster.pids.pop(0), signal.SIGKILL)
        wait_until(lambda: f"pid {second} on" in (cluster.store / "lock").read_text())
        weft.init(address=cluster.address, namespace="n")
        assert weft.get(weft.get_actor("counter").add.remote(), timeout=30) == 2
        rpc.request("kv_put", key="late", value=b"value")
        wait_until(lambda: (cluster.store / "rows-2" / "snapshot-0").exists())
        rpc.request("kv_put", key="later", value=b"value")
        cluster.kill_all()
        assert "started again with 1 actor, 2 keys" in cluster.start_head()
        weft.init(address=cluster.address, namespace="n")
        assert weft.get(weft.get_actor("counter").add.remote(), timeout=30) == 3
    finally:
        weft.shutdown()
        cluster.cli("stop", "--address", cluster.address)


def test_a_head_may_keep_nothing(cluster: Cluster) -> None:
    try:
        assert "its store" not in cluster.start_head("--no-store")
        assert not cluster.store.exists()
    finally:
        cluster.cli("stop", "--address", cluster.address)


def test_a_head_in_whose_place_another_acts_comes_back_as_a_node(cluster: Cluster) -> None:
    try:
        cluster.start_head()
        for _ in range(2):
            cluster.add_node()
        asked = Client(cluster.address)
        wait_until(lambda: asked.ask("head")["store"]["replicas"] >= 3)
        weft.init(address=cluster.address, namespace="n")
        counter = Counter.options(name="counter").remote(0)
        assert weft.get(counter.add.remote()) == 1
        weft.shutdown()
        other = next(one for one in find_nodes() if one.endswith(f"+{cluster.address}+n"))
        head = cluster.pids[0]
        os.kill(head, signal.SIGSTOP)
        wait_until(lambda: Client(other).ask("head")["epoch"] == 2)
        os.kill(head, signal.SIGCONT)

        def alive() -> list[str]:
            """Of the new head's opinion."""
            return [row["address"] for row in Client(other).ask("status")["nodes"] if row["state"] == "alive"]

        wait_until(lambda: len(alive()) == 3)
        assert cluster.address in alive()  # where it has always listened
        assert psutil.Process(head).is_running()
        weft.init(address=cluster.address, namespace="n")
        assert weft.get(weft.get_actor("counter").add.remote(), timeout=30) == 2
    finally:
        weft.shutdown()
        stopped = cluster.cli("stop", "--address", cluster.address)
    assert "3 of 3 nodes ended" in stopped.stdout, stopped
