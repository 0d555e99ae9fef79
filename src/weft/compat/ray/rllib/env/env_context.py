"""`EnvContext`: what RLlib gives an environment, or what creates one, as its only argument."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


class EnvContext(dict[str, Any]):
    """The env_config. Which worker asks is not told: `worker_index`, `vector_index` are 0, `num_workers` too."""

    worker_index = vector_index = num_workers = 0
    remote = False


class with_context:
    """What makes an environment, called with a context, as RLlib does, even where none is set."""

    def __init__(self, creator: Callable[[EnvContext], Any]) -> None:
        self.creator = creator
        self.__qualname__ = getattr(creator, "__qualname__", repr(creator))

    def __call__(self, env_config: Mapping[str, Any], /) -> Any:
        return self.creator(EnvContext(env_config))
