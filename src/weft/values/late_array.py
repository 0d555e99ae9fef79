"""An array that is computed where it is stored, instead of being computed and then copied there.

A result of hundreds of megabytes costs twice what it has to: its memory is new to the process, and its bytes are copied
into the arena once they are there. A LateArray is a promise of an array: its shape, its type, and a function that
writes it. The function is called when the value is stored, with an array that lies in the arena.

1. LATE-1: whoever loads the value has a plain array; the promise itself never leaves its process.
2. LATE-2: only the engine's own pickler defers the writing. Any other writes the array into ordinary memory first.

Runs in drivers and workers, on the thread that stores the value.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np

FEWEST_BYTES = 256 * 1024
"""Smaller arrays are written before: they may travel in a record, whose memory moves."""


class LateArray:
    """An array of that shape and type, which `write(array)` writes; it must not keep `array` afterwards.

    Return it from a task, or put it, alone or inside of other values. What it raises, the task or `put` raises.

    >>> import numpy as np, weft
    >>> from weft.util import LateArray
    >>> ref = weft.put(LateArray((2, 3), np.float64, lambda array: array.fill(0.5)))
    >>> weft.get(ref).sum()
    np.float64(3.0)
    """

    __slots__ = ("dtype", "order", "shape", "write")

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: Any,
        write: Callable[[np.ndarray[Any, Any]], object],
        order: Literal["C", "F"] = "C",
    ) -> None:
        import numpy as np

        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        self.write = write
        self.order: Literal["C", "F"] = order
        if self.dtype.hasobject:
            raise TypeError(f"dtype must have no Python objects, but got {self.dtype}")
        if order not in ("C", "F"):
            raise ValueError(f"order must be 'C' or 'F', but got {order!r}")

    @property
    def nbytes(self) -> int:
        """How large the array is."""
        return int(math.prod(self.shape) * self.dtype.itemsize)

    def written(self) -> np.ndarray[Any, Any]:
        """The array, in ordinary memory."""
        import numpy as np

        array: np.ndarray[Any, Any] = np.empty(self.shape, self.dtype, order=self.order)
        self.write(array)
        return array

    def __reduce__(self) -> tuple[Any, ...]:
        return _itself, (self.written(),)

    def _write_into(self, memory: memoryview) -> None:
        import numpy as np

        self.write(np.ndarray(self.shape, self.dtype, memory, order=self.order))


class _StandIn(bytearray):
    """In the place of the buffer, while the value is pickled."""

    late: LateArray


def defer(late: LateArray) -> tuple[Any, ...]:
    """How the engine's pickler reduces one."""
    if late.nbytes < FEWEST_BYTES:
        return late.__reduce__()
    stand_in = _StandIn()
    stand_in.late = late
    return _over, (pickle.PickleBuffer(stand_in), late.shape, late.dtype, late.order)


def buffer_of(pickled: pickle.PickleBuffer) -> Any:
    """Its bytes as a flat view; of a deferred array what the native core asks for: how many bytes there will be, and
    what writes them."""
    view = pickled.raw()
    if type(view.obj) is _StandIn:
        return view.obj.late.nbytes, view.obj.late._write_into
    return view


def _over(buffer: Any, shape: tuple[int, ...], dtype: Any, order: Any) -> np.ndarray[Any, Any]:
    import numpy as np

    array: np.ndarray[Any, Any] = np.frombuffer(buffer, dtype).reshape(shape, order=order)
    return array


def _itself(array: Any) -> Any:
    return array
