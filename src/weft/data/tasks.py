"""The tasks and actors that run stages, and how a stage gets to them: pickled once, unpickled once per process.

What a task is given as bytes is not unpickled before `_stage` has seen to it that Polars, when it is first imported
here, takes one thread: the engine already runs a task a CPU.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import weft
from weft import cloudpickle

if TYPE_CHECKING:
    from weft.data.stage import Stage

_KEPT = 32
_stages: OrderedDict[str, Stage] = OrderedDict()
_instances: dict[int, Any] = {}


_INLINE_BYTES = 16 * 1024


def pickle_stage(stage: Any) -> tuple[str, Any]:
    """Its name among the stages that a worker has unpickled, and the bytes, or a ref of them where they are many."""
    pickled = bytes(cloudpickle.dumps(stage))
    name = hashlib.blake2b(pickled, digest_size=16).hexdigest()
    return name, pickled if len(pickled) <= _INLINE_BYTES else weft.put(pickled)


def limit_threads() -> None:
    """Before Polars is imported in a worker. What it has freed it keeps for some seconds, for the next block: half of
    the time of a sort went into fresh pages from the kernel."""
    if "polars" not in sys.modules:
        os.environ.setdefault("POLARS_MAX_THREADS", "1")
        os.environ.setdefault("_RJEM_MALLOC_CONF", "dirty_decay_ms:5000,oversize_threshold:0")


def _stage(name: str, pickled: bytes) -> Stage:
    stage = _stages.get(name)
    if stage is None:
        limit_threads()
        stage = cloudpickle.loads(pickled)
        _stages[name] = stage
        if len(_stages) > _KEPT:
            _stages.popitem(last=False)
            _instances.clear()  # they may be of the stage that went
    return stage


def run_stage(name: str, pickled: bytes, index: int, *inputs: Any) -> tuple[Any, ...]:
    """The blocks that the stage makes of the inputs, and its Report behind them."""
    made, report = _stage(name, pickled).run(index, inputs, _instances)
    return (*made, report)


stage_task = weft.remote(run_stage)


def read_blocks(pickled: bytes, split: Any) -> Iterator[Any]:
    """The blocks of a source that can only be read from its beginning."""
    limit_threads()
    source = cloudpickle.loads(pickled)
    yield from source.blocks(split)


reading_task = weft.remote(num_returns="streaming", _generator_backpressure_num_objects=2)(read_blocks)


class StageActor:
    """Runs one stage over and over, for functions with state of their own."""

    def __init__(self, pickled: bytes) -> None:
        limit_threads()
        self._stage: Stage = cloudpickle.loads(pickled)
        self._instances: dict[int, Any] = {}
        for step in self._stage.steps:
            function = getattr(step, "function", None)
            if function is not None:
                self._instances[id(function)] = function.make()

    def run(self, index: int, *inputs: Any) -> tuple[Any, ...]:
        made, report = self._stage.run(index, inputs, self._instances)
        return (*made, report)


stage_actor: Any = weft.remote(StageActor)
