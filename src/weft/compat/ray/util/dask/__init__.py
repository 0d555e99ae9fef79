"""Dask on Ray in the words of Ray 2.60: a scheduler for Dask's collections whose tasks are Weft's.

Each task of a graph is one remote call; its dependencies are passed as refs, so a value moves only to who needs it.
Persisted collections hold refs. Stands on Dask 2024.11 or later, which calls its own graph nodes.
"""

from __future__ import annotations

from typing import Any

import dask
import dask.base
from dask._task_spec import Alias, DataNode, GraphNode, convert_legacy_graph
from dask.core import toposort
from dask.local import get_sync
from dask.utils import ensure_dict

import weft
from weft.compat.ray.util.dask.callbacks import (
    ProgressBarCallback,
    RayDaskCallback,
    local_ray_callbacks,
    unpack_ray_callbacks,
)

__all__ = [
    "ProgressBarCallback",
    "RayDaskCallback",
    "dataframe_optimize",
    "disable_dask_on_ray",
    "enable_dask_on_ray",
    "local_ray_callbacks",
    "ray_dask_get",
    "ray_dask_get_sync",
    "unpack_ray_callbacks",
]

_OPTIONS = "ray_remote_args"


def enable_dask_on_ray(shuffle: str | None = "tasks", use_shuffle_optimization: bool = True) -> Any:
    """Make it Dask's scheduler, for good or, as a context manager, for a while."""
    settings: dict[str, Any] = {"scheduler": ray_dask_get}
    if shuffle:
        settings["dataframe.shuffle.method"] = shuffle
    return dask.config.set(settings)


def disable_dask_on_ray() -> Any:
    """Dask's own scheduler again."""
    return dask.config.set(scheduler=None)


def ray_dask_get(dsk: Any, keys: Any, **kwargs: Any) -> Any:
    """Compute the keys of a graph. `ray_persist=True` gives refs, `ray_remote_args` the options of the tasks; those of
    single layers are given by `dask.annotate(ray_remote_args=...)`."""
    with local_ray_callbacks(kwargs.pop("ray_callbacks", None)) as active:
        hooks = unpack_ray_callbacks(active)
        general = dict(kwargs.pop(_OPTIONS, None) or {}) | _of_now()
        dsk = _graph_of(dsk)
        special = _of_layers(dsk)
        graph = convert_legacy_graph(ensure_dict(dsk))
        made: dict[Any, Any] = {}
        for key in toposort(graph, dependencies={name: node.dependencies for name, node in graph.items()}):
            made[key] = _submitted(key, graph[key], made, general | special.get(key, {}), hooks)
        for hook in hooks.ray_postsubmit_all:
            hook(list(made.values()), dsk)
        results = _each(keys, made)
        if not kwargs.pop("ray_persist", False):
            results = _values(results)
        for hook in hooks.ray_finish:
            hook(results)
        return results


def ray_dask_get_sync(dsk: Any, keys: Any, **kwargs: Any) -> Any:
    """The same in this process, for looking at what goes wrong: Dask's own synchronous scheduler."""
    for name in ("ray_callbacks", "ray_persist", _OPTIONS):
        kwargs.pop(name, None)
    graph = {key: _value_of(node) for key, node in convert_legacy_graph(ensure_dict(_graph_of(dsk))).items()}
    return get_sync(graph, keys, **kwargs)


def dataframe_optimize(dsk: Any, keys: Any, **kwargs: Any) -> Any:
    """Dask's data frames are optimized as expressions, before there is a graph: nothing is left to do."""
    return dsk


def _graph_of(dsk: Any) -> Any:
    """Dask hands over an expression, or a graph."""
    return dsk.__dask_graph__() if hasattr(dsk, "__dask_graph__") else dsk


def _submitted(key: Any, node: GraphNode, made: dict[Any, Any], options: dict[str, Any], hooks: Any) -> Any:
    """The ref of a node's result."""
    needed = sorted(node.dependencies, key=str)
    for hook in hooks.ray_presubmit:
        if (given := hook(node, key, [made[name] for name in needed])) is not None:
            return given
    if isinstance(node, DataNode):
        value = node()
        ref = value if isinstance(value, weft.ObjectRef) else weft.put(value)
    elif isinstance(node, Alias):
        ref = made[node.target]
    else:
        call = _run.options(name=f"dask:{key if isinstance(key, str) else key[0]}"[:200], **options)
        ref = call.remote(node, key, needed, hooks.of_tasks(), *(made[name] for name in needed))
    for hook in hooks.ray_postsubmit:
        hook(node, key, {name: made[name] for name in needed}, ref)
    return ref


@weft.remote
def _run(node: GraphNode, key: Any, needed: list[Any], hooks: Any, *values: Any) -> Any:
    before, after = hooks
    states = [hook(key, values) for hook in before]
    given = dict(zip(needed, values, strict=True))
    result = node(
        {name: weft.get(value) if isinstance(value, weft.ObjectRef) else value for name, value in given.items()}
    )
    for hook, state in zip(after, states or [None] * len(after), strict=True):
        hook(key, result, state)
    return result


def _value_of(node: GraphNode) -> GraphNode:
    """With the value that a ref stands for."""
    if isinstance(node, DataNode) and isinstance(value := node(), weft.ObjectRef):
        return DataNode(node.key, weft.get(value))
    return node


def _each(keys: Any, made: dict[Any, Any]) -> Any:
    """Results in the form of the keys: nested lists."""
    return [_each(key, made) for key in keys] if isinstance(keys, list) else made[keys]


def _values(refs: Any) -> Any:
    if not isinstance(refs, list):
        return weft.get(refs)
    return weft.get(refs) if all(isinstance(ref, weft.ObjectRef) for ref in refs) else [_values(ref) for ref in refs]


def _of_now() -> dict[str, Any]:
    """What `dask.annotate` says around the call itself."""
    return dict(dask.get_annotations().get(_OPTIONS) or {})


def _of_layers(dsk: Any) -> dict[Any, dict[str, Any]]:
    """Options by key, as the layers of the graph are annotated."""
    found: dict[Any, dict[str, Any]] = {}
    for layer in getattr(dsk, "layers", {}).values():
        if (options := (layer.annotations or {}).get(_OPTIONS)) is not None:
            for key in layer:
                found[key] = options(key) if callable(options) else dict(options)
    return found


def _with_refs(persist: Any) -> Any:
    """Dask's `persist`, which asks this scheduler for refs; others do not know the word."""

    def persisted(*args: Any, **kwargs: Any) -> Any:
        if (kwargs.get("scheduler") or dask.config.get("scheduler", None)) is ray_dask_get:
            kwargs["ray_persist"] = True
        return persist(*args, **kwargs)

    persisted.__doc__ = persist.__doc__
    return persisted


dask.persist = dask.base.persist = _with_refs(dask.base.persist)
dask.base.DaskMethodsMixin.persist = _with_refs(dask.base.DaskMethodsMixin.persist)
