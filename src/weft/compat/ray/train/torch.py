"""`ray.train.torch` of Ray 2.60."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import weft.train
from weft.compat.ray.train.data_parallel_trainer import DataParallelTrainer

__all__ = [
    "TorchConfig",
    "TorchTrainer",
    "get_device",
    "get_devices",
    "prepare_data_loader",
    "prepare_model",
]


@dataclass
class TorchConfig:
    """Which backend torch.distributed has; by default NCCL with GPUs, else gloo."""

    backend: str | None = None
    init_method: str = "env"
    timeout_s: int = 1800


class TorchTrainer(DataParallelTrainer):
    """The loop in several workers, with torch.distributed between them."""

    backend = "torch"

    def __init__(self, train_loop_per_worker: Any, *, torch_config: TorchConfig | None = None, **given: Any) -> None:
        super().__init__(train_loop_per_worker, backend_config=torch_config, **given)


def get_device() -> Any:
    """The GPU of this worker, or the CPU."""
    return get_devices()[0]


def get_devices() -> list[Any]:
    import torch

    if not torch.cuda.is_available():
        return [torch.device("cpu")]
    return [torch.device("cuda", weft.train.get_context().local_rank % torch.cuda.device_count())]


def prepare_model(
    model: Any,
    move_to_device: Any = True,
    parallel_strategy: str | None = "ddp",
    parallel_strategy_kwargs: dict[str, Any] | None = None,
) -> Any:
    """On this worker's device, and in DistributedDataParallel where there are several workers."""
    if parallel_strategy == "fsdp":
        from torch.distributed.fsdp import FullyShardedDataParallel

        model = model.to(get_device()) if move_to_device else model
        return FullyShardedDataParallel(model, **(parallel_strategy_kwargs or {}))
    if parallel_strategy is None:
        return model.to(get_device()) if move_to_device else model
    return weft.train.prepare_model(model, **(parallel_strategy_kwargs or {}))


def prepare_data_loader(
    data_loader: Any, add_dist_sampler: bool = True, move_to_device: bool = True, auto_transfer: bool = True
) -> Any:
    """The same data, of which each worker gets its part, on this worker's device."""
    import torch.utils.data as data

    context = weft.train.get_context()
    is_iterable = isinstance(data_loader.dataset, data.IterableDataset)
    if add_dist_sampler and context.size > 1 and not is_iterable:
        shuffles = not isinstance(data_loader.sampler, data.SequentialSampler)
        sampler: Any = data.DistributedSampler(data_loader.dataset, context.size, context.rank, shuffle=shuffles)
        data_loader = data.DataLoader(
            data_loader.dataset,
            batch_size=data_loader.batch_size,
            sampler=sampler,
            num_workers=data_loader.num_workers,
            collate_fn=data_loader.collate_fn,
            pin_memory=data_loader.pin_memory,
            drop_last=data_loader.drop_last,
            timeout=data_loader.timeout,
            worker_init_fn=data_loader.worker_init_fn,
        )
    device = get_device()
    return _Moved(data_loader, device) if move_to_device and device.type != "cpu" else data_loader


class _Moved:
    """A loader whose batches lie on a device."""

    def __init__(self, loader: Any, device: Any) -> None:
        self._loader, self._device = loader, device

    def __iter__(self) -> Iterator[Any]:
        return (_moved(batch, self._device) for batch in self._loader)

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def _moved(value: Any, device: Any) -> Any:
    if hasattr(value, "to"):
        return value.to(device)
    if isinstance(value, dict):
        return {key: _moved(one, device) for key, one in value.items()}
    return type(value)(_moved(one, device) for one in value) if isinstance(value, list | tuple) else value
