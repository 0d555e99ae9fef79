"""Refs in what outlives all processes: the log of an actor with exact state, and names (`put(name=)`).

A ref is written there as its object's id. Before that the object is kept: its owner holds it, and the head has its row
(`node/kept_objects.py`). Whoever reads the id back, perhaps after every process has ended, asks the head for the owner;
one that is dead has an heir, or the reader is it.

Any thread.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from weft import _native
from weft._native import ObjectRef
from weft.engine.process.session import rpc
from weft.engine.wire.kinds import ErrorCode
from weft.values import dlpack, serialize

Refs = dict[bytes, ObjectRef[Any]]
_local = threading.local()


def dumps(value: object) -> tuple[bytes, Refs]:
    """The pickle, and the refs that it names, which must be kept before it is written."""
    found: Refs = {}
    _local.found = found
    try:
        with io.BytesIO() as file:
            _NamingPickler(file, protocol=5).dump(value)
            return file.getvalue(), found
    finally:
        del _local.found


def loads(data: bytes, known: Mapping[bytes, ObjectRef[Any]]) -> Any:
    """`known`: what `restore` has made of the ids that the log names."""
    _local.known = known
    try:
        return serialize.loads(data)
    finally:
        del _local.known


def keep(refs: Collection[ObjectRef[Any]]) -> bool:
    """They can be read back by their ids when this returns, whoever dies. Not so a call of an actor that may not be
    repeated, until it is answered: whether all can."""
    if not refs:
        return True
    for ref in refs:
        _native.keep(ref)
    found = rpc.request("find_kept", ids=[ref.binary() for ref in refs], wait=True)
    return len(found) == len({ref.binary() for ref in refs})


def restore(ids: Collection[bytes]) -> Refs:
    """Refs to objects that are kept; to one that is not, a ref that says so when it is read."""
    if not ids:
        return {}
    owners = {found[0]: (found[1], found[2]) for found in rpc.request("find_kept", ids=list(ids), wait=False)}
    refs: Refs = {}
    for identity in ids:
        if identity in owners:
            slot, generation = owners[identity]
            refs[identity] = _native._restore_ref(identity, generation << 32 | slot)
            _native.keep(refs[identity])
        else:
            text = "the object that was named here is lost: its owner died before it could be kept"
            refs[identity] = _native.put_error(_native.error_value(ErrorCode.OWNER_DIED, text))
    return refs


def _named(identity: bytes) -> ObjectRef[Any]:
    ref: ObjectRef[Any] = _local.known[identity]
    return ref


def _name(ref: ObjectRef[Any]) -> tuple[Any, tuple[bytes]]:
    _local.found[ref.binary()] = ref
    return _named, (ref.binary(),)


class _NamingPickler(serialize._Pickler):
    dispatch_table: ClassVar[dlpack.Reducers] = dlpack.Reducers({ObjectRef: _name}, serialize._Pickler.dispatch_table)
