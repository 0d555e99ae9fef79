"""Arrays that go by DLPack: TensorFlow's, and those of libraries that Weft does not know.

Their bytes travel like any array's. The reader's lie in pages of its own, and the library makes an array over them.

1. DLP-1: of a library that Weft does not know, what can be pickled is: it may be more than an array.
2. DLP-2: an array comes back as its own library's `from_dlpack` makes it. Where there is none, on a device, and with
   numbers that NumPy lacks, the library's own pickle or error stands.

Runs in drivers and workers on any thread.
"""

from __future__ import annotations

import importlib
import sys
from collections import ChainMap
from pickle import PickleBuffer
from typing import Any

from weft import _native

_CPU = 1
_PLAIN: Any = object.__reduce_ex__
_ALIGNED_BYTES = 64
"""What lies at no multiple of it TensorFlow ends the process for."""
_NUMBERS = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128".split()
)


class Reducers(ChainMap[type, Any]):
    """Reducers by type, with one for types that are in none of the maps and speak DLPack."""

    def __missing__(self, kind: type) -> Any:
        if hasattr(kind, "__dlpack__") and getattr(kind, "__reduce_ex__", None) is _PLAIN:
            return _reduce
        raise KeyError(kind)


def _reduce(array: Any) -> Any:
    try:
        return array.__reduce_ex__(5)
    except TypeError:
        library = type(array).__module__.partition(".")[0]
        parts = _parts(array) if hasattr(sys.modules.get(library), "from_dlpack") else None
        if parts is None:
            raise
        return _array, (library, *parts)


def reduce_tensorflow(tensor: Any) -> Any:
    # Asked for a tensor of strings by DLPack, TensorFlow ends the process.
    parts = _parts(tensor) if tensor.dtype.name in _NUMBERS else None
    return tensor.__reduce__() if parts is None else (_tensorflow, parts)


def _parts(array: Any) -> tuple[PickleBuffer, Any, tuple[int, ...]] | None:
    """The bytes, what they are, and the shape."""
    import numpy as np

    try:
        host = np.from_dlpack(array) if array.__dlpack_device__()[0] == _CPU else None
    except (BufferError, RuntimeError, TypeError, ValueError):
        host = None
    if host is None:
        return None
    flat: Any = host.reshape(-1).view(np.uint8)
    return PickleBuffer(flat), host.dtype, host.shape


def _array(library: str, *parts: Any) -> Any:
    return importlib.import_module(library).from_dlpack(_host(*parts))


def _tensorflow(*parts: Any) -> Any:
    tensorflow, host = importlib.import_module("tensorflow"), _host(*parts)
    if host.ctypes.data % _ALIGNED_BYTES:
        return tensorflow.convert_to_tensor(host)
    return tensorflow.experimental.dlpack.from_dlpack(host.__dlpack__())


def _host(buffer: Any, dtype: Any, shape: tuple[int, ...]) -> Any:
    import numpy as np

    return np.frombuffer(_native.own_memory(buffer), np.uint8).view(dtype).reshape(shape)
