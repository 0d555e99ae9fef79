"""How tensors that lie on a CUDA device are pickled: the pickle names their memory, and whoever reads it opens that.

What is small is copied through the host. Where the reader sees no device the tensor comes in memory of the host.

Runs in drivers and workers on any thread, and only when the value has such a tensor.
"""

from __future__ import annotations

import importlib
import math
from pickle import PickleBuffer
from typing import Any

from weft import _native
from weft.devices.blocks import FEWEST_BYTES, Block, Collection, here

DRIVER = "weft.devices.cuda"


# ---- PyTorch ---------------------------------------------------------------------------------------


def watch(tensor: Any) -> None:
    """Notes the tensor's version: who returned it must not write to it any more."""
    collection = here.collection
    if collection is None or not collection.takes_over or tensor.is_inference():
        return
    if tensor.untyped_storage().nbytes() < FEWEST_BYTES:
        return
    seen, version = tensor.detach(), tensor._version
    collection.watch(lambda: seen._version != version)


def moved(storage: Any, device: str) -> Any:
    """The storage itself where it is there already."""
    import torch

    wanted = torch.device(device)
    if storage.device.type == wanted.type and wanted.index in (None, storage.device.index):
        return storage
    whole = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
    return whole.to(wanted).untyped_storage()


def reduce_storage(storage: Any, collection: Collection) -> Any:
    import torch

    if storage.nbytes() < FEWEST_BYTES:
        host = storage.cpu()
        return _small, (PickleBuffer(_native.memory_of(host, host.data_ptr(), host.nbytes())), storage.device.index)
    if not collection.takes_over:
        with torch.cuda.device(storage.device):
            storage = storage.clone()
    return _storage, (collection.add(DRIVER, storage.data_ptr(), storage.nbytes(), storage),)


def _small(buffer: Any, index: int) -> Any:
    import torch

    data = torch.frombuffer(bytearray(buffer), dtype=torch.uint8) if len(buffer) else torch.empty(0, dtype=torch.uint8)
    if torch.cuda.is_available():
        data = data.to(torch.device("cuda", index if index < torch.cuda.device_count() else 0))
    return data.untyped_storage()


class _Interface:
    """Memory of a device, as libraries hand it to each other."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.__cuda_array_interface__ = {
            "shape": (block.size,),
            "typestr": "|u1",
            "data": (block.address, False),
            "version": 3,
        }


def _storage(block: Block) -> Any:
    import torch

    if isinstance(block.keeper, torch.UntypedStorage):
        return block.keeper
    if not block.device:
        return torch.frombuffer(
            _native.memory_of(block.keeper, block.address, block.size), dtype=torch.uint8
        ).untyped_storage()
    return torch.as_tensor(_Interface(block), device="cuda").untyped_storage()


# ---- CuPy ------------------------------------------------------------------------------------------


def _module() -> Any:
    return importlib.import_module("cupy")


def reduce_cupy(array: Any) -> Any:
    cupy = _module()
    collection = here.collection
    if collection is None or array.nbytes < FEWEST_BYTES or array.dtype.hasobject:
        return array.__reduce__()
    whole = cupy.ascontiguousarray(array)
    if whole is array and not collection.takes_over:
        whole = array.copy()
    return _cupy, (collection.add(DRIVER, whole.data.ptr, whole.nbytes, whole), whole.dtype, whole.shape)


def _cupy(block: Block, dtype: Any, shape: tuple[int, ...]) -> Any:
    import numpy as np

    cupy = _module()

    if not block.device:
        memory: Any = _native.memory_of(block.keeper, block.address, block.size)
        return np.frombuffer(memory, dtype, math.prod(shape)).reshape(shape)
    if isinstance(block.keeper, cupy.ndarray):
        return block.keeper
    memory = cupy.cuda.UnownedMemory(block.address, block.size, block)
    return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0))
