"""Values to bytes and back: pickle protocol 5 with the large buffers out of band.

The C pickler writes classes and functions by reference, which is wrong for those of `__main__` and for local ones:
a worker cannot import them. So it is used only for values made of types known to be safe; everything else goes
through cloudpickle, which writes such classes by value. A failure names the path to the culprit (`culprit.py`).

1. SER-1: what `fast_path` accepts pickles the same by either pickler.
2. SER-2: buffers are handed over uncopied; their owner stays alive as long as the returned list.

Runs in drivers and workers on any thread.
"""

from __future__ import annotations

import copyreg
import io
import os
import pickle
from collections.abc import Callable
from typing import Any, ClassVar, NoReturn, TypeAlias

import cloudpickle

from weft._native import ObjectRef
from weft.devices import blocks
from weft.exceptions import OutOfBandObjectRefSerializationError
from weft.values import dlpack, late_array, libraries

_PLAIN = frozenset((int, float, complex, bool, str, bytes, type(None), range, slice, bytearray))
_CONTAINERS = frozenset((list, tuple, set, frozenset))
_MOST_ITEMS = 256
_OUT_OF_BAND = "RAY_allow_out_of_band_object_ref_serialization"
_ARROW_TYPES = frozenset(("Table", "RecordBatch", "ChunkedArray", "Schema", "Buffer"))

_LARGE_BYTES = 64 * 1024

Pickled: TypeAlias = "tuple[bytes, list[Any]] | tuple[bytes, list[Any], bool]"

_custom: dict[type, Callable[[Any], tuple[Any, ...]]] = {}
_reducers: dict[type, libraries.Reducer] = {**cloudpickle.Pickler._dispatch_table, memoryview: libraries.reduce_view}
"""cloudpickle's, and those of the libraries that the program has imported."""


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """cloudpickle with the serializers that the user registered, and with those of known libraries."""

    # One map of all: the pickler asks it for every object, and a map inside a map is asked twice.
    dispatch_table: ClassVar[dlpack.Reducers] = dlpack.Reducers(_custom, _reducers, copyreg.dispatch_table)

    def dump(self, value: object) -> None:
        libraries.register(_reducers)
        super().dump(value)


class _ValuePickler(_Pickler):
    """For what is stored by the native core, which writes late arrays where they will lie."""

    dispatch_table: ClassVar[dlpack.Reducers] = dlpack.Reducers(
        {late_array.LateArray: late_array.defer}, *_Pickler.dispatch_table.maps
    )


def serialize(value: object, given_away: bool = False) -> Pickled:
    """The pickle and its out-of-band buffers; in the place of a late array's, its size and what writes it. A third part
    where the value names memory of a device, which is taken over when the value is `given_away`. Raises what the
    pickler raised; see `explain_failure`."""
    buffers: list[pickle.PickleBuffer] = []
    if not _custom and fast_path(value):
        if type(value) is bytearray and len(value) > _LARGE_BYTES:
            value = libraries.Bytearray(value)
        # Flat byte views; a Fortran-ordered or otherwise odd buffer has one too.
        return pickle.dumps(value, protocol=5, buffer_callback=buffers.append), [buffer.raw() for buffer in buffers]
    here, before = blocks.here, blocks.here.collection
    collection = here.collection = blocks.Collection(given_away, here.device, _new_holding)
    try:
        with io.BytesIO() as file:
            _ValuePickler(file, protocol=5, buffer_callback=buffers.append).dump(value)
            data = file.getvalue()
    finally:
        here.collection = before
    raw = [late_array.buffer_of(buffer) for buffer in buffers]
    return (data, raw, True) if collection.seal() else (data, raw)


def _new_holding() -> Any:
    from weft.devices import holder

    return holder.server().hold()


def dumps(value: object, buffer_callback: Callable[[pickle.PickleBuffer], Any] | None = None) -> bytes:
    """The pickle with everything in it, for what does not travel as a value of the engine: functions, exceptions.

    Refs inside cannot be counted; their objects are kept for good, or refused when the variable
    RAY_allow_out_of_band_object_ref_serialization is "0"."""
    refused = os.environ.get(_OUT_OF_BAND) == "0"
    with io.BytesIO() as file:
        pickler: Any = _StrictPickler if refused else _Pickler
        pickler(file, protocol=5, buffer_callback=buffer_callback).dump(value)
        return file.getvalue()


def dumps_without_refs(value: object) -> bytes:
    """As `dumps`; refs inside are refused, because the bytes outlive this process and what it counts."""
    with io.BytesIO() as file:
        _StrictPickler(file, protocol=5).dump(value)
        return file.getvalue()


def _refuse_ref(ref: ObjectRef[Any]) -> NoReturn:
    raise OutOfBandObjectRefSerializationError(
        f"{ref!r} would be pickled outside the engine (captured by a function, or by cloudpickle.dumps), where it "
        "cannot be counted. Pass it as an argument instead."
    )


class _StrictPickler(_Pickler):
    """Refuses refs."""

    dispatch_table: ClassVar[dlpack.Reducers] = dlpack.Reducers({ObjectRef: _refuse_ref}, _Pickler.dispatch_table)


def deserialize(data: Any, buffers: list[Any]) -> object:
    return pickle.loads(data, buffers=buffers) if buffers else pickle.loads(data)


loads = pickle.loads


class _WritableUnpickler(pickle._Unpickler):
    """Does not mind that a buffer was read-only where it was pickled."""

    dispatch: ClassVar[dict[int, Any]] = {
        **pickle._Unpickler.dispatch,
        pickle.READONLY_BUFFER[0]: lambda self: None,
    }


def load_writable(data: Any, buffers: list[Any]) -> object:
    """The value, over buffers that are the caller's own."""
    before, blocks.here.copies = blocks.here.copies, True
    try:
        if pickle.NEXT_BUFFER + pickle.READONLY_BUFFER not in bytes(data):
            return pickle.loads(data, buffers=buffers)
        return _WritableUnpickler(io.BytesIO(data), buffers=buffers).load()
    finally:
        blocks.here.copies = before


def fast_path(value: object) -> bool:
    """Whether the C pickler is sure to write the value as a worker can read it."""
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind in _CONTAINERS or kind is dict:
        return _all_safe(value, [_MOST_ITEMS])
    return _safe_leaf(kind, value)


def _all_safe(value: Any, left: list[int]) -> bool:
    """Whether a container holds safe values only; gives up on large, deep or recursive ones."""
    left[0] -= len(value)
    if left[0] < 0:
        return False
    items = value if type(value) is not dict else (*value, *value.values())
    for item in items:
        kind = type(item)
        if kind in _PLAIN:
            continue
        if kind in _CONTAINERS or kind is dict:
            left[0] -= 1
            if not _all_safe(item, left):
                return False
        elif not _safe_leaf(kind, item):
            return False
    return True


def _safe_leaf(kind: type, value: Any) -> bool:
    """Arrays of numbers and Arrow data: only bytes and importable names inside."""
    module = kind.__module__
    if module == "numpy":
        dtype = getattr(value, "dtype", None)
        return dtype is not None and not dtype.hasobject and type(dtype).__module__.startswith("numpy")
    return module == "pyarrow.lib" and (kind.__name__ in _ARROW_TYPES or kind.__name__.endswith("Array"))


# ---- serializers of the user's ---------------------------------------------------------------------


def register_serializer(cls: type, *, serializer: Callable[[Any], Any], deserializer: Callable[[Any], Any]) -> None:
    """Pickle instances of exactly `cls` as `serializer(value)`; they are rebuilt by `deserializer` anywhere.

    The deserializer travels with the value, so only processes that send need to register.

    >>> class Connection:
    ...     def __init__(self, address): self.address, self.lock = address, __import__("threading").Lock()
    >>> register_serializer(Connection, serializer=lambda made: made.address, deserializer=Connection)
    >>> weft.get(weft.put(Connection("db:5432"))).address
    'db:5432'
    >>> deregister_serializer(Connection)
    """
    if not isinstance(cls, type):
        raise TypeError(f"register_serializer: cls must be a class, but got {type(cls).__name__}")
    _custom[cls] = lambda value: (deserializer, (serializer(value),))


def deregister_serializer(cls: type) -> None:
    """Undo `register_serializer`; nothing happens when there was none.

    >>> deregister_serializer(int)
    """
    _custom.pop(cls, None)
