"""`ray.job_submission` of Ray 2.60: the commands that are submitted find `ray` too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft import job_submission
from weft.compat.addresses import cluster_address
from weft.compat.alias import API_LEVEL, with_alias
from weft.job_submission import DriverInfo, JobDetails, JobInfo, JobStatus, JobType

__all__ = ["DriverInfo", "JobDetails", "JobInfo", "JobStatus", "JobSubmissionClient", "JobType"]


class JobSubmissionClient(job_submission.JobSubmissionClient):
    """Weft's, which also takes the address of Ray's dashboard (http://HOST:8265): the cluster whose head is there."""

    def __init__(self, address: str | None = None, *args: Any, **given: Any) -> None:
        super().__init__(cluster_address(address) if address else None, *args, **given)

    def submit_job(self, *, runtime_env: Mapping[str, Any] | None = None, **given: Any) -> str:
        """As Weft's; `import ray` finds Weft in the command."""
        return super().submit_job(runtime_env=with_alias(runtime_env or {}), **given)

    def get_version(self) -> str:
        """Of the API."""
        return API_LEVEL
