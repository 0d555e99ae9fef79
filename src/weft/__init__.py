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
    from weft.engine.process.actor_class import ActorClass as ActorClass
    from weft.engine.process.actor_description import method as method
    from weft.engine.process.actor_handle import ActorHandle as ActorHandle
    from weft.engine.process.api import cancel as cancel
    from weft.engine.process.api import get as get
    from weft.engine.process.api import get_actor as get_actor
    from weft.engine.process.api import kill as kill
    from weft.engine.process.api import put as put
    from weft.engine.process.api import remote as remote
    from weft.engine.process.api import wait as wait
    from weft.engine.process.cluster import available_resources as available_resources
    from weft.engine.process.cluster import cluster_resources as cluster_resources
    from weft.engine.process.cluster import nodes as nodes
    from weft.engine.process.context import get_gpu_ids as get_gpu_ids
    from weft.engine.process.context import get_runtime_context as get_runtime_context
    from weft.engine.process.explain import explain as explain
    from weft.engine.process.generator import ObjectRefGenerator as ObjectRefGenerator
    from weft.engine.process.logging_config import LoggingConfig as LoggingConfig
    from weft.engine.process.remote_function import RemoteFunction as RemoteFunction
    from weft.engine.process.session import init as init
    from weft.engine.process.session import is_initialized as is_initialized
    from weft.engine.process.session import shutdown as shutdown
    from weft.engine.process.timeline import timeline as timeline
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
    from weft.util.mapping import as_completed as as_completed

    ObjectID = ObjectRef
    DynamicObjectRefGenerator = ObjectRefGenerator
    __version__: str

_PROCESS = "weft.engine.process."
_HOMES = {
    _PROCESS + "api": "cancel get get_actor kill put remote wait",
    _PROCESS + "session": "init is_initialized shutdown",
    _PROCESS + "actor_class": "ActorClass",
    _PROCESS + "actor_handle": "ActorHandle",
    _PROCESS + "actor_description": "method",
    _PROCESS + "explain": "explain",
    _PROCESS + "timeline": "timeline",
    _PROCESS + "logging_config": "LoggingConfig",
    _PROCESS + "generator": "ObjectRefGenerator",
    _PROCESS + "remote_function": "RemoteFunction",
    _PROCESS + "cluster": "available_resources cluster_resources nodes",
    _PROCESS + "context": "get_gpu_ids get_runtime_context",
    "weft._native": "ObjectRef",
    "weft.util.mapping": "as_completed",
    "weft.ids": "ActorClassID ActorID ClusterID FunctionID JobID NodeID PlacementGroupID TaskID UniqueID WorkerID",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}
_ALIASES = {"ObjectID": "ObjectRef", "DynamicObjectRefGenerator": "ObjectRefGenerator"}
_SUBMODULES = frozenset(
    "actor cloudpickle cluster_utils compat exceptions experimental ids job_submission remote_function "
    "runtime_context runtime_env types util".split()
)
_LIBRARIES = frozenset(("data", "pandas", "rl", "serve", "train", "tune"))

__all__ = [*sorted(_HOME_OF), *_ALIASES, "__version__", "exceptions", "util"]


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
        raise AttributeError(f"module 'weft' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBMODULES})
