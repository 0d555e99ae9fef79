"""How values of other libraries are pickled: their buffers out of band, so that `put` copies them once and `get` never.

A library's reducers are registered once the program has imported it; nothing is imported before. A value that a reducer
does not know in and out (sparse, quantized, on a device, of a type that Arrow lacks) is left to its own library, which
copies it and gets it right.

1. LIB-1: what can be written in place (tensors; JAX may reuse what is donated to it) is read through pages that are
   private to the reader (`_native.own_memory`); what cannot is read in shared pages.
2. LIB-2: a storage is pickled once for a value, so tensors that share it still do.

Runs in drivers and workers on any thread.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pickle import PickleBuffer
from typing import Any

from weft import _native
from weft.devices.blocks import here
from weft.values import cuda_tensors, dlpack

Reducer = Callable[[Any], "str | tuple[Any, ...]"]
_SLACK = 64 * 1024
_modules_seen = 0


def register(reducers: dict[type, Reducer]) -> None:
    """Add those of the libraries that have been imported since the last time."""
    global _modules_seen
    count = len(sys.modules)
    if count == _modules_seen:
        return
    for name, made_by in list(_LIBRARIES.items()):
        module = sys.modules.get(name)
        spec = getattr(module, "__spec__", None)
        if module is None or getattr(spec, "_initializing", False):  # another thread is at it
            continue
        reducers.update(made_by(module))
    _modules_seen = count


# ---- the standard library --------------------------------------------------------------------------


def reduce_view(view: memoryview) -> tuple[Any, ...]:
    """A memoryview: read in place, so read-only."""
    if not _casts(view):
        import numpy as np

        return memoryview, (np.asarray(view),)
    if not view.c_contiguous:
        return _view, (view.tobytes(), view.format, view.shape)
    return _view, (PickleBuffer(view), view.format, view.shape)


_NATIVE = frozenset("bBhHiIlLqQnNfdc?P")


def _casts(view: memoryview) -> bool:
    """Whether `memoryview.cast` makes it of bytes: not to other formats than native numbers, nor to none of them."""
    is_native = view.format.removeprefix("@") in _NATIVE
    return is_native and (view.ndim == 1 or view.nbytes > 0)


def _view(buffer: Any, form: str, shape: tuple[int, ...]) -> memoryview:
    flat: Any = memoryview(buffer).cast("B")
    view: memoryview = flat.cast(form) if len(shape) == 1 else flat.cast(form, shape)
    return view


class Bytearray:
    """Stands for a large bytearray, which the pickler would copy twice."""

    def __init__(self, value: bytearray) -> None:
        self.value = value

    def __reduce__(self) -> tuple[Any, ...]:
        return bytearray, (PickleBuffer(self.value),)


# ---- NumPy -----------------------------------------------------------------------------------------


def _numpy_ma(module: Any) -> dict[type, Reducer]:
    return {module.MaskedArray: _reduce_masked}


def _reduce_masked(array: Any) -> tuple[Any, ...]:
    return _masked, (array.data, array._mask, array._fill_value, array.hardmask)


def _masked(data: Any, mask: Any, fill_value: Any, hard_mask: bool) -> Any:
    import numpy.ma

    array: Any = numpy.ma.MaskedArray(data, mask, hard_mask=hard_mask)
    array._fill_value = fill_value
    return array


# ---- PyTorch ---------------------------------------------------------------------------------------


def _torch(module: Any) -> dict[type, Reducer]:
    return {
        module.Tensor: _reduce_tensor,
        module.UntypedStorage: _reduce_storage,
        module.storage.TypedStorage: _reduce_typed_storage,
    }


def _reduce_tensor(tensor: Any) -> Any:
    import torch

    on_device = tensor.device.type == "cuda" and here.collection is not None
    if (
        tensor.layout is not torch.strided
        or tensor.is_nested
        or (tensor.device.type != "cpu" and not on_device)
        or tensor.is_quantized
        or tensor.is_conj()
        or tensor.is_neg()
        or tensor.__dict__
        or tensor._backward_hooks
    ):
        reduced = tensor.__reduce_ex__(5)
        if tensor.layout is not torch.strided and reduced[0] is torch._utils._rebuild_sparse_tensor:
            return _sparse, (tensor.requires_grad, *reduced[1])
        return reduced
    if on_device:
        cuda_tensors.watch(tensor)
    return _tensor, (
        tensor.untyped_storage(),
        tensor.dtype,
        tensor.storage_offset(),
        tuple(tensor.shape),
        tensor.stride(),
        tensor.requires_grad,
    )


def _tensor(
    storage: Any, dtype: Any, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], requires_grad: bool
) -> Any:
    import torch

    where = None if storage.device.type == "cpu" else storage.device
    tensor = torch.empty(0, dtype=dtype, device=where).set_(storage, offset, shape, strides)
    return tensor.requires_grad_() if requires_grad else tensor


def _sparse(requires_grad: bool, *args: Any) -> Any:
    """PyTorch notes each one that it makes, to check it at the end of `torch.load`, and would keep it until then.
    Whether it wants a gradient is not in what PyTorch writes."""
    import torch

    try:
        return torch._utils._rebuild_sparse_tensor(*args).requires_grad_(requires_grad)  # type: ignore[no-untyped-call]
    finally:
        torch._utils._validate_loaded_sparse_tensors()  # type: ignore[no-untyped-call]


def _reduce_storage(storage: Any) -> Any:
    collection = here.collection
    if collection is not None and collection.device is not None:
        storage = cuda_tensors.moved(storage, collection.device)
    if storage.device.type == "cuda" and collection is not None:
        return cuda_tensors.reduce_storage(storage, collection)
    if storage.device.type != "cpu":
        return storage.__reduce_ex__(5)
    return _storage, (PickleBuffer(_native.memory_of(storage, storage.data_ptr(), storage.nbytes())),)


def _storage(buffer: Any) -> Any:
    import torch

    if not len(buffer):
        return torch.UntypedStorage(0)  # type: ignore[no-untyped-call]
    return torch.frombuffer(_native.own_memory(buffer), dtype=torch.uint8).untyped_storage()


def _reduce_typed_storage(storage: Any) -> Any:
    if storage._untyped_storage.device.type != "cpu":
        return storage.__reduce_ex__(5)
    return _typed_storage, (storage._untyped_storage, storage.dtype)


def _typed_storage(storage: Any, dtype: Any) -> Any:
    import torch

    return torch.storage.TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)  # type: ignore[no-untyped-call]


# ---- JAX -------------------------------------------------------------------------------------------


def _jax(module: Any) -> dict[type, Reducer]:
    return {module.ArrayImpl: _reduce_jax}


def _reduce_jax(array: Any) -> Any:
    import numpy as np

    # A number of four bits or less has a byte on the host.
    if array.weak_type or array.sharding.device_set != _one_cpu() or array.dtype.name.endswith(("int4", "int2")):
        return array.__reduce__()
    host = np.asarray(array)
    flat: Any = host.reshape(-1).view(np.uint8)
    return _jax_array, (PickleBuffer(flat), host.dtype, host.shape)


def _one_cpu() -> set[Any]:
    import jax

    return {jax.devices("cpu")[0]}


def _jax_array(buffer: Any, dtype: Any, shape: tuple[int, ...]) -> Any:
    import jax
    import numpy as np

    # On the CPU JAX reads aligned memory where it lies.
    return jax.device_put(np.frombuffer(_native.own_memory(buffer), np.uint8).view(dtype).reshape(shape))


# ---- Polars ----------------------------------------------------------------------------------------

_ARROW_HAS = frozenset(
    "Int8 Int16 Int32 Int64 UInt8 UInt16 UInt32 UInt64 Float32 Float64 Boolean String Binary Date Time Datetime "
    "Duration Decimal List Array Struct".split()
)


def _polars(module: Any) -> dict[type, Reducer]:
    return {module.DataFrame: _reduce_frame, module.Series: _reduce_series}


def _reduce_frame(frame: Any) -> Any:
    table = _arrow(frame)
    return frame.__reduce_ex__(5) if table is None else (_frame, (table,))


def _reduce_series(series: Any) -> Any:
    table = _arrow(series.to_frame())
    return series.__reduce_ex__(5) if table is None else (_series, (table,))


def _arrow(frame: Any) -> Any:
    """The frame's own buffers as a table of Arrow; None where Arrow has no such type, or where they hold much more
    than the frame, as those of a slice do."""
    import polars as pl

    if not frame.width or not all(_has_arrow(dtype) for dtype in frame.dtypes):
        return None
    try:
        table = frame.to_arrow(compat_level=pl.CompatLevel.newest())
    except ImportError:  # there is no pyarrow here
        return None
    return table if table.get_total_buffer_size() <= 2 * frame.estimated_size() + _SLACK else None


def _has_arrow(dtype: Any) -> bool:
    if type(dtype).__name__ not in _ARROW_HAS:
        return False
    inner = [field.dtype for field in getattr(dtype, "fields", ())]
    if getattr(dtype, "inner", None) is not None:
        inner.append(dtype.inner)
    return all(_has_arrow(one) for one in inner)


def _frame(table: Any) -> Any:
    import polars as pl

    return pl.from_arrow(table, rechunk=False)


def _series(table: Any) -> Any:
    return _frame(table).to_series()


# ---- CuPy ------------------------------------------------------------------------------------------


def _cupy(module: Any) -> dict[type, Reducer]:
    return {module.ndarray: cuda_tensors.reduce_cupy}


# ---- TensorFlow ------------------------------------------------------------------------------------


def _tensorflow(module: Any) -> dict[type, Reducer]:
    return {module.EagerTensor: dlpack.reduce_tensorflow}


_LIBRARIES: dict[str, Callable[[Any], dict[type, Reducer]]] = {
    "numpy.ma": _numpy_ma,
    "torch": _torch,
    "jaxlib._jax": _jax,
    "polars": _polars,
    "cupy": _cupy,
    "tensorflow.python.framework.ops": _tensorflow,
}
