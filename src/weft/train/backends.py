"""How the workers of a trainer find each other: Weft's own groups, PyTorch's process group, or JAX's runtime.

Weft's group needs nothing set up (`train.get_context().group`) and is there with every backend.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from weft.train.session import TrainContext, get_context

__all__ = ["BACKENDS", "free_address", "keeps_processes", "prepare_model", "running"]

BACKENDS = ("weft", "torch", "jax")


def keeps_processes(backend: str) -> bool:
    """Whether a process can go on as a worker among others than it began with."""
    return backend == "weft"


def free_address(ip: str) -> str:
    """Where rank 0 can listen. It listens later, so another process could take the port; then the start fails."""
    with socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET) as listener:
        listener.bind((ip, 0))
        return f"{ip}:{listener.getsockname()[1]}"


@contextlib.contextmanager
def running(backend: str, context: TrainContext, address: str, timeout_s: float) -> Iterator[None]:
    """Set up around a loop."""
    if backend == "torch":
        with _torch(context, address, timeout_s):
            yield
    elif backend == "jax":
        with _jax(context, address, timeout_s):
            yield
    else:
        yield


@contextlib.contextmanager
def _torch(context: TrainContext, address: str, timeout_s: float) -> Iterator[None]:
    import torch
    from torch import distributed

    host, _, port = address.rpartition(":")
    os.environ.update(
        MASTER_ADDR=host,
        MASTER_PORT=port,
        RANK=str(context.rank),
        WORLD_SIZE=str(context.size),
        LOCAL_RANK=str(context.local_rank),
    )
    if host.startswith("127."):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    distributed.init_process_group(
        "nccl" if torch.cuda.is_available() else "gloo",
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


def prepare_model(model: Any, **options: Any) -> Any:
    """A PyTorch module in DistributedDataParallel, on this worker's GPU if it has one; itself when there is one worker.

    `options` are those of DistributedDataParallel."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    context = get_context()
    if torch.cuda.is_available():
        device = torch.device("cuda", context.local_rank % torch.cuda.device_count())
        model = model.to(device)
        options.setdefault("device_ids", [device.index])
    return DistributedDataParallel(model, **options) if context.size > 1 else model
