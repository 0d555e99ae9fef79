"""Parameters in actors that workers pull and push gradients to.

>>> import numpy as np, weft
>>> from weft import train
>>> @weft.remote
... def work(server, rank):
...     with server.join(rank) as link:
...         for _ in range(10):
...             link.push({"w": 2 * link.pull()["w"]})
>>> server = train.ParameterServer({"w": np.ones(3)}, train.SGD(0.25), workers=2)
>>> _ = weft.get([work.remote(server, rank) for rank in range(2)])
>>> server.pull()["w"] < 0.001
array([ True,  True,  True])

Synchronous (the default): a step is the mean of one gradient of every worker. Asynchronous (`mode="async"`): every
gradient is a step; `staleness` bounds how many a worker may be ahead of the slowest. A worker that dies or leaves is
no longer waited for; one that joins as the same rank takes its place.

Each parameter lies whole in one shard, so that a pull is a view of shared memory; the largest go to the emptiest shard.
Shards decide each for itself: when a worker dies between two of its pushes, its gradient counts where it arrived.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import uuid
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

import weft
from weft.library.checks import above, at_least, between, one_of
from weft.train.arrays import host_array, show_in
from weft.train.optimizers import Optimizer
from weft.train.server_state import ServerState
from weft.train.shard import ParameterShard, Published, ShardState

__all__ = ["ParameterServer", "WorkerLink"]

Arrays = dict[str, npt.NDArray[Any]]
Shapes = dict[str, tuple[tuple[int, ...], str]]


class ParameterServer:
    """A handle; it can be passed to tasks and actors. The parameters end with its last copy: `save` them."""

    def __init__(
        self,
        parameters: Mapping[str, Any],
        optimizer: Optimizer,
        *,
        workers: int,
        mode: str = "sync",
        shards: int = 1,
        staleness: int | None = None,
        timeout_s: float = 600.0,
        shard_options: Mapping[str, Any] | None = None,
    ) -> None:
        """`timeout_s` is how long a push may wait for others; `shard_options` are options of the shards' actors."""
        arrays = {name: np.asarray(host_array(value, written=False).memory) for name, value in parameters.items()}
        self._start(
            ShardState(arrays, {}), optimizer, workers, mode, shards, staleness, timeout_s, dict(shard_options or {})
        )

    def _start(
        self,
        initial: ShardState,
        optimizer: Optimizer,
        workers: int,
        mode: str,
        shards: int,
        staleness: int | None,
        timeout_s: float,
        options: dict[str, Any],
    ) -> None:
        _check(initial.parameters, workers, mode, shards, staleness)
        self.workers, self.mode = workers, mode
        self._optimizer, self._timeout_s = optimizer, timeout_s
        self._shapes: Shapes = {name: (array.shape, array.dtype.name) for name, array in initial.parameters.items()}
        self._names = divide({name: array.nbytes for name, array in initial.parameters.items()}, shards)
        actor = weft.remote(**{"num_cpus": 0, **options})(ParameterShard)
        self._shards: list[Any] = [
            actor.remote(
                ShardState(
                    {name: initial.parameters[name] for name in names},
                    {name: initial.memory[name] for name in names if name in initial.memory},
                    initial.version,
                ),
                optimizer,
                ServerState(workers, mode == "sync", staleness),
                timeout_s,
            )
            for names in self._names
        ]

    def join(self, rank: int) -> WorkerLink:
        """Become the worker `rank`, in place of any other that was it."""
        between("rank", rank, 0, self.workers - 1)
        return WorkerLink(self, rank)

    def pull(self) -> Arrays:
        """The parameters as they are, read-only; for those who push nothing."""
        return _read(weft.get([shard.pull.remote() for shard in self._shards]))

    def save(self, path: str | os.PathLike[str]) -> str:
        """Write a checkpoint, a file of this machine or behind an fsspec URL; it is there whole or not at all.

        While workers go on, a synchronous server's checkpoint is that of one step on all shards."""
        from weft.library.storage import open_storage

        text = os.fspath(path)
        folder, _, name = text.rpartition("/")
        with self._held() as versions:
            wanted = max(versions) if self.mode == "sync" else 0
            states: list[ShardState] = weft.get([shard.snapshot.remote(wanted) for shard in self._shards])
        whole = ShardState(
            {name: array for state in states for name, array in state.parameters.items()},
            {name: memory for state in states for name, memory in state.memory.items()},
            max(state.version for state in states),
        )
        open_storage(folder or ".").write(name, pickle.dumps((whole, self._optimizer), protocol=5))
        return text

    @contextlib.contextmanager
    def _held(self) -> Iterator[list[int]]:
        token = uuid.uuid4().hex
        try:
            yield weft.get([shard.hold.remote(token, self._timeout_s) for shard in self._shards])
        finally:
            weft.get([shard.release.remote(token) for shard in self._shards])

    @classmethod
    def restore(
        cls,
        path: str | os.PathLike[str],
        *,
        workers: int,
        optimizer: Optimizer | None = None,
        mode: str = "sync",
        shards: int = 1,
        staleness: int | None = None,
        timeout_s: float = 600.0,
        shard_options: Mapping[str, Any] | None = None,
    ) -> ParameterServer:
        """From what `save` wrote; workers and shards may be others than they were."""
        from weft.library.storage import open_storage

        folder, _, name = os.fspath(path).rpartition("/")
        data = open_storage(folder or ".").read(name)
        if data is None:
            raise FileNotFoundError(f"there is no checkpoint of a parameter server at {os.fspath(path)}")
        state, saved_optimizer = pickle.loads(data)
        server = cls.__new__(cls)
        chosen = saved_optimizer if optimizer is None else optimizer
        server._start(state, chosen, workers, mode, shards, staleness, timeout_s, dict(shard_options or {}))
        return server


class WorkerLink:
    """One worker's end. Made by `ParameterServer.join`; ends by `close`, `with`, or when it is collected."""

    def __init__(self, server: ParameterServer, rank: int) -> None:
        self._server, self.rank = server, rank
        self._token = uuid.uuid4().hex
        process = (weft.get_runtime_context().get_node_id(), os.getpid())
        self._coming: list[Any] | None = [shard.join.remote(rank, self._token, process) for shard in server._shards]
        self._arrays: Arrays = {}
        self._is_open = True
        self.version = 0
        """Steps that were in the parameters pulled last; of the shard with the fewest."""

    def pull(self, into: Mapping[str, Any] | None = None, copy: bool = True) -> Arrays:
        """The parameters, read-only views of shared memory: of the step that the last push was for, or newer.

        With `into`, they are copied into these arrays or tensors too (PyTorch: `dict(model.named_parameters())`). With
        `copy=False` PyTorch's tensors become the shared memory itself, until the next pull: whoever writes into them,
        such as an optimizer, changes them for other workers too."""
        if self._coming is not None:
            coming, self._coming = self._coming, None
            published: list[Published] = weft.get(coming)
            self.version = min(version for version, _ in published)
            self._arrays = _read(published)
        if into is not None and not copy:
            show_in(into, self._arrays)
        elif into is not None:
            for name, target in into.items():
                np.copyto(host_array(target, written=True).memory, self._arrays[name])
        return dict(self._arrays)

    def push(self, gradients: Mapping[str, Any], weight: float = 1.0) -> None:
        """Hand in a gradient of every parameter; it does not wait, the next `pull` or `push` does.

        `weight` is what it counts in the mean of a synchronous step, such as the size of its batch."""
        above("weight", weight)
        arrays = self._checked(gradients)
        self.pull()
        self._coming = [
            shard.push.remote(self.rank, self._token, {name: arrays[name] for name in names}, weight)
            for shard, names in zip(self._server._shards, self._server._names, strict=True)
        ]

    def _checked(self, gradients: Mapping[str, Any]) -> Arrays:
        shapes = self._server._shapes
        if gradients.keys() != shapes.keys():
            missing = sorted(shapes.keys() - gradients.keys())
            extra = sorted(gradients.keys() - shapes.keys())
            raise ValueError(f"gradients must be of all parameters and no others, but {missing=} and {extra=}")
        arrays = {}
        for name, gradient in gradients.items():
            array = host_array(gradient, written=False).memory
            if (array.shape, array.dtype.name) != shapes[name]:
                shape, element = shapes[name]
                raise ValueError(f"gradient {name} must be {element} {shape}, but got {array.dtype} {array.shape}")
            arrays[name] = array
        return arrays

    def close(self) -> None:
        """Leave, after what was pushed has counted or failed. The others are no longer held up by this rank."""
        if self._is_open:
            self._is_open = False
            self._leave()

    def _leave(self) -> list[Any]:
        return [shard.leave.remote(self.rank, self._token) for shard in self._server._shards]

    def __enter__(self) -> WorkerLink:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.pull()
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_is_open", False) and weft.is_initialized():
            self.close()


def divide(sizes: Mapping[str, int], shards: int) -> list[list[str]]:
    """Names for each shard: the largest first, each to the emptiest."""
    divided: list[list[str]] = [[] for _ in range(shards)]
    filled = [0] * shards
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        emptiest = filled.index(min(filled))
        divided[emptiest].append(name)
        filled[emptiest] += sizes[name]
    return divided


def _read(published: list[Published]) -> Arrays:
    parts: list[Arrays] = weft.get([refs[0] for _, refs in published])
    return {name: array for part in parts for name, array in part.items()}


def _check(parameters: Arrays, workers: int, mode: str, shards: int, staleness: int | None) -> None:
    one_of("mode", mode, ("sync", "async"))
    at_least("workers", workers, 1)
    if not 1 <= shards <= max(len(parameters), 1):
        raise ValueError(f"shards must be from 1 to the number of parameters, {len(parameters)}, but got {shards}")
    if staleness is not None and (mode == "sync" or staleness < 0):
        raise ValueError(f"staleness must be for mode 'async' and not negative, but got {staleness} for {mode!r}")
    for name, array in parameters.items():
        if array.dtype.kind != "f":
            raise TypeError(f"parameter {name!r} must be of floating point, but got {array.dtype}")
