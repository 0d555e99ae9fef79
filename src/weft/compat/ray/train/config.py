"""What `ray.train` of Ray 2.60 is told: how many workers, where results go, what happens when it fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.tune.config import CheckpointConfig as CheckpointConfig
from weft.tune.config import FailureConfig as FailureConfig


@dataclass
class ScalingConfig:
    """How many workers, and what each has. A pair is the fewest and the most."""

    num_workers: int | tuple[int, int] = 1
    use_gpu: bool = False
    resources_per_worker: Mapping[str, float] | None = None
    placement_strategy: str = "PACK"
    accelerator_type: str | None = None
    trainer_resources: Mapping[str, float] | None = None
    use_tpu: bool = False
    topology: str | None = None
    label_selector: Any = None

    def __post_init__(self) -> None:
        if self.use_tpu or self.topology:
            raise NotImplementedError("Weft's trainers have no TPU topologies: name the resources of a worker")

    @property
    def sizes(self) -> tuple[int | None, int]:
        """The fewest workers, None for all of them, and the most."""
        asked = self.num_workers
        return (None, asked) if isinstance(asked, int) else (asked[0], asked[1])

    @property
    def worker_resources(self) -> dict[str, float]:
        """A CPU unless GPUs are used, as in Ray."""
        given = dict(self.resources_per_worker or {})
        if self.use_gpu:
            given.setdefault("GPU", 1)
        return given or {"CPU": 1}


@dataclass
class RunConfig:
    """The name and the place of a run. `stop`, `verbose` and the like are Tune's and have no effect here."""

    name: str | None = None
    storage_path: str | None = None
    storage_filesystem: Any = None
    failure_config: FailureConfig | None = None
    checkpoint_config: CheckpointConfig | None = None
    callbacks: Sequence[Any] | None = None
    worker_runtime_env: Mapping[str, Any] | None = None
    sync_config: Any = None
    stop: Any = None
    verbose: Any = None
    progress_reporter: Any = None
    log_to_file: Any = False
    logging_config: Any = None

    def __post_init__(self) -> None:
        if self.storage_filesystem is not None:
            raise NotImplementedError("give storage_path as an fsspec URL: Weft takes no pyarrow filesystem")


@dataclass
class DataConfig:
    """All datasets are split among the workers; naming some would give the others whole, which Weft does not do."""

    datasets_to_split: Any = "all"
    execution_options: Any = None
    enable_shard_locality: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.datasets_to_split != "all":
            raise NotImplementedError("Weft's trainers split every dataset: read one that is to stay whole in the loop")
