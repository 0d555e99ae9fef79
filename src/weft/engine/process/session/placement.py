"""This process's end of placement groups: making and removing them, and knowing when they are placed.

The node daemon tells the creator, and whoever asked, what becomes of a group: the first time by keeping a promise of
the creator's (PROMISE_KEPT, which the core handles on the thread that waits), later and to others by
`messages.GroupChanged`, on the core's callback thread. So a group that is known to be placed is waited for without a
word, and `ready` is a promise that is kept when the daemon's word comes: nobody polls.
"""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import Any

import msgspec

from weft import _native
from weft._native import ObjectRef
from weft.engine.process.session import attached, context_state, rpc
from weft.engine.wire.kinds import ErrorCode
from weft.engine.wire.messages import CreateGroup, GroupChanged, RemoveGroup, WatchGroup
from weft.exceptions import TaskPlacementGroupRemoved
from weft.ids import PlacementGroupID

CREATED, REMOVED = "CREATED", "REMOVED"
DUE_NS = 200_000
"""A group that fits is placed within so long: not worth falling asleep for."""

_lock = threading.Lock()
_session = 0
_known: dict[bytes, _Known] = {}


class _Known:
    """One group that the daemon will tell about."""

    __slots__ = ("creation", "is_down", "promises")

    def __init__(self) -> None:
        self.creation: ObjectRef[None] = _native.promise()
        """Kept when the group is first placed: by the daemon's record, which wakes who waits without Python in
        between, or when GroupChanged comes."""
        self.is_down = False
        """It was placed and has lost bundles since."""
        self.promises: list[tuple[ObjectRef[Any], Any]] = []

    @property
    def is_placed(self) -> bool:
        """Not once the daemon is gone, which has failed the promise as well: so it is looked at last."""
        return not self.is_down and self.creation.is_ready() and not _native.is_lost()


def _forget_last_session() -> None:
    global _session
    if _session != _native.session():
        _session = _native.session()
        _known.clear()


def create(spec: CreateGroup) -> None:
    """Ask for it; ValueError when its name is taken. Does not wait until it is placed."""
    with _lock:
        _forget_last_session()
        known = _known[spec.group] = _Known()
    spec.promise = known.creation.binary()
    if not spec.name:
        rpc.send(spec)
        return
    try:
        rpc.request("create_group", spec=msgspec.to_builtins(spec, builtin_types=(bytes,)))
    except BaseException:
        _known.pop(spec.group, None)
        raise


def new_id() -> bytes:
    return os.urandom(PlacementGroupID.size())


def remove(group: bytes) -> None:
    """It is removed before anything that this process asks its node later."""
    attached.ensure()
    rpc.send(RemoveGroup(group))
    _settle(group, REMOVED)


def changed(message: GroupChanged) -> None:
    """The daemon's word."""
    _settle(message.group, message.state)


def _settle(group: bytes, state: str) -> None:
    with _lock:
        known = _known.get(group)
        if known is None:
            return
        known.is_down = state not in (CREATED, REMOVED)
        promises: list[tuple[ObjectRef[Any], Any]] = []
        if not known.is_down:
            promises, known.promises = known.promises, []
        if state == REMOVED:
            del _known[group]
    if known.is_down:
        return
    error = b""
    if state == REMOVED and (promises or not known.creation.is_ready()):
        error = _native.error_value(ErrorCode.GROUP_REMOVED, f"placement group {group.hex()} was removed.")
    if not known.creation.is_ready():
        _native.keep_promise(known.creation, None, error)
    for ref, value in promises:
        _native.keep_promise(ref, value, error)


def _placed(group: bytes, known: _Known) -> None:
    """Its promise was kept, unless the group was removed and is known anew, or the daemon is gone."""
    try:
        if _known.get(group) is known and known.is_placed:
            _settle(group, CREATED)
    except RuntimeError:
        if _native.is_attached():  # else the session has ended meanwhile, and nobody waits for it
            raise


def _known_or_watched(group: bytes) -> _Known:
    """Under the lock."""
    _forget_last_session()
    known = _known.get(group)
    if known is None:
        known = _known[group] = _Known()
        rpc.send(WatchGroup(group))
    return known


def ready(group: bytes, value: Any) -> ObjectRef[Any]:
    """A ref that has the value once the group is placed, and TaskPlacementGroupRemoved once it is removed."""
    attached.ensure()
    with _lock:
        known = _known_or_watched(group)
        if not known.is_placed:
            ref = _native.promise()
            known.promises.append((ref, value))
            if not known.is_down:
                _native.on_ready(known.creation, partial(_placed, group, known))
            return ref
    return _native.put(value)


def wait(group: bytes, timeout_s: float) -> bool:
    """Whether it is placed, now or within the time; False too when it is removed."""
    attached.ensure()
    with _lock:
        known = _known_or_watched(group)
        if known.is_placed:
            return True
    ref = ready(group, None) if known.creation.is_ready() else known.creation
    if not _native.wait([ref], 1, timeout_s, DUE_NS)[0]:
        return False
    try:
        _native.get(ref)
    except TaskPlacementGroupRemoved:
        return False
    return True


def find(**by: Any) -> dict[str, Any] | None:
    """One group's row: `group=` its id, or `name=`, in this namespace."""
    attached.ensure()
    if "name" in by:
        by["namespace"] = context_state.here().namespace
    found: dict[str, Any] | None = rpc.request("get_group", **by)
    return found


def rows() -> list[dict[str, Any]]:
    """All groups that the node knows, removed ones included."""
    attached.ensure()
    found: list[dict[str, Any]] = rpc.request("list_groups")
    return found


def current() -> str:
    """The id (hexadecimal) of the group that the caller's task or actor is in; empty for none."""
    attached.ensure()
    return context_state.here().placement_group
