"""`weft job`: commands that run as drivers on a node of the cluster, and outlive whoever submits them."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
import sys
from pathlib import Path
from typing import Any

from weft.cli.options import ONLY, Commands, add_address, add_command, add_json, clock, print_json, table
from weft.job_submission import JobDetails, JobStatus, JobSubmissionClient
from weft.net.shown import harmless, printable


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "job",
        help="submit a program, read its output, stop it",
        description="Programs that run on the cluster, whoever submitted them being there or not.",
    )
    inner = parser.add_subparsers(required=True, metavar="COMMAND")
    submit = add_command(
        inner,
        "submit",
        _submit,
        "run a command on the cluster",
        "Runs a command on the cluster's head (or another node) and shows its output until it ends; the exit status is "
        "the command's. Interrupting this command does not stop the job.",
        "weft job submit -- python train.py --epochs 3\n"
        "weft job submit --working-dir . --no-wait -- python train.py\n"
        "weft job submit --runtime-env-json '{\"pip\": [\"six\"]}' -- python -c 'import six'",
    )
    add_address(submit, ONLY)
    submit.add_argument("--submission-id", metavar="ID", help="its id (default: one is made)")
    submit.add_argument("--working-dir", metavar="PATH", help="a folder or .zip that is uploaded; it runs in there")
    submit.add_argument("--runtime-env", metavar="FILE", help="its runtime environment, a JSON file")
    submit.add_argument("--runtime-env-json", metavar="JSON", help="the same, here")
    submit.add_argument("--metadata-json", metavar="JSON", help="shown with the job")
    submit.add_argument("--node", metavar="ID", default="", help="the node to run on (default: the head)")
    submit.add_argument("--no-wait", action="store_true", help="only print the job's id")
    submit.add_argument("entrypoint", nargs="+", metavar="WORD", help="the command, after --")
    logs = _of_one(inner, "logs", _logs, "what a job has written")
    logs.add_argument("-f", "--follow", action="store_true", help="go on until it ends")
    stop = _of_one(inner, "stop", _stop, "end a job and all that it has started")
    stop.add_argument("--no-wait", action="store_true", help="do not wait for its end")
    add_json(_of_one(inner, "status", _status, "where a job stands"))
    _of_one(inner, "delete", _delete, "forget a job that is over, and its output")
    listing = add_command(inner, "list", _list, "all jobs", "All jobs that were submitted to the cluster.")
    add_address(listing, ONLY)
    add_json(listing)


def _of_one(commands: Commands, name: str, run: Any, summary: str) -> argparse.ArgumentParser:
    parser = add_command(commands, name, run, summary, f"{summary[0].upper()}{summary[1:]}.", f"weft job {name} ID")
    parser.add_argument("id", metavar="JOB", help="its id, as `weft job submit` has printed it")
    add_address(parser, ONLY)
    return parser


def _client(options: argparse.Namespace) -> JobSubmissionClient:
    return JobSubmissionClient(options.address, token_file=options.token_file)


def _submit(options: argparse.Namespace) -> int:
    client = _client(options)
    words = options.entrypoint
    job = client.submit_job(
        entrypoint=words[0] if len(words) == 1 else shlex.join(words),
        submission_id=options.submission_id,
        runtime_env=_runtime_env(options),
        metadata=json.loads(options.metadata_json) if options.metadata_json else None,
        node_id=options.node,
    )
    to = client.get_address()
    print(f"weft: job {job} is submitted to {to}; to stop it: weft job stop {job}", file=sys.stderr, flush=True)
    if options.no_wait:
        print(job)
        return 0
    try:
        _show(client, job)
    except KeyboardInterrupt:
        print(f"\nweft: job {job} runs on; to see more: weft job logs --follow {job}", file=sys.stderr)
        return 130
    return _report(client.wait_until_over(job))


def _runtime_env(options: argparse.Namespace) -> dict[str, Any]:
    if options.runtime_env and options.runtime_env_json:
        raise ValueError("give --runtime-env or --runtime-env-json, not both")
    env: dict[str, Any] = {}
    if options.runtime_env:
        env = json.loads(Path(options.runtime_env).read_text())
    elif options.runtime_env_json:
        env = json.loads(options.runtime_env_json)
    if not isinstance(env, dict):
        raise ValueError(f"the runtime environment must be a JSON object, but got {env!r}")
    if options.working_dir:
        env["working_dir"] = options.working_dir
    return env


def _report(job: JobDetails) -> int:
    """Say how it ended; the exit status that tells it to a shell."""
    print(
        f"weft: job {printable(job.submission_id)} {job.status.value}: {printable(job.message, 2000)}", file=sys.stderr
    )
    if job.status is JobStatus.SUCCEEDED:
        return 0
    code = job.driver_exit_code
    return 1 if code is None or code == 0 else code if code > 0 else 128 - code


def _show(client: JobSubmissionClient, job: str) -> None:
    for part in client.follow_job_logs(job):
        sys.stdout.write(_shown(part))
        sys.stdout.flush()


def _logs(options: argparse.Namespace) -> int:
    client = _client(options)
    if options.follow:
        try:
            _show(client, options.id)
        except KeyboardInterrupt:
            return 130
    else:
        sys.stdout.write(_shown(client.get_job_logs(options.id)))
    return 0


def _shown(output: str) -> str:
    """Files get what the job wrote; a terminal what does no harm there."""
    return harmless(output) if sys.stdout.isatty() else output


def _stop(options: argparse.Namespace) -> int:
    client = _client(options)
    if not client.stop_job(options.id):
        print(f"job {options.id} was over already: {client.get_job_status(options.id)}")
    elif options.no_wait:
        print(f"job {options.id} has been asked to stop")
    else:
        print(f"job {options.id} is {client.wait_until_over(options.id).status}")
    return 0


def _status(options: argparse.Namespace) -> int:
    job = _client(options).get_job_info(options.id)
    if options.json:
        print_json(dataclasses.asdict(job))
    else:
        print(f"job {printable(job.submission_id)} is {job.status}: {printable(job.message, 2000)}")
        print(f"  command  {printable(job.entrypoint, 2000)}")
        print(f"  began    {clock(job.start_time / 1000)}")
        print(f"  ended    {clock(job.end_time / 1000 if job.end_time is not None else None)}")
        print(f"  node     {job.driver_node_id[:8]}")
    return 0


def _delete(options: argparse.Namespace) -> int:
    _client(options).delete_job(options.id)
    print(f"job {options.id} is deleted")
    return 0


def _list(options: argparse.Namespace) -> int:
    jobs = _client(options).list_jobs()
    if options.json:
        print_json([dataclasses.asdict(job) for job in jobs])
    elif not jobs:
        print("no job was submitted")
    else:
        rows = [
            [printable(job.submission_id), job.status.value, clock(job.start_time / 1000), printable(job.entrypoint)]
            for job in jobs
        ]
        print(table(["job", "status", "began", "command"], rows, indent=""))
    return 0
