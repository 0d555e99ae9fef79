"""`put(value, replicas=n)` and `put(value, durable=True)`: values that outlive the node that they were put on.

Both stand on what keeps every other object. A replica is a copy that a task on another node has fetched; with the ref,
that node has got what it takes to own the object (docs/design/0010-nothing-is-lost.md). A durable value is what a task
reads from a file in the cluster's storage folder: when its bytes are lost, they are read again.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import warnings
from typing import Any

from cloudpickle import CloudPickler

from weft import _native
from weft._native import ObjectRef
from weft.engine.process.api import get, remote, wait
from weft.engine.process.objects import kept_refs
from weft.engine.process.session import attached, cluster, context_state, rpc
from weft.exceptions import WeftError

REPLICATE_S = 600.0
"""A copy that takes longer is an error: links are never that slow, so its node is stuck."""


def put(value: Any, replicas: int, durable: bool, name: str | None) -> ObjectRef[Any]:
    """The ref, once the copies and the file are there.

    ValueError when the cluster has fewer nodes than there shall be replicas, OSError when the file cannot be written.
    """
    if isinstance(value, ObjectRef):
        return _native.put(value)  # which says why not
    if isinstance(replicas, bool) or not isinstance(replicas, int):
        raise TypeError(f"replicas must be a whole number, but got {replicas!r}")
    if replicas < 1:
        raise ValueError(f"replicas must be at least 1, the value itself, but got {replicas}")
    if name is not None:
        _check_name(name)
    attached.ensure()
    others = _other_nodes(replicas) if replicas > 1 else []
    ref = _write(value) if durable else _native.put(value)
    if others:
        _keep(ref, replicas, _replicate(ref, replicas, others))
    if name is not None:
        if not kept_refs.keep([ref]):
            raise RuntimeError(
                f"the head has not heard in time of the value for {name!r}, which has no name now: try again"
            )
        rpc.request("name_object", name=name, namespace=_namespace(None), id=ref.binary())
    return ref


# ---- names -----------------------------------------------------------------------------------------


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"an object's name must be a string that is not empty, but got {name!r}")


def _namespace(given: str | None) -> str:
    return context_state.here().namespace if given is None else given


def get_object(name: str, namespace: str | None = None) -> ObjectRef[Any]:
    """A ref to what was put under that name; ValueError when there is nothing.

    >>> ref = weft.put([1, 2, 3], name="numbers")
    >>> weft.get(weft.get_object("numbers"))
    [1, 2, 3]
    >>> weft.delete_object("numbers")
    """
    _check_name(name)
    attached.ensure()
    identity: bytes = rpc.request("named_object", name=name, namespace=_namespace(namespace))
    return kept_refs.restore([identity])[identity]


def delete_object(name: str, namespace: str | None = None) -> None:
    """Free the name; the value goes with the last ref. ValueError when nothing has that name."""
    _check_name(name)
    attached.ensure()
    rpc.request("delete_object", name=name, namespace=_namespace(namespace))


class OnNode:
    """As `weft.util.scheduling_strategies` has it."""

    def __init__(self, node_id: str, soft: bool) -> None:
        self._node_id = node_id
        self._soft = soft

    def to_wire(self) -> dict[str, str | int | bool]:
        return {"kind": "node_affinity", "node_id": self._node_id, "soft": self._soft}


# ---- replicas --------------------------------------------------------------------------------------


def _other_nodes(replicas: int) -> list[str]:
    here = cluster.own_node_id()
    others = [node["NodeID"] for node in cluster.nodes() if node["Alive"] and node["NodeID"] != here]
    if len(others) < replicas - 1:
        nodes = "1 node" if not others else f"{len(others) + 1} nodes"
        raise ValueError(
            f"replicas={replicas} needs {replicas} living nodes, but the cluster has {nodes}. Ask for fewer, start "
            "more nodes, or use durable=True, which keeps the value in the cluster's storage folder."
        )
    return others


def _fetch(refs: list[ObjectRef[Any]]) -> None:
    wait(refs, fetch_local=True)


def _keep(ref: ObjectRef[Any], replicas: int, nodes: list[str]) -> None:
    """Have the daemons make lost copies again. A small value is in its owner's row, wherever there is a ref."""
    known = _native.explain(ref)
    entry, generation = known["arena"]
    if known["state"] == "in the arena":
        where = {"entry": entry, "generation": generation, "bytes": known["bytes"]}
        rpc.request("keep_replicas", replicas=replicas, nodes=nodes, **where)


def _replicate(ref: ObjectRef[Any], replicas: int, others: list[str]) -> list[str]:
    """The nodes that have copies now. All at once, and others in place of those that fail."""
    fetch = remote(_fetch)
    first = int.from_bytes(ref.binary()[-4:], "little") % len(others)  # so that not one node has them all
    candidates = others[first:] + others[:first]
    made: list[str] = []
    reason: WeftError | None = None
    while len(made) < replicas - 1 and candidates:
        chosen = [candidates.pop(0) for _ in range(min(replicas - 1 - len(made), len(candidates)))]
        asked = [
            fetch.options(
                name="weft.put: replica", num_cpus=0, max_retries=0, scheduling_strategy=OnNode(node, soft=False)
            ).remote([ref])
            for node in chosen
        ]
        for node, one in zip(chosen, asked, strict=True):
            try:
                get(one, timeout=REPLICATE_S)
                made.append(node)
            except WeftError as error:
                reason = error
    if len(made) < replicas - 1:
        warnings.warn(
            f"put(replicas={replicas}) made only {len(made) + 1} copies: nodes died or could not take one meanwhile "
            f"(the last: {reason})",
            RuntimeWarning,
            stacklevel=4,
        )
    return made


# ---- durable ---------------------------------------------------------------------------------------


class _Pickler(CloudPickler):  # type: ignore[misc]
    """Refs inside the value are passed beside the file: they keep being counted."""

    def __init__(self, file: Any, refs: list[ObjectRef[Any]]) -> None:
        super().__init__(file, protocol=5)
        self._refs = refs

    def persistent_id(self, value: Any) -> int | None:
        if not isinstance(value, ObjectRef):
            return None
        self._refs.append(value)
        return len(self._refs) - 1


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any, refs: list[ObjectRef[Any]]) -> None:
        super().__init__(file)
        self._refs = refs

    def persistent_load(self, index: Any) -> ObjectRef[Any]:
        ref: ObjectRef[Any] = self._refs[index]
        return ref


def _write(value: Any) -> ObjectRef[Any]:
    folder = rpc.request("storage_folder")
    path = os.path.join(folder, f"value-{os.urandom(16).hex()}")
    refs: list[ObjectRef[Any]] = []
    try:
        with open(f"{path}.part", "xb") as file:
            _Pickler(file, refs).dump(value)
            file.flush()
            os.fsync(file.fileno())
        os.rename(f"{path}.part", path)
    except BaseException:
        if os.path.exists(f"{path}.part"):
            os.unlink(f"{path}.part")
        raise
    here = OnNode(cluster.own_node_id(), soft=True)
    read = remote(_read).options(name="weft.put: durable value", num_cpus=0, max_retries=-1, scheduling_strategy=here)
    ref: ObjectRef[Any] = read.remote(path, refs)
    _native.on_freed(ref, functools.partial(_remove, path))
    wait([ref])
    return ref


def _remove(path: str) -> None:
    """Nobody can ask for the value any more. What is left, for a process that died had it, goes with the cluster."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _read(path: str, refs: list[ObjectRef[Any]]) -> Any:
    rpc.request("storage_folder")  # this node keeps the folder, too, from now on
    try:
        with open(path, "rb") as file:
            return _Unpickler(file, refs).load()
    except FileNotFoundError:
        raise FileNotFoundError(
            f"the durable value {path} is not there on this node: all nodes must see the same storage folder "
            "(`weft start --storage PATH`, weft.init(storage=PATH))"
        ) from None
