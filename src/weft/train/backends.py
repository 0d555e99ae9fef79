"""How the workers of a trainer find each other: Weft's own groups, or the distributed modes of the guests.

Weft's group needs nothing set up (`train.get_context().group`) and is there with every backend.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from weft.library.checks import one_of
from weft.train.session import TrainContext, get_context

__all__ = ["BACKENDS", "free_address", "keeps_processes", "lightgbm_network", "prepare_model", "running"]

BACKENDS = ("weft", "torch", "nccl", "gloo", "jax", "xgboost", "lightgbm")
_TORCH = ("torch", "nccl", "gloo")
"""PyTorch's: "torch" takes NCCL where workers have GPUs, gloo elsewhere."""


def keeps_processes(backend: str) -> bool:
    """Whether a process can go on as a worker among others than it began with."""
    return backend in ("weft", "xgboost", "lightgbm")


def free_address(ip: str) -> str:
    """Where this process can listen. It listens later, so another process could take the port; then the start fails."""
    with socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET) as listener:
        listener.bind((ip, 0))
        return f"{ip}:{listener.getsockname()[1]}"


@contextlib.contextmanager
def running(backend: str, context: TrainContext, addresses: Sequence[str], timeout_s: float) -> Iterator[None]:
    """Set up around a loop; each rank has one of the addresses to listen at."""
    if backend in _TORCH:
        with _torch(backend, context, addresses[0], timeout_s):
            yield
    elif backend == "jax":
        with _jax(context, addresses[0], timeout_s):
            yield
    elif backend == "xgboost":
        with _xgboost(context, addresses[0], timeout_s):
            yield
    else:
        context.addresses = tuple(addresses)
        yield


@contextlib.contextmanager
def _torch(backend: str, context: TrainContext, address: str, timeout_s: float) -> Iterator[None]:
    import torch
    from torch import distributed

    has_gpu = torch.cuda.is_available()
    if backend == "nccl" and not has_gpu:
        why = "PyTorch sees no GPU" if torch.version.cuda else "this PyTorch is built without CUDA"
        raise RuntimeError(
            f'backend "nccl" needs a GPU for every worker, but rank {context.rank} on {socket.gethostname()} has none: '
            f'{why}. backend="torch" takes gloo there.'
        )
    host, _, port = address.rpartition(":")
    os.environ.update(
        MASTER_ADDR=host,
        MASTER_PORT=port,
        RANK=str(context.rank),
        WORLD_SIZE=str(context.size),
        LOCAL_RANK=str(context.local_rank),
        LOCAL_WORLD_SIZE=str(context.local_size),
        GROUP_RANK=str(context.node_rank),
    )
    if host.startswith("127."):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    distributed.init_process_group(
        ("nccl" if has_gpu else "gloo") if backend == "torch" else backend,
        init_method=f"tcp://{address}",
        rank=context.rank,
        world_size=context.size,
        timeout=timedelta(seconds=timeout_s),
    )
    try:
        yield
    finally:
        distributed.destroy_process_group()


@contextlib.contextmanager
def _jax(context: TrainContext, address: str, timeout_s: float) -> Iterator[None]:
    import jax

    jax.distributed.initialize(
        coordinator_address=address,
        num_processes=context.size,
        process_id=context.rank,
        initialization_timeout=int(timeout_s),
    )
    try:
        yield
    finally:
        jax.distributed.shutdown()  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def _xgboost(context: TrainContext, address: str, timeout_s: float) -> Iterator[None]:
    """Rank 0 has XGBoost's tracker, beside its own part of the work."""
    from xgboost import collective
    from xgboost.tracker import RabitTracker

    host, _, port = address.rpartition(":")
    tracker = None
    if context.rank == 0:
        tracker = RabitTracker(n_workers=context.size, host_ip=host, port=int(port), timeout=int(timeout_s))
        tracker.start()
    context.group.barrier()  # the tracker listens
    with collective.CommunicatorContext(
        dmlc_tracker_uri=host,
        dmlc_tracker_port=int(port),
        dmlc_task_id=f"{context.rank:06d}",
        dmlc_timeout=int(timeout_s),
    ):
        yield
    if tracker is not None:
        tracker.wait_for()


def lightgbm_network(timeout_s: float = 120.0) -> dict[str, Any]:
    """In a loop of a trainer with the backend "lightgbm": the parameters by which LightGBM finds the other workers.

    >>> lgb.train({"objective": "regression", "tree_learner": "data", **train.lightgbm_network()}, dataset)
    """
    context = get_context()
    if context.size == 1:
        return {}
    if len(context.addresses) != context.size:
        raise RuntimeError('lightgbm_network() is for loops of a trainer with backend="lightgbm"')
    return {
        "machines": ",".join(context.addresses),
        "local_listen_port": int(context.addresses[context.rank].rpartition(":")[2]),
        "num_machines": context.size,
        "time_out": max(1, int(timeout_s // 60)),
        "pre_partition": True,
    }


def prepare_model(model: Any, strategy: str = "ddp", blocks: Sequence[type] = (), **options: Any) -> Any:
    """A PyTorch module, on this worker's GPU if it has one, for training by all workers; itself when there is one.

    With "ddp" it is in DistributedDataParallel. With "fsdp" each worker has a share of each parameter, of its gradient
    and of what the optimizer remembers (PyTorch's `fully_shard`): make the optimizer afterwards. A parameter is whole
    while it is computed with; `blocks` are the classes of the submodules that are whole one after the other, and not
    all at once. `options` are DistributedDataParallel's, or `fully_shard`'s."""
    import torch

    one_of("strategy", strategy, ("ddp", "fsdp"))
    context = get_context()
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", context.local_rank % torch.cuda.device_count())
        model = model.to(device)
    if context.size == 1:
        return model
    if strategy == "fsdp":
        return _sharded(model, device, blocks, options)
    from torch.nn.parallel import DistributedDataParallel

    if device.index is not None:
        options.setdefault("device_ids", [device.index])
    return DistributedDataParallel(model, **options)


def _sharded(model: Any, device: Any, blocks: Sequence[type], options: Any) -> Any:
    from torch.distributed import fsdp
    from torch.distributed.device_mesh import init_device_mesh

    fully_shard: Any = fsdp.fully_shard
    options.setdefault("mesh", init_device_mesh(device.type, (get_context().size,)))
    for module in model.modules():
        if module is not model and isinstance(module, tuple(blocks)):
            fully_shard(module, **options)
    return fully_shard(model, **options)
