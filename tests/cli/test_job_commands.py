"""`weft job`, as a person types it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from command_line import Head


def test_a_job_shows_its_output_and_has_its_exit_status(head: Head) -> None:
    done = head.cli("job", "submit", "--", "sh", "-c", "echo out; echo err >&2; exit 5")
    assert done.returncode == 5
    assert done.stdout == "out\nerr\n"
    assert "FAILED: its command ended with exit code 5" in done.stderr
    assert head.cli("job", "submit", "--", "echo 'as one' $((1 + 1))").stdout == "as one 2\n"


def test_a_job_outlives_its_submitter_and_is_found_again(head: Head, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import weft; weft.init(); print(weft.get(weft.put('hello')))")
    submitted = head.cli("job", "submit", "--no-wait", "--working-dir", str(tmp_path), "--", "python", "script.py")
    job = submitted.stdout.strip()
    followed = head.cli("job", "logs", "--follow", job)
    assert followed.stdout == "hello\n"
    shown = head.cli("job", "status", job)
    assert f"job {job} is SUCCEEDED" in shown.stdout, shown
    assert json.loads(head.cli("job", "status", "--json", job).stdout)["driver_exit_code"] == 0
    assert job in head.cli("job", "list").stdout
    assert job in head.cli("list", "jobs").stdout
    assert job in [one["submission_id"] for one in json.loads(head.cli("job", "list", "--json").stdout)]
    logs = [path.read_text() for path in head.state_folder.glob(f"weft/*/*/{job}/log/*.log")]
    assert logs == ["hello\n"]
    assert head.cli("job", "delete", job).returncode == 0
    unknown = head.cli("job", "logs", job)
    assert unknown.returncode == 1
    assert f"there is no job '{job}' in this cluster" in unknown.stderr


def test_a_job_is_stopped(head: Head) -> None:
    job = head.cli("job", "submit", "--no-wait", "--submission-id", "sleeper", "--", "sleep", "1000").stdout.strip()
    assert job == "sleeper"
    assert head.cli("job", "stop", job).stdout == "job sleeper is STOPPED\n"
    assert "was over already: STOPPED" in head.cli("job", "stop", job).stdout


def test_interrupting_the_submitter_leaves_the_job_alone(head: Head) -> None:
    command = [sys.executable, "-m", "weft.cli", "job", "submit", "--submission-id", "goes-on", "--"]
    with subprocess.Popen(
        [*command, "echo ready; sleep 1000"],
        env={**os.environ, "WEFT_ADDRESS": head.address},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as submitter:
        assert submitter.stdout is not None and submitter.stderr is not None
        assert submitter.stdout.readline() == "ready\n"
        submitter.send_signal(signal.SIGINT)
        assert submitter.wait(30) == 130
        assert "job goes-on runs on" in submitter.stderr.read()
    assert "is RUNNING" in head.cli("job", "status", "goes-on").stdout
    assert head.cli("job", "stop", "goes-on").returncode == 0


def test_the_environment_of_a_job_comes_from_a_file_or_from_the_command(head: Head, tmp_path: Path) -> None:
    file = tmp_path / "env.json"
    file.write_text(json.dumps({"env_vars": {"COLOUR": "red"}}))
    assert head.cli("job", "submit", "--runtime-env", str(file), "--", "echo $COLOUR").stdout == "red\n"
    given = json.dumps({"env_vars": {"COLOUR": "green"}})
    assert head.cli("job", "submit", "--runtime-env-json", given, "--", "echo $COLOUR").stdout == "green\n"
    both = head.cli("job", "submit", "--runtime-env-json", given, "--runtime-env", str(file), "--", "true")
    assert both.returncode == 1
    assert "not both" in both.stderr


def test_a_client_with_the_token_needs_no_node_of_its_own(head: Head) -> None:
    """Over the node's port: a token file makes the client ask there, though the node is of this machine."""
    (token,) = head.state_folder.glob("weft/token-*")
    done = head.cli("job", "submit", "--token-file", str(token), "--", "echo over the port")
    assert done.stdout == "over the port\n", done.stderr
    wrong = head.state_folder / "wrong"
    wrong.write_text("wrong")
    refused = head.cli("job", "list", "--token-file", str(wrong))
    assert refused.returncode == 1
    assert f"the cluster at {head.address} refuses: the token is wrong" in refused.stderr


def test_a_cluster_that_is_not_there_is_named(head: Head) -> None:
    failed = head.run("job", "list", "--address", "127.0.0.1:1", WEFT_TOKEN="x")
    assert failed.returncode == 1
    assert "the cluster at 127.0.0.1:1 cannot be reached: Connection refused" in failed.stderr
