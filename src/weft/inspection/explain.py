"""`weft.explain(ref)`: why an object is pending, lost or big, for a person.

What this process knows (the native core), completed with what the node daemon knows: which worker, which resources.
Runs on the user's thread; nothing is waited for but the daemon's answer.
"""

from __future__ import annotations

from typing import Any

from weft import _native
from weft._native import ObjectRef
from weft.engine.process.calls import errors
from weft.engine.process.session import attached, cluster, rpc

_MEBI = 1 << 20


def explain(ref: ObjectRef[Any]) -> str:
    """One paragraph on the ref's state: what it waits for, where its task runs, how large its value is.

    >>> print(weft.explain(weft.put("hello")))
    The object is ready: 10 bytes, kept inline in this process. This process owns it; nobody borrows it.
    """
    if not isinstance(ref, ObjectRef):
        raise TypeError(f"explain() wants an ObjectRef, but got {ref!r}")
    attached.ensure()
    known = _native.explain(ref)
    return f"{_what(ref, known)} {_whose(known)}"


def _what(ref: ObjectRef[Any], known: dict[str, Any]) -> str:
    state, task = known["state"], known["task"]
    if state == "inline":
        return f"The object is ready: {known['bytes']} bytes, kept inline in this process."
    if state == "in the arena":
        return f"The object is ready: {_size(known['bytes'])} in the node's arena, read in place."
    if state == "failed":
        return f"The object ended in an error: {_error_of(ref)}"
    if state == "waits for arguments":
        missing = known["waits_for"]
        ids = ", ".join(one.hex()[:8] for one in missing[:3]) + ("…" if len(missing) > 3 else "")
        return f"Task {task} waits for {len(missing)} of its arguments: {ids}. Explain those."
    if state == "waits for a worker":
        return f"Task {task} waits for a worker: {_why_no_worker(known)}"
    if state in ("runs, or is about to", "queued at a worker"):
        return f"Task {task} (attempt {known['attempt']}) {_at_worker(known)}"
    if known["actor"]:
        return _at_actor(task, known)
    if state == "asked of its owner":
        alive = "which is alive" if known["owner_alive"] else "which is dead"
        return f"The value was asked of its owner ({_process(known['owner'])}), {alive}, and has not come yet."
    if state == "not asked for":
        return "The value is known to its owner; it is fetched by get()."
    return "Nothing is known of what makes the object: its task is over, or it was never submitted."


def _whose(known: dict[str, Any]) -> str:
    if not known["is_owned"]:
        return "This process borrows it."
    count = known["borrowers"]
    lent = "nobody borrows it" if count == 0 else f"{count} other process{'es' if count > 1 else ''} borrow it"
    return f"This process owns it; {lent}."


def _why_no_worker(known: dict[str, Any]) -> str:
    free, total = rpc.request("available_resources"), rpc.request("cluster_resources")
    shown = ", ".join(f"{free.get(name, 0):g} of {total[name]:g} {name}" for name in sorted(total) if _is_shown(name))
    ahead, leases = known["ahead"], known["leases"]
    before = f" {ahead} tasks of this process that need the same are ahead of it." if ahead else ""
    busy = f"the {leases} that it has for such tasks are busy; " if leases else ""
    why, _ = rpc.request("why_pending", shape=known["shape"])
    return f"{busy}{why}. Free in the cluster: {shown}.{before}"


def _is_shown(name: str) -> bool:
    return not name.startswith(("node:", "memory", "object_store_memory"))


def _at_worker(known: dict[str, Any]) -> str:
    worker = f"the worker {_process(known['worker'])}"
    if known["ahead"]:
        return f"is queued at {worker}, behind {known['ahead']} others; it is handed back if those take long."
    return f"runs, or is about to, in {worker}; {known['retries_left']} retries are left."


def _at_actor(task: str, known: dict[str, Any]) -> str:
    info = rpc.request("actor_info", actor=known["actor"]) or {}
    who = f"actor {info.get('class_name', '')} ({known['actor'].hex()[:8]})"
    where = f" in process {info['pid']} of node {str(info['node_id'])[:8]}" if info.get("pid") else ""
    stage = f" The actor is {info['state']}{where}." if info.get("state") else ""
    ahead = f"; {known['ahead']} earlier calls are unanswered" if known["ahead"] else ""
    return f"Call {task} of {who}: {known['state']}{ahead}.{stage}"


def _process(process: tuple[int, int]) -> str:
    """By its pid, and by its node where that is another."""
    place = rpc.request("place_of", slot=process[0], generation=process[1])
    node = place["node_id"] or "unknown"
    pid = f"pid={place['pid']}" if place["pid"] else "that has not told its pid"
    return pid if node == cluster.own_node_id() else f"{pid} of node {node[:8]}"


def _error_of(ref: ObjectRef[Any]) -> str:
    try:
        _native.get(ref)
    except BaseException as error:
        return errors.format_remote(error).strip().splitlines()[-1]
    return "unknown"


def _size(count: int) -> str:
    return f"{count / _MEBI:.1f} MiB" if count >= _MEBI else f"{count} bytes"
