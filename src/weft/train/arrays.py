"""Arrays of NumPy, PyTorch (CPU) and JAX as memory that the native core can read and write.

PyTorch and JAX are looked at only where the caller has imported them. A JAX array cannot be written: its result is a
new array, where NumPy's and PyTorch's are written in place.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from weft.util.shared_block import ELEMENT_TYPES

__all__ = ["HostArray", "host_array", "show_in"]

Storage = npt.NDArray[Any]


@dataclass(frozen=True)
class HostArray:
    """`memory` in C order with the numbers of `element`; bfloat16 lies there as uint16."""

    memory: Storage
    element: str
    restore: Callable[[Storage], Any]  # memory of the same element, as the caller's kind of array

    def new(self, shape: tuple[int, ...]) -> HostArray:
        """Of the same kind, not initialised."""
        return HostArray(np.empty(shape, self.memory.dtype), self.element, self.restore)


def host_array(array: Any, written: bool) -> HostArray:
    """The array's own memory, or for JAX a copy of it when it is to be written."""
    if isinstance(array, np.ndarray):
        host = _of_numpy(array, lambda memory: memory)
    elif _is_from("torch", "Tensor", array):
        host = _of_torch(array)
    elif _is_from("jax", "Array", array):
        host = _of_jax(array, written)
    else:
        raise TypeError(f"an array must be of NumPy, PyTorch or JAX, but got {type(array).__name__}")
    if not host.memory.flags.c_contiguous:
        raise ValueError(
            f"an array must be C-contiguous, but got strides {host.memory.strides} for {host.memory.shape}"
        )
    if written and not host.memory.flags.writeable:
        raise ValueError("an array that is written in place must be writable: pass a copy")
    return host


def show_in(tensors: Mapping[str, Any], arrays: Mapping[str, Storage]) -> None:
    """Have tensors of PyTorch be the memory of the arrays of the same names. Nothing keeps them from being written."""
    for name, tensor in tensors.items():
        if not _is_from("torch", "Tensor", tensor):
            raise TypeError(
                f"only a tensor of PyTorch can be given other memory, but {name} is a {type(tensor).__name__}"
            )
        if tuple(tensor.shape) != arrays[name].shape:
            raise ValueError(f"{name} must be of shape {arrays[name].shape}, but got {tuple(tensor.shape)}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the arrays cannot be written
        for name, tensor in tensors.items():
            tensor.data = sys.modules["torch"].from_numpy(arrays[name])


def _is_from(module: str, name: str, array: Any) -> bool:
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(array, getattr(loaded, name))


def _of_numpy(array: Storage, restore: Callable[[Storage], Any]) -> HostArray:
    element = array.dtype.name
    if element not in ELEMENT_TYPES or not array.dtype.isnative:
        raise TypeError(f"elements must be one of {', '.join(ELEMENT_TYPES)}, but got {array.dtype}")
    if element != "bfloat16":
        return HostArray(array, element, restore)
    bfloat16 = array.dtype
    return HostArray(array.view(np.uint16), element, lambda memory: restore(memory.view(bfloat16)))


def _of_torch(tensor: Any) -> HostArray:
    torch = sys.modules["torch"]
    if tensor.device.type != "cpu":
        raise TypeError(
            f"a tensor must be on the CPU, but got one on {tensor.device}: between GPUs, meet by "
            'train.Meeting(n, backend="nccl")'
        )
    bare = tensor.detach()
    if bare.dtype is not torch.bfloat16:
        return _of_numpy(bare.numpy(), torch.from_numpy)
    if not bare.is_contiguous():
        raise ValueError(f"a tensor must be contiguous, but got strides {bare.stride()} for {tuple(bare.shape)}")

    def restore(memory: Storage) -> Any:
        return torch.from_numpy(memory.view(np.int16)).view(torch.bfloat16)

    return HostArray(bare.view(torch.int16).numpy().view(np.uint16), "bfloat16", restore)


def _of_jax(array: Any, written: bool) -> HostArray:
    import jax.numpy

    memory = np.array(array) if written else np.ascontiguousarray(np.asarray(array))
    return _of_numpy(memory.reshape(array.shape), jax.numpy.asarray)
