"""Jobs that outlive whoever submits them: a command that runs as a driver on a node of the cluster.

>>> client = JobSubmissionClient("127.0.0.1:6379")
>>> job = client.submit_job(entrypoint="python train.py", runtime_env={"working_dir": "./code"})
>>> client.get_job_status(job)
<JobStatus.RUNNING: 'RUNNING'>
>>> print(client.get_job_logs(job))

The same as `weft job` on the command line, with Ray's names. Their output is kept by the cluster (the last 64 MiB).
"""

from __future__ import annotations

import asyncio
import codecs
import dataclasses
import enum
import hashlib
import json
import os
import tempfile
import time
import zipfile
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from weft.engine.cluster.client import Client, meant_address

__all__ = ["DriverInfo", "JobDetails", "JobInfo", "JobStatus", "JobSubmissionClient", "JobType"]

FOLLOW_S = 0.2
"""How often a log that is followed is looked at."""
_UPLOAD_BYTES = 4 << 20
_WAIT_S = 20.0


class JobStatus(str, enum.Enum):
    """Where a job stands; the last three are for good."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"

    def is_terminal(self) -> bool:
        """Whether the job has ended."""
        return self in (JobStatus.STOPPED, JobStatus.SUCCEEDED, JobStatus.FAILED)

    def __str__(self) -> str:
        return self.value


class JobType(str, enum.Enum):
    """Submitted with `weft job submit`, or a driver that attached by itself."""

    SUBMISSION = "SUBMISSION"
    DRIVER = "DRIVER"


@dataclasses.dataclass(frozen=True)
class DriverInfo:
    """Of the process that runs the command."""

    id: str
    node_ip_address: str
    pid: str


@dataclasses.dataclass(frozen=True)
class JobDetails:
    """All that is known of a job. Times are in milliseconds since 1970, as Ray has them."""

    type: JobType
    submission_id: str
    status: JobStatus
    entrypoint: str
    message: str
    metadata: dict[str, str]
    runtime_env: dict[str, Any]
    start_time: int
    end_time: int | None
    driver_node_id: str
    driver_exit_code: int | None
    """Negative: the signal that ended it. None while it runs, and where it could not be run."""
    driver_info: DriverInfo | None = None
    job_id: str | None = None
    error_type: str | None = None


JobInfo = JobDetails


class JobSubmissionClient:
    """Talks to one cluster: `address` is its HOST:PORT, by default that of WEFT_ADDRESS or of the only one here.

    ConnectionError when there is no such cluster, or several and none is named. Ray's other parameters have no
    effect."""

    def __init__(
        self,
        address: str | None = None,
        create_cluster_if_needed: bool = False,
        cookies: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        headers: Mapping[str, Any] | None = None,
        verify: str | bool | None = True,
        *,
        token_file: str | None = None,
    ) -> None:
        self._client = Client(meant_address(address), token_file)

    def get_address(self) -> str:
        """Of the cluster."""
        return self._client.address

    def get_version(self) -> str:
        """Of Weft, in this process."""
        import weft

        return weft.__version__

    def submit_job(
        self,
        *,
        entrypoint: str,
        job_id: str | None = None,
        runtime_env: Mapping[str, Any] | None = None,
        metadata: Mapping[str, str] | None = None,
        submission_id: str | None = None,
        entrypoint_num_cpus: float | None = None,
        entrypoint_num_gpus: float | None = None,
        entrypoint_memory: int | None = None,
        entrypoint_resources: Mapping[str, float] | None = None,
        entrypoint_label_selector: Mapping[str, str] | None = None,
        node_id: str = "",
    ) -> str:
        """Have the command (for /bin/sh) run; its id, once a node has taken it.

        It runs on the head, or on the node whose id begins with `node_id`, or on the first that has the resources and
        labels that are named; they choose the node and are not set aside there. ValueError for what makes no sense,
        such as an id that is taken."""
        named = {"CPU": entrypoint_num_cpus, "GPU": entrypoint_num_gpus, "memory": entrypoint_memory}
        resources = {name: float(amount) for name, amount in named.items() if amount} | dict(entrypoint_resources or {})
        labels = dict(entrypoint_label_selector or {})
        place = self._client.ask("job_place", node=node_id, resources=resources, labels=labels)
        shown = json.dumps(dict(runtime_env), default=str) if runtime_env else ""
        return str(
            self._client.ask(
                "job_submit",
                entrypoint=entrypoint,
                id=submission_id or job_id or "",
                metadata=dict(metadata or {}),
                runtime_env=self._prepared(runtime_env or {}, place["node"]),
                shown_env=shown,
                number=place["node"],
                node_id=place["node_id"],
            )
        )

    def stop_job(self, job_id: str) -> bool:
        """Ask it to end (SIGTERM, after three seconds SIGKILL, and all that it has started); False when it is over."""
        return bool(self._ask("job_stop", id=job_id))

    def delete_job(self, job_id: str) -> bool:
        """Forget a job that is over, and its output. RuntimeError while it runs."""
        return bool(self._ask("job_delete", id=job_id))

    def get_job_info(self, job_id: str) -> JobDetails:
        """All that is known of a job."""
        return _details(self._ask("job_info", id=job_id))

    def list_jobs(self) -> list[JobDetails]:
        """All that were submitted."""
        return [_details(row) for row in self._ask("job_list")]

    def get_job_status(self, job_id: str) -> JobStatus:
        """PENDING, RUNNING, STOPPED, SUCCEEDED or FAILED."""
        return self.get_job_info(job_id).status

    def get_job_logs(self, job_id: str) -> str:
        """What it has written until now, as far as it is kept."""
        return "".join(self._log_parts(job_id, follow=False))

    async def tail_job_logs(self, job_id: str) -> AsyncIterator[str]:
        """What it has written and writes, in parts, until it is over."""
        parts = self._log_parts(job_id, follow=True)
        while (part := await asyncio.to_thread(next, parts, None)) is not None:
            yield part

    def follow_job_logs(self, job_id: str) -> Iterator[str]:
        """The same without asyncio."""
        return self._log_parts(job_id, follow=True)

    def wait_until_over(self, job_id: str, timeout_s: float | None = None) -> JobDetails:
        """Block until the job is over. TimeoutError after `timeout_s`."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = _WAIT_S if deadline is None else deadline - time.monotonic()
            job = _details(self._ask("job_wait", id=job_id, wait_s=max(0.0, min(left_s, _WAIT_S))))
            if job.status.is_terminal():
                return job
            if left_s <= 0:
                raise TimeoutError(f"job {job_id} is still {job.status} after {timeout_s:g} s")

    # ---- inside ----

    def _ask(self, method: str, **params: Any) -> Any:
        try:
            return self._client.ask(method, **params)
        except (LookupError, ValueError) as error:  # Ray's client knows RuntimeError alone
            raise RuntimeError(str(error)) from error

    def _log_parts(self, job_id: str, follow: bool) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        offset = 0
        while True:
            read = self._ask("job_log", id=job_id, offset=offset)
            offset = read["offset"]
            if read["data"]:
                if text := decoder.decode(read["data"]):
                    yield text
            elif read["is_over"] or not follow:
                return
            else:
                time.sleep(FOLLOW_S)

    def _prepared(self, given: Mapping[str, Any], node: int) -> dict[str, Any]:
        """In its normal form, with local folders uploaded to the node and their packages' names in their place."""
        if not given:
            return {}
        from weft.environments import packages
        from weft.environments.validation import normalise

        env = normalise(given, of_job=True)
        excludes = env.pop("excludes", [])
        with tempfile.TemporaryDirectory(prefix="weft-package-") as folder:
            if "working_dir" in env:
                copy = packages.copy_working_dir(env["working_dir"], excludes, folder)
                env["working_dir"] = self._upload(copy, folder, node)
            if "py_modules" in env:
                copies = [packages.copy_module(path, excludes, folder) for path in env["py_modules"]]
                env["py_modules"] = [self._upload(copy, folder, node) for copy in copies]
        return env

    def _upload(self, copy: str, folder: str, node: int) -> str:
        archive = os.path.join(folder, "archive.zip")
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
            for path, names, files in os.walk(copy):
                for name in (*names, *files):
                    file.write(os.path.join(path, name), os.path.relpath(os.path.join(path, name), copy))
        with open(archive, "rb") as reader:
            name = f"{hashlib.sha256(reader.read()).hexdigest()}.zip"
            reader.seek(0)
            offset = 0
            while data := reader.read(_UPLOAD_BYTES):
                self._client.ask("job_upload", node=node, name=name, offset=offset, data=data)
                offset += len(data)
        return name


def _details(row: Mapping[str, Any]) -> JobDetails:
    pid = row["pid"]
    return JobDetails(
        type=JobType.SUBMISSION,
        submission_id=row["submission_id"],
        status=JobStatus(row["status"]),
        entrypoint=row["entrypoint"],
        message=row["message"],
        metadata=row["metadata"],
        runtime_env=json.loads(row["runtime_env"]) if row["runtime_env"] else {},
        start_time=int(row["start_s"] * 1000),
        end_time=None if row["end_s"] is None else int(row["end_s"] * 1000),
        driver_node_id=row["node_id"],
        driver_exit_code=row["exit_code"],
        driver_info=DriverInfo(row["submission_id"], row.get("node_address", ""), str(pid)) if pid else None,
    )
