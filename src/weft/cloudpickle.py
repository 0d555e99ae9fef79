"""cloudpickle as Weft uses it: with registered serializers, and with a failure that names the culprit.

>>> loads(dumps([1, 2]))
[1, 2]
"""

from __future__ import annotations

from typing import Any

from cloudpickle import CloudPickler, Pickler, register_pickle_by_value, unregister_pickle_by_value

from weft.values import culprit, serialize

__all__ = [
    "CloudPickler",
    "Pickler",
    "dump",
    "dumps",
    "dumps_debug",
    "load",
    "loads",
    "register_pickle_by_value",
    "unregister_pickle_by_value",
]

loads = serialize.loads


def dumps(value: Any, protocol: int | None = None, buffer_callback: Any = None) -> bytes:
    """The pickle of a value; protocol 5. Large buffers are left out when there is a `buffer_callback` to take them."""
    return serialize.dumps(value, buffer_callback)


def dumps_debug(value: Any) -> bytes:
    """As `dumps`, but a failure says which part of the value is to blame (TypeError)."""
    try:
        return serialize.dumps(value)
    except Exception as error:
        raise culprit.explain(value, "value", "", error) from error


def dump(value: Any, file: Any, protocol: int | None = None) -> None:
    file.write(serialize.dumps(value))


def load(file: Any) -> Any:
    return loads(file.read())
