"""`ray.experimental.get_object_locations` of Ray 2.60: which nodes have an object's bytes, and how many there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft
from weft import ObjectRef, _native
from weft.engine.process.session import rpc
from weft.exceptions import GetTimeoutError

_ARENA, _INLINE, _FAR = "in the arena", "inline", "not asked for"


def get_object_locations(obj_refs: Sequence[ObjectRef[Any]], timeout_ms: int = -1) -> dict[ObjectRef[Any], Any]:
    """By ref: `node_ids`, of this node and of the one where the value was made, and `object_size` in bytes; no nodes
    and None as long as it is not made. Of a ref that came from elsewhere the value is fetched first, for at most
    `timeout_ms`."""
    far = [ref for ref in obj_refs if _known(ref)["state"] == _FAR]
    if far:
        _fetch(far, None if timeout_ms < 0 else timeout_ms / 1000)
    return get_local_object_locations(obj_refs)


def get_local_object_locations(obj_refs: Sequence[ObjectRef[Any]]) -> dict[ObjectRef[Any], Any]:
    """The same, of what this node knows already."""
    if not weft.is_initialized():
        raise RuntimeError("no session runs: call ray.init() first")
    return {ref: _location(ref) for ref in obj_refs}


def _known(ref: ObjectRef[Any]) -> dict[str, Any]:
    if not weft.is_initialized():
        raise RuntimeError("no session runs: call ray.init() first")
    return _native.explain(ref)


def _fetch(refs: list[ObjectRef[Any]], timeout_s: float | None) -> None:
    _, waiting = weft.wait(refs, num_returns=len(refs), timeout=timeout_s)
    if waiting:
        raise GetTimeoutError(f"{len(waiting)} of {len(refs)} objects could not be looked at within {timeout_s:g} s")


def _location(ref: ObjectRef[Any]) -> dict[str, Any]:
    known = _known(ref)
    here = weft.get_runtime_context().get_node_id()
    if known["state"] == _INLINE:
        return {"node_ids": [here], "object_size": known["bytes"], "did_spill": False}
    if known["state"] != _ARENA:
        return {"node_ids": [], "object_size": None, "did_spill": False}
    entry, generation = known["arena"]
    home: str = rpc.request("object_home", entry=entry, generation=generation)
    did_spill = known["is_elsewhere"] and not home  # to this node's disk
    nodes = ([] if known["is_elsewhere"] and home else [here]) + ([home] if home else [])
    return {"node_ids": nodes, "object_size": known["bytes"], "did_spill": did_spill}
