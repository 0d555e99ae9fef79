"""Jobs that are submitted to a cluster of two nodes."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import weft
from waiting import comes_true
from weft.cluster_utils import Cluster
from weft.job_submission import JobStatus, JobSubmissionClient, JobType


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        cluster.add_node(num_cpus=2, resources={"there": 1}, labels={"zone": "b"})
        weft.init(address=cluster.address)
        yield cluster
    finally:
        weft.shutdown()
        logs = [node.log() for node in cluster.list_all_nodes()]
        cluster.shutdown()
    assert not any(logs), logs


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> JobSubmissionClient:
    return JobSubmissionClient(cluster.address)


def marked(mark: str) -> list[psutil.Process]:
    """The processes whose command line has that word in it."""
    return [one for one in psutil.process_iter(["cmdline"]) if mark in " ".join(one.info["cmdline"] or [])]


def test_a_job_is_a_driver_of_the_cluster(client: JobSubmissionClient, cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import weft\n"
        "weft.init()\n"
        "where = weft.remote(lambda: weft.get_runtime_context().get_node_id())\n"
        "print(weft.get(where.options(resources={'there': 1}).remote()))\n"
    )
    job = client.submit_job(entrypoint="python script.py", runtime_env={"working_dir": str(tmp_path)})
    info = client.wait_until_over(job, 30)
    assert info.status is JobStatus.SUCCEEDED, client.get_job_logs(job)
    assert client.get_job_logs(job).strip() == next(iter(cluster.worker_nodes)).node_id
    assert info.type is JobType.SUBMISSION
    assert info.driver_exit_code == 0
    assert info.end_time is not None and info.end_time >= info.start_time
    assert cluster.head_node is not None and info.driver_node_id == cluster.head_node.node_id


def test_a_failed_command_is_told_with_its_exit_code(client: JobSubmissionClient) -> None:
    job = client.submit_job(entrypoint="echo no >&2; exit 7", metadata={"who": "me"})
    info = client.wait_until_over(job, 30)
    assert (info.status, info.driver_exit_code, info.metadata) == (JobStatus.FAILED, 7, {"who": "me"})
    assert client.get_job_logs(job) == "no\n"


def test_a_stopped_job_leaves_no_process(client: JobSubmissionClient) -> None:
    mark = f"weft-test-{os.getpid()}-{time.monotonic_ns()}"
    stubborn = f"import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000) # {mark}"
    detached = f"setsid sh -c 'sleep 1000; true {mark}' & echo ready; python -c \"{stubborn}\""
    job = client.submit_job(entrypoint=detached)
    assert comes_true(lambda: "ready\n" in client.get_job_logs(job) and bool(marked("SIG_IGN")))
    assert client.stop_job(job)
    assert client.wait_until_over(job, 30).status is JobStatus.STOPPED
    assert marked(mark) == []
    assert client.stop_job(job) is False


def test_a_stopped_program_below_a_shell_has_time_to_clean_up(client: JobSubmissionClient, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import signal, sys, time\n"
        "def clean_up(*_):\n"
        "    time.sleep(0.3)\n"
        "    print('cleaned up')\n"
        "    sys.exit(1)\n"
        "signal.signal(signal.SIGTERM, clean_up)\n"
        "print('ready')\n"
        "time.sleep(1000)\n"
    )
    job = client.submit_job(entrypoint="python slow.py; echo after", runtime_env={"working_dir": str(tmp_path)})
    assert comes_true(lambda: "ready\n" in client.get_job_logs(job))
    client.stop_job(job)
    assert client.wait_until_over(job, 30).status is JobStatus.STOPPED
    assert client.get_job_logs(job) == "ready\ncleaned up\n"


def test_what_a_command_leaves_behind_ends_with_it(client: JobSubmissionClient) -> None:
    mark = f"weft-test-{os.getpid()}-{time.monotonic_ns()}"
    job = client.submit_job(entrypoint=f"setsid sh -c 'sleep 1000; true {mark}' >/dev/null 2>&1 & exit 0")
    assert client.wait_until_over(job, 30).status is JobStatus.SUCCEEDED
    assert marked(mark) == []


def test_a_job_whose_supervisor_is_killed_fails_and_leaves_no_process(client: JobSubmissionClient) -> None:
    mark = f"weft-test-{os.getpid()}-{time.monotonic_ns()}"
    job = client.submit_job(entrypoint=f"sh -c 'setsid sleep 1000; true {mark}' & echo ready; wait")
    assert comes_true(lambda: "ready\n" in client.get_job_logs(job))
    info = client.get_job_info(job)
    assert info.driver_info is not None
    psutil.Process(int(info.driver_info.pid)).parent().send_signal(signal.SIGKILL)
    over = client.wait_until_over(job, 30)
    assert over.status is JobStatus.FAILED
    assert "was killed" in over.message
    assert comes_true(lambda: not marked(mark))


def test_output_can_be_followed_until_the_end(client: JobSubmissionClient) -> None:
    job = client.submit_job(entrypoint="for i in 1 2 3; do echo line $i; sleep 0.1; done")

    async def follow() -> str:
        return "".join([part async for part in client.tail_job_logs(job)])

    assert asyncio.run(follow()) == "line 1\nline 2\nline 3\n"


def test_a_job_has_its_environment_and_modules(client: JobSubmissionClient, tmp_path: Path) -> None:
    package = tmp_path / "package_of_a_job"
    package.mkdir()
    (package / "__init__.py").write_text("VALUE = 'from the package'\n")
    env = {"env_vars": {"COLOUR": "blue"}, "py_modules": [str(package)]}
    code = "import os, package_of_a_job as p; print(os.environ['COLOUR'], p.VALUE, 'WEFT_TOKEN' in os.environ)"
    job = client.submit_job(entrypoint=f'python -c "{code}"', runtime_env=env)
    client.wait_until_over(job, 30)
    assert client.get_job_logs(job) == "blue from the package False\n"
    told = client.get_job_info(job).runtime_env
    assert told == {**env, "env_vars": {"COLOUR": "***"}}, "who looks at a job does not see the values"


def test_a_job_runs_on_the_node_that_is_named_or_has_what_it_needs(
    client: JobSubmissionClient, cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "data.txt").write_text("uploaded")
    (other,) = cluster.worker_nodes
    wishes: list[dict[str, object]] = [
        {"node_id": other.node_id[:8]},
        {"entrypoint_resources": {"there": 1}},
        {"entrypoint_num_cpus": 2},
        {"entrypoint_label_selector": {"zone": "b"}},
    ]
    for wish in wishes:
        job = client.submit_job(entrypoint="cat data.txt", runtime_env={"working_dir": str(tmp_path)}, **wish)
        assert client.wait_until_over(job, 30).driver_node_id == other.node_id
        assert client.get_job_logs(job) == "uploaded"
    with pytest.raises(ValueError, match="no living node"):
        client.submit_job(entrypoint="true", entrypoint_resources={"there": 2})


def test_a_job_ends_with_its_node(client: JobSubmissionClient, cluster: Cluster) -> None:
    node = cluster.add_node(num_cpus=1, resources={"short-lived": 1})
    job = client.submit_job(entrypoint="sleep 1000", entrypoint_resources={"short-lived": 1})
    assert comes_true(lambda: client.get_job_status(job) is JobStatus.RUNNING)
    cluster.remove_node(node)
    over = client.wait_until_over(job, 30)
    assert (over.status, over.driver_exit_code) == (JobStatus.FAILED, None)
    assert "node that ran its command is gone" in over.message


def test_jobs_are_listed_and_deleted(client: JobSubmissionClient) -> None:
    job = client.submit_job(entrypoint="true", submission_id="my-job")
    assert job == "my-job"
    with pytest.raises(ValueError, match="is taken"):
        client.submit_job(entrypoint="true", submission_id="my-job")
    client.wait_until_over(job, 30)
    assert job in [one.submission_id for one in client.list_jobs()]
    assert client.delete_job(job)
    with pytest.raises(RuntimeError, match="no job 'my-job'"):
        client.get_job_info(job)


@pytest.mark.parametrize("name", ["../up", ".hidden", "a/b"])
def test_an_id_that_could_lead_out_of_the_folder_is_refused(client: JobSubmissionClient, name: str) -> None:
    with pytest.raises(ValueError, match="a submission id must "):
        client.submit_job(entrypoint="true", submission_id=name)
    assert name not in [one.submission_id for one in client.list_jobs()]


def test_jobs_and_their_files_end_with_the_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    mark = f"weft-test-{os.getpid()}-{time.monotonic_ns()}"
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        client = JobSubmissionClient(cluster.address)
        job = client.submit_job(entrypoint=f"echo ready; setsid sh -c 'sleep 1000; true {mark}'")
        assert comes_true(lambda: "ready\n" in client.get_job_logs(job))
        assert cluster.head_node is not None
        cluster.head_node.kill()
        assert comes_true(lambda: not marked(mark))
    finally:
        cluster.shutdown()


def test_where_there_is_no_cluster_the_way_to_one_is_named() -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        JobSubmissionClient("nonsense")
