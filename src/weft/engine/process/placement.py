"""This process's end of placement groups: making and removing them, and knowing when they are placed.

The node daemon tells the creator, and whoever asked, what becomes of a group (`messages.GroupChanged`, on the core's
callback thread). So a group that is known to be placed is waited for without a word, and `ready` is a promise that is
kept when the daemon's word comes: nobody polls.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import msgspec

from weft import _native
from weft._native import ObjectRef
from weft.engine.process import context_state, errors, rpc, session
from weft.engine.wire.messages import CreateGroup, GroupChanged, RemoveGroup, WatchGroup
from weft.ids import PlacementGroupID

CREATED, REMOVED = "CREATED", "REMOVED"

_lock = threading.Lock()
_session = 0
_known: dict[bytes, _Known] = {}


class _Known:
    """One group that the daemon will tell about."""

    __slots__ = ("is_created", "promises")

    def __init__(self) -> None:
        self.is_created = False
        self.promises: list[tuple[ObjectRef[Any], Any]] = []


def _forget_last_session() -> None:
    global _session
    if _session != _native.session():
        _session = _native.session()
        _known.clear()


def create(spec: CreateGroup) -> None:
    """Ask for it; ValueError when its name is taken. Does not wait until it is placed."""
    with _lock:
        _forget_last_session()
        _known[spec.group] = _Known()
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
    session.ensure()
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
        known.is_created = state == CREATED
        promises: list[tuple[ObjectRef[Any], Any]] = []
        if state in (CREATED, REMOVED):
            promises, known.promises = known.promises, []
        if state == REMOVED:
            del _known[group]
    error = _removed_error(group) if state == REMOVED and promises else b""
    for ref, value in promises:
        _native.keep_promise(ref, value, error)


def _removed_error(group: bytes) -> bytes:
    text = f"placement group {group.hex()} was removed."
    return _native.error_value(errors.GROUP_REMOVED, text)


def ready(group: bytes, value: Any) -> ObjectRef[Any]:
    """A ref that has the value once the group is placed, and TaskPlacementGroupRemoved once it is removed."""
    session.ensure()
    with _lock:
        _forget_last_session()
        known = _known.get(group)
        if known is None:
            known = _known[group] = _Known()
            rpc.send(WatchGroup(group))
        if not known.is_created:
            ref = _native.promise()
            known.promises.append((ref, value))
            return ref
    return _native.put(value)


def is_placed(group: bytes) -> bool:
    """As far as is known here; False says little."""
    known = _known.get(group)
    return known is not None and known.is_created and _session == _native.session()


def find(**by: Any) -> dict[str, Any] | None:
    """One group's row: `group=` its id, or `name=`, in this namespace."""
    session.ensure()
    if "name" in by:
        by["namespace"] = context_state.here().namespace
    found: dict[str, Any] | None = rpc.request("get_group", **by)
    return found


def rows() -> list[dict[str, Any]]:
    """All groups that the node knows, removed ones included."""
    session.ensure()
    found: list[dict[str, Any]] = rpc.request("list_groups")
    return found


def current() -> str:
    """The id (hexadecimal) of the group that the caller's task or actor is in; empty for none."""
    session.ensure()
    return context_state.here().placement_group
