"""`weft.put`."""

from __future__ import annotations

from typing import Any, TypeVar

from weft import _native
from weft._native import ObjectRef
from weft.devices import blocks
from weft.engine.process.objects import call_sites
from weft.engine.process.session import attached

T = TypeVar("T")
_notes_call_sites = call_sites.is_wanted()


def put(
    value: T,
    *,
    replicas: int = 1,
    durable: bool = False,
    name: str | None = None,
    device: str | None = None,
    _owner: Any = None,
    _tensor_transport: str = "object_store",
) -> ObjectRef[T]:
    """Store a value in the node's object memory; its ref. TypeError for a ref: that is one already.

    With `replicas` so many nodes have a copy when it returns, and with `durable` there is one in the cluster's storage
    folder (`weft start --storage`): then the value outlives the node. ValueError when there are fewer nodes than that.
    With `name` it stays when the last ref is dropped, until `delete_object`; `get_object` finds it, in any process of
    the namespace and, if it is durable or has less than 64 KiB, also after the whole cluster was started again.
    With `device`, "cuda:0" say, its tensors are put on that device, and with "cpu" in memory of the host; otherwise
    each stays where it is. Those on a device are in this process's memory, and go with it.

    >>> weft.get(weft.put("hello"))
    'hello'
    """
    if _tensor_transport != "object_store":
        from weft.engine.process.options.option_checks import transport

        transport("_tensor_transport", _tensor_transport)
    if durable or replicas != 1 or name is not None:
        from weft.engine.process.objects import lasting

        if device not in (None, "cpu"):
            raise ValueError(f"what lasts is in memory of the host: leave device={device!r} out")
        with blocks.placing("cpu"):
            return lasting.put(value, replicas, durable, name)
    if device is not None:
        if not isinstance(device, str):
            raise TypeError(f'device must be a text as "cuda:0", but got {device!r}')
        with blocks.placing(device):
            return put(value)
    try:
        ref = _native.put(value)
    except RuntimeError as error:
        if _native.is_attached() or attached.was_shut_down(error):
            raise
        attached.ensure()
        ref = _native.put(value)
    if _notes_call_sites:
        call_sites.note(ref)
    return ref
