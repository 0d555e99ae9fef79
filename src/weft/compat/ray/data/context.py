"""Settings of Ray Data 2.60. Weft sizes blocks and tasks by itself, so they are kept and read back, without effect."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar


@dataclass
class ExecutionResources:
    """Amounts of resources; None is no bound."""

    cpu: float | None = None
    gpu: float | None = None
    object_store_memory: float | None = None
    memory: float | None = None


@dataclass
class ExecutionOptions:
    """How a dataset runs: blocks come in their order here, wherever they were made."""

    resource_limits: ExecutionResources = field(default_factory=ExecutionResources)
    exclude_resources: ExecutionResources = field(default_factory=ExecutionResources)
    locality_with_output: bool | list[str] = False
    preserve_order: bool = True
    actor_locality_enabled: bool = True
    verbose_progress: bool = False


class DataContext:
    """What a program has set; any name may be set, as Ray's grow with its versions."""

    _current: ClassVar[DataContext | None] = None

    def __init__(self) -> None:
        self.execution_options = ExecutionOptions()
        self.target_max_block_size = 128 << 20
        self.target_min_block_size = 1 << 20
        self.read_op_min_num_blocks = 200
        self.enable_progress_bars = True
        self.eager_free = False
        self.use_push_based_shuffle = False
        self._config: dict[str, Any] = {}

    @classmethod
    def get_current(cls) -> DataContext:
        """This process's."""
        if DataContext._current is None:
            DataContext._current = cls()
        return DataContext._current

    def set_config(self, key: str, value: Any) -> None:
        """Keep a value of one's own."""
        self._config[key] = value

    def get_config(self, key: str, default: Any = None) -> Any:
        """What was kept."""
        return self._config.get(key, default)


DatasetContext = DataContext
