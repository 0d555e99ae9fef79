"""`weft.empty`: an array that is filled where it will be stored, so that `put` has nothing to copy.

The memory is an object of the node's object memory that nobody knows of yet. `put`, or a task that returns the array,
makes it known, if the value has that buffer and no other; any other value that holds it is copied, as always. From then
on the array is its holder's own: what is written to it nobody else sees.

Runs in drivers and workers on any thread.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

from weft import _native
from weft.engine.process.session import attached
from weft.values.late_array import FEWEST_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence


def empty(shape: int | Sequence[int], dtype: Any = float, order: Literal["C", "F"] = "C") -> Any:
    """An array of NumPy, or with a dtype of torch a tensor, that `put` and `return` store without a copy. Its bytes are
    not set. It takes part of the node's object memory for as long as it lives, and cannot be spilled before it is put.

    ObjectStoreFullError when there is no room for it; TypeError when the dtype has Python objects.

    >>> array = weft.empty((1000, 1000))
    >>> array[:] = 0.5
    >>> float(weft.get(weft.put(array)).sum())
    500000.0
    """
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if type(dtype).__module__ == "torch":
        return _tensor(shape, dtype)
    import numpy as np

    dtype = np.dtype(dtype)
    if dtype.hasobject:
        raise TypeError(f"dtype must have no Python objects, but got {dtype}")
    memory = _allocate(math.prod(shape) * dtype.itemsize)
    return np.empty(shape, dtype, order=order) if memory is None else np.ndarray(shape, dtype, memory, order=order)


def _tensor(shape: tuple[int, ...], dtype: Any) -> Any:
    import torch

    memory = _allocate(math.prod(shape) * dtype.itemsize)
    return torch.empty(shape, dtype=dtype) if memory is None else torch.frombuffer(memory, dtype=dtype).reshape(shape)


def _allocate(nbytes: int) -> Any:
    """None for little, and where this process has as many mappings as it may: `put` copies those."""
    if nbytes < FEWEST_BYTES:
        return None
    attached.ensure()
    return _native.allocate(nbytes)
