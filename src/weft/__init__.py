"""Weft: one dynamic execution engine for Python. Tasks, actors and objects, in Ray's words.

>>> import weft
>>> @weft.remote
... def square(x):
...     return x * x
>>> weft.get([square.remote(i) for i in range(3)])
[0, 1, 4]

Every name is loaded at its first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # not from typing, which takes longer to import than all of this

if TYPE_CHECKING:
    from weft import actor as actor
    from weft import cloudpickle as cloudpickle
    from weft import exceptions as exceptions
    from weft import ids as ids
    from weft import runtime_context as runtime_context
    from weft import util as util
    from weft._native import ObjectRef as ObjectRef
    from weft.engine.process.actors.actor_class import ActorClass as ActorClass
    from weft.engine.process.actors.actor_description import method as method
    from weft.engine.process.actors.actor_handle import ActorHandle as ActorHandle
    from weft.engine.process.api import cancel as cancel
    from weft.engine.process.api import get as get
    from weft.engine.process.api import get_actor as get_actor
    from weft.engine.process.api import kill as kill
    from weft.engine.process.api import map as map
    from weft.engine.process.api import remote as remote
    from weft.engine.process.api import wait as wait
    from weft.engine.process.calls.generator import DynamicObjectRefGenerator as DynamicObjectRefGenerator
    from weft.engine.process.calls.generator import ObjectRefGenerator as ObjectRefGenerator
    from weft.engine.process.calls.remote_function import RemoteFunction as RemoteFunction
    from weft.engine.process.objects.filled import empty as empty
    from weft.engine.process.objects.lasting import delete_object as delete_object
    from weft.engine.process.objects.lasting import get_object as get_object
    from weft.engine.process.objects.put import put as put
    from weft.engine.process.session.attached import is_initialized as is_initialized
    from weft.engine.process.session.cluster import available_resources as available_resources
    from weft.engine.process.session.cluster import cluster_resources as cluster_resources
    from weft.engine.process.session.cluster import nodes as nodes
    from weft.engine.process.session.context import get_gpu_ids as get_gpu_ids
    from weft.engine.process.session.context import get_runtime_context as get_runtime_context
    from weft.engine.process.session.session import init as init
    from weft.engine.process.session.session import shutdown as shutdown
    from weft.engine.process.telling.logging_config import LoggingConfig as LoggingConfig
    from weft.ids import ActorClassID as ActorClassID
    from weft.ids import ActorID as ActorID
    from weft.ids import ClusterID as ClusterID
    from weft.ids import FunctionID as FunctionID
    from weft.ids import JobID as JobID
    from weft.ids import NodeID as NodeID
    from weft.ids import PlacementGroupID as PlacementGroupID
    from weft.ids import TaskID as TaskID
    from weft.ids import UniqueID as UniqueID
    from weft.ids import WorkerID as WorkerID
    from weft.inspection.explain import explain as explain
    from weft.inspection.report import report as report
    from weft.inspection.timeline import timeline as timeline
    from weft.util.mapping import as_completed as as_completed

    ObjectID = ObjectRef
    __version__: str

_PROCESS = "weft.engine.process."
_HOMES = {
    _PROCESS + "api": "cancel get get_actor kill map remote wait",
    _PROCESS + "objects.filled": "empty",
    _PROCESS + "objects.lasting": "delete_object get_object",
    _PROCESS + "objects.put": "put",
    _PROCESS + "session.attached": "is_initialized",
    _PROCESS + "session.session": "init shutdown",
    _PROCESS + "actors.actor_class": "ActorClass",
    _PROCESS + "actors.actor_handle": "ActorHandle",
    _PROCESS + "actors.actor_description": "method",
    "weft.inspection.explain": "explain",
    "weft.inspection.report": "report",
    "weft.inspection.timeline": "timeline",
    _PROCESS + "telling.logging_config": "LoggingConfig",
    _PROCESS + "calls.generator": "DynamicObjectRefGenerator ObjectRefGenerator",
    _PROCESS + "calls.remote_function": "RemoteFunction",
    _PROCESS + "session.cluster": "available_resources cluster_resources nodes",
    _PROCESS + "session.context": "get_gpu_ids get_runtime_context",
    "weft._native": "ObjectRef",
    "weft.util.mapping": "as_completed",
    "weft.ids": "ActorClassID ActorID ClusterID FunctionID JobID NodeID PlacementGroupID TaskID UniqueID WorkerID",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}
_ALIASES = {"ObjectID": "ObjectRef"}
_SUBMODULES = frozenset(
    "actor cloudpickle cluster_utils compat exceptions experimental ids job_submission remote_function "
    "runtime_context runtime_env state types util".split()
)
_LIBRARIES = frozenset(("data", "pandas", "rl", "serve", "train", "tune"))

# `from weft import *` must not put another map in the place of the builtin one
__all__ = [*sorted({*_HOME_OF} - {"map"}), *_ALIASES, "__version__", "exceptions", "util"]
_LISTED = {*__all__, "map", *_SUBMODULES, *_LIBRARIES}


def __getattr__(name: str) -> object:
    import importlib

    if name in _HOME_OF:
        value = getattr(importlib.import_module(_HOME_OF[name]), name)
    elif name in _ALIASES:
        value = __getattr__(_ALIASES[name])
    elif name == "__version__":
        import importlib.metadata

        value = importlib.metadata.version("weft")
    elif name in _SUBMODULES or name in _LIBRARIES:
        try:
            value = importlib.import_module(f"weft.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"weft.{name}":
                raise
            raise AttributeError(f"module 'weft' has no attribute {name!r}") from None
    else:
        from weft._lazy import missing

        raise missing("weft", name, _LISTED)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    from weft._lazy import listed

    return listed("weft", _LISTED)
