"""`weft.explain(ref)`: why an object is pending, lost or big, for a person.

What this process knows (the native core), completed with what the node daemon knows: which worker, which resources, who
has them. What a task waits for is followed from task to task, whoever of this node has submitted them, down to what
runs. Runs on the user's thread; nothing is waited for but the daemon's answers.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterator
from typing import Any

from weft import _native
from weft._native import DeviceLost, ObjectRef
from weft.devices import whereabouts
from weft.engine.process.calls import errors
from weft.engine.process.session import attached, cluster, rpc
from weft.exceptions import WeftError

_MEBI = 1 << 20
_TASK_DIGITS = 24
"""Of an object's id, those of the task that makes it."""
_MOST_ARGUMENTS = 3
_MOST_LEVELS = 20
_MOST_HOLDERS = 5
_FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>.+)$', re.MULTILINE)


def explain(ref: ObjectRef[Any]) -> str:
    """The ref's state: what it waits for, down to what runs, and where; who has the resources; how large its value is,
    and where its blocks lie that are on devices.

    >>> print(weft.explain(weft.put("hello")))
    The object is ready: 10 bytes, kept inline in this process. This process owns it; nobody borrows it.
    """
    if not isinstance(ref, ObjectRef):
        raise TypeError(f"explain() wants an ObjectRef, but got {ref!r}")
    attached.ensure()
    known = _native.explain(ref)
    what = _what(ref, known)
    return what + ("\n" if "\n" in what else " ") + _whose(known)


def _what(ref: ObjectRef[Any], known: dict[str, Any]) -> str:
    state, task = known["state"], known["task"]
    if state == "inline":
        return f"The object is ready: {known['bytes']} bytes, kept inline in this process."
    if state == "in the arena":
        size = _size(known["bytes"])
        return f"The object is ready: {size} in the node's arena, read in place.{_on_devices(ref, known)}"
    if state == "failed":
        return f"The object ended in an error: {_error_of(ref)}"
    if state == "waits for arguments":
        missing = [one.hex() for one in known["waits_for"]]
        chain = "\n".join(_Chain().lines(missing, 1))
        return f"Task {task} waits for {len(missing)} of its arguments:\n{chain}"
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


def _on_devices(ref: ObjectRef[Any], known: dict[str, Any]) -> str:
    """Where the blocks are that the value names of devices. It refers to their mark, so it has refs in it."""
    if not known["refs"] or (known["is_elsewhere"] and known["bytes"] > _MEBI):
        return ""
    try:
        found = whereabouts.seek(lambda: _native.get(ref, whereabouts.ANSWER_S))
    except Exception as error:
        return f" It cannot be read here: {type(error).__name__}: {error}"
    if found is None:
        return ""
    node = "" if found.node == cluster.own_node_id() else f" of node {found.node[:8]}"
    try:
        row = whereabouts.ask(found)
    except DeviceLost:
        return f" Its blocks on a device are gone: the process{node or ' of this node'} that held them has ended."
    except (TimeoutError, WeftError) as error:
        return f" It has blocks on a device, of which their holder{node} does not tell: {type(error).__name__}: {error}"
    blocks = f"{row['blocks']} block{'s' if row['blocks'] > 1 else ''}"
    told = []
    if row["device_bytes"] or not row["spilled_bytes"]:
        told.append(f"{_size(row['device_bytes'])} lie on the device")
    if row["spilled_bytes"]:
        told.append(f"{_size(row['spilled_bytes'])} are spilled to the host")
    told.append("readers have it open" if row["readers"] else "nobody has it open")
    where = " and ".join(row["devices"])
    return f" The process pid={row['pid']}{node} holds {blocks} of it on {where}: {', '.join(told)}."


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
    return f"{busy}{why}. Free in the cluster: {shown}.{_holders()}{before}"


def _holders() -> str:
    """Who has resources of this node, those with the most processes first."""
    tasks = [row for row in rpc.request("list_tasks") if row["state"] == "RUNNING" and row["type"] == "NORMAL_TASK"]
    actors = [row for row in rpc.request("list_actors") if row["state"] == "ALIVE"]
    holding: dict[str, set[int]] = collections.defaultdict(set)
    for row, name, pid in (
        *((row, f"task {row['name']}", row["worker_pid"]) for row in tasks),
        *((row, f"actor {row['class_name']}", row["pid"]) for row in actors),
    ):
        if pid and any(_is_shown(one) and amount for one, amount in (row["required_resources"] or {}).items()):
            holding[name].add(pid)
    if not holding:
        return ""
    told = [
        f"{name} × {len(pids)} (pid {', '.join(map(str, sorted(pids)[:_MOST_HOLDERS]))})"
        for name, pids in sorted(holding.items(), key=lambda one: -len(one[1]))[:_MOST_HOLDERS]
    ]
    return f" Held by {', '.join(told)}{' and others' if len(holding) > _MOST_HOLDERS else ''}."


def _is_shown(name: str) -> bool:
    return not name.startswith(("node:", "memory", "object_store_memory"))


def _at_worker(known: dict[str, Any]) -> str:
    worker = f"the worker {_process(known['worker'])}"
    if known["ahead"]:
        return f"is queued at {worker}, behind {known['ahead']} others; it is handed back if those take long."
    place = rpc.request("place_of", slot=known["worker"][0], generation=known["worker"][1])
    return f"runs, or is about to, in {worker}{_Chain().at(place['pid'])}; {known['retries_left']} retries are left."


def _at_actor(task: str, known: dict[str, Any]) -> str:
    info = rpc.request("actor_info", actor=known["actor"]) or {}
    who = f"actor {info.get('class_name', '')} ({known['actor'].hex()[:8]})"
    where = f" in process {info['pid']} of node {str(info['node_id'])[:8]}" if info.get("pid") else ""
    stage = f" The actor is {info['state']}{where}." if info.get("state") else ""
    ahead = f"; {known['ahead']} earlier calls are unanswered" if known["ahead"] else ""
    return f"Call {task} of {who}: {known['state']}{ahead}.{stage}"


class _Chain:
    """What tasks wait for, as the processes of this node know it at one moment."""

    def __init__(self) -> None:
        self._tasks: dict[str, dict[str, Any]] | None = None
        self._stacks: dict[int, str] | None = None

    def lines(self, objects: list[str], level: int) -> Iterator[str]:
        """One line per object that is waited for, each followed by those that its task waits for."""
        if self._tasks is None:
            self._tasks = {row["task_id"][:_TASK_DIGITS]: row for row in rpc.request("list_tasks")}
        for one in objects[:_MOST_ARGUMENTS]:
            row = self._tasks.get(one[:_TASK_DIGITS])
            yield f"{'  ' * level}{one[:8]}, {self._told(row)}"
            if row is not None and row["waits_for"] and level < _MOST_LEVELS:
                yield from self.lines(row["waits_for"], level + 1)
        if len(objects) > _MOST_ARGUMENTS:
            yield f"{'  ' * level}and {len(objects) - _MOST_ARGUMENTS} others"

    def _told(self, row: dict[str, Any] | None) -> str:
        if row is None:
            return "of a process on another node, or already there and on its way"
        who = f"of {'call' if row['actor_id'] else 'task'} {row['name']}"
        if row["waits_for"]:
            return f"{who}, which waits for:"
        if not row["worker_pid"]:
            wanted = ", ".join(f"{amount:g} {name}" for name, amount in (row["required_resources"] or {}).items())
            return f"{who}, which waits for {'its actor' if row['actor_id'] else f'a worker ({wanted})'}"
        place = f"pid={row['worker_pid']}" + (
            "" if row["node_id"] == cluster.own_node_id() else f" of node {row['node_id'][:8]}"
        )
        if row["state"] != "RUNNING":
            return f"{who}, which is queued in {place}"
        return f"{who}, which runs in {place}{self.at(row['worker_pid'])}"

    def at(self, pid: int | None) -> str:
        """Where that process of this node is, by its innermost frame that is not the engine's; empty if unknown."""
        if self._stacks is None:
            self._stacks = {row["pid"]: row["stack"] for row in rpc.request("list_stacks") if row["is_main"]}
        frames = _FRAME.findall(self._stacks.get(pid or 0, ""))
        return f", at {frames[-1][0]}:{frames[-1][1]} in {frames[-1][2]}" if frames else ""


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
        return errors.format_remote(error.with_traceback(None)).strip()
    return "unknown"


def _size(count: int) -> str:
    return f"{count / _MEBI:.1f} MiB" if count >= _MEBI else f"{count} bytes"
