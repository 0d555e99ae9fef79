"""`ray.job_config.JobConfig` of Ray 2.60: what a job is given, as one object for `ray.init(job_config=...)`."""

from __future__ import annotations

from typing import Any


class JobConfig:
    """`runtime_env` and `ray_namespace` are as `init`'s own; `code_search_path` is where workers look for modules.

    What else Ray has is kept, without effect.
    """

    def __init__(
        self,
        jvm_options: list[str] | None = None,
        code_search_path: list[str] | str | None = None,
        runtime_env: dict[str, Any] | None = None,
        _client_job: bool = False,
        metadata: dict[str, Any] | None = None,
        ray_namespace: str | None = None,
        default_actor_lifetime: str = "non_detached",
        _py_driver_sys_path: list[str] | None = None,
    ) -> None:
        self.jvm_options = jvm_options or []
        self.code_search_path = [code_search_path] if isinstance(code_search_path, str) else code_search_path or []
        self.runtime_env = runtime_env or {}
        self.metadata = metadata or {}
        self.ray_namespace = ray_namespace
        self.set_default_actor_lifetime(default_actor_lifetime)

    def set_metadata(self, key: str, value: str) -> None:
        """Keep it."""
        self.metadata[key] = value

    def set_runtime_env(self, runtime_env: dict[str, Any] | None, validate: bool = False) -> None:
        """Of the job's workers."""
        self.runtime_env = runtime_env or {}

    def set_ray_namespace(self, ray_namespace: str) -> None:
        """Of the job's named actors."""
        self.ray_namespace = ray_namespace

    def set_default_actor_lifetime(self, default_actor_lifetime: str) -> None:
        """Only "non_detached": what outlives the job is asked for where it is made."""
        if default_actor_lifetime != "non_detached":
            raise ValueError(
                f"default_actor_lifetime must be 'non_detached', but got {default_actor_lifetime!r}: "
                "say lifetime='detached' where the actor is made"
            )

    @classmethod
    def from_json(cls, job_config_json: dict[str, Any]) -> JobConfig:
        """From what a file holds."""
        return cls(
            code_search_path=job_config_json.get("code_search_path"),
            runtime_env=job_config_json.get("runtime_env"),
            metadata=job_config_json.get("metadata"),
            ray_namespace=job_config_json.get("ray_namespace"),
        )

    def given(self) -> dict[str, Any]:
        """As arguments of `init`."""
        wanted = {"runtime_env": self.runtime_env or None, "namespace": self.ray_namespace}
        return {name: value for name, value in wanted.items() if value is not None}
