"""Collective operations on tensors where they lie, by PyTorch's process groups: NCCL between GPUs, gloo on the host.

The group's own member (shared memory, or connections between nodes) stays what all agree by: before each operation
they compare what is asked for, and after it they tell each other that it is done. So a bad argument, a mismatch and a
death are told as for arrays of the host, and what waits in a kernel for somebody who is gone is aborted.

EXCH-1  An operation returns when the device has done it.
EXCH-2  Sums are in the library's order, and equal on all members as far as the library's are.

What NCCL and gloo send between machines is not encrypted.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from weft.util.shared_block import ELEMENT_TYPES

__all__ = ["BACKENDS", "DeviceArray", "DeviceExchange", "needed", "open_exchange"]

BACKENDS = {"nccl": "cuda", "gloo": "cpu"}
"""PyTorch's name of the kind of device whose tensors it takes."""
_LONG_S = 10 * 365 * 86_400.0
"""Without bound: the group's own member sees who is gone."""
_REDUCED = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool")
_NCCL_CLASS = "ProcessGroupNCCL"


@dataclass(frozen=True)
class DeviceArray:
    """As `HostArray`, where `memory` is a tensor."""

    memory: Any
    element: str
    restore: Callable[[Any], Any] = lambda memory: memory

    def new(self, shape: tuple[int, ...]) -> DeviceArray:
        return DeviceArray(self.memory.new_empty(shape), self.element)


def needed(backend: str) -> str:
    """What is missing for it here; "" where nothing is."""
    try:
        import torch
        from torch import distributed
    except ImportError:
        return "PyTorch is not installed"
    if not distributed.is_available():
        return "this PyTorch is built without torch.distributed"
    if backend == "nccl" and not hasattr(distributed, _NCCL_CLASS):
        return "this PyTorch is built without NCCL"
    if backend == "nccl" and not torch.cuda.is_available():
        return "PyTorch sees no GPU in this process"
    return ""


class DeviceExchange:
    """One member's end. Work that was begun is waited for by who has begun it."""

    def __init__(self, backend: str, group: Any, folder: str) -> None:
        self._kind = BACKENDS[backend]
        self._group = group
        self._folder = folder
        """Of the store where members of one node have found each other; rank 0 removes it."""

    def array(self, array: Any) -> DeviceArray | None:
        """None for what is not this backend's."""
        torch = sys.modules["torch"]
        if not isinstance(array, torch.Tensor) or array.device.type != self._kind:
            return None
        element = str(array.dtype).removeprefix("torch.")
        if element not in ELEMENT_TYPES:
            raise TypeError(f"elements must be one of {', '.join(ELEMENT_TYPES)}, but got {array.dtype}")
        if not array.is_contiguous():
            raise ValueError(f"a tensor must be contiguous, but got strides {array.stride()} for {tuple(array.shape)}")
        return DeviceArray(array.detach(), element)

    def check(self, operation: str, element: str) -> None:
        if "reduce" in operation and element not in _REDUCED:
            raise TypeError(f"{operation} on a device takes {', '.join(_REDUCED)}, but got {element}")

    def begin(self, operation: str, source: Any, target: Any, op: str, root: int, peer: int) -> Any:
        """The work; arrays are as `Group` gives them to the native member."""
        if op == "mean":
            op = "sum"
        tensor = target if target is not None else source
        if tensor.dtype is sys.modules["torch"].bool:  # "or" and "and"
            op = {"sum": "max", "prod": "min"}.get(op, op)
        source, target = (None if one is None else _countable(one) for one in (source, target))
        begin: Callable[..., Any] = getattr(self, f"_{operation}")
        return begin(source, target, op, root if peer < 0 else peer)

    def end(self) -> None:
        """What is under way ends with an error, or was done."""
        group, self._group = self._group, None
        if group is None:
            return
        for name in ("abort", "shutdown"):
            if hasattr(group, name):
                with contextlib.suppress(RuntimeError):  # one of a library that cannot: its own timeout ends it
                    getattr(group, name)()
                break
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.end()

    # ---- operations ----

    def _all_reduce(self, _: Any, target: Any, op: str, root: int) -> Any:
        return self._group.allreduce([target], _options("AllreduceOptions", reduceOp=_reduction(op)))

    def _reduce(self, _: Any, target: Any, op: str, root: int) -> Any:
        own = target if self._group.rank() == root else target.clone()  # gloo writes to it
        return self._group.reduce([own], _options("ReduceOptions", reduceOp=_reduction(op), rootRank=root))

    def _reduce_scatter(self, source: Any, target: Any, op: str, root: int) -> Any:
        if self._kind == "cpu":  # gloo's own never says that it is completed
            whole = source.clone()
            return _Then(
                self._all_reduce(None, whole, op, root), lambda: target.copy_(whole[_rows(self._group, whole)])
            )
        options = _options("ReduceScatterOptions", reduceOp=_reduction(op))
        return self._group._reduce_scatter_base(target.view(-1), _apart(source, target).view(-1), options)

    def _all_gather(self, source: Any, target: Any, op: str, root: int) -> Any:
        return self._group._allgather_base(target.view(-1), source.view(-1), _options("AllgatherOptions"))

    def _gather(self, source: Any, target: Any, op: str, root: int) -> Any:
        rows = [] if target is None else [list(target.unbind(0))]
        return self._group.gather(rows, [source], _options("GatherOptions", rootRank=root))

    def _scatter(self, source: Any, target: Any, op: str, root: int) -> Any:
        rows = [] if source is None else [list(source.unbind(0))]
        return self._group.scatter([target], rows, _options("ScatterOptions", rootRank=root))

    def _broadcast(self, _: Any, target: Any, op: str, root: int) -> Any:
        return self._group.broadcast([target], _options("BroadcastOptions", rootRank=root))

    def _all_to_all(self, source: Any, target: Any, op: str, root: int) -> Any:
        return self._group.alltoall_base(target, _apart(source, target), [], [], _options("AllToAllOptions"))

    def _send(self, source: Any, target: Any, op: str, peer: int) -> Any:
        """Of one end, or of the other."""
        work = self._group.recv([target], peer, 0) if source is None else self._group.send([source], peer, 0)
        return _Waited(work) if self._kind == "cpu" else work


@dataclass(frozen=True)
class _Then:
    """Work, and what is left to do after it."""

    work: Any
    act: Callable[[], Any]

    def is_completed(self) -> bool:
        return bool(self.work.is_completed())

    def wait(self) -> None:
        self.work.wait()
        self.act()


class _Waited:
    """gloo's messages: they are completed when somebody waits for them, which a thread does."""

    def __init__(self, work: Any) -> None:
        self._work = work
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="weft-train-message", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work.wait()
        except Exception as error:  # raised by `wait`
            self._error = error

    def is_completed(self) -> bool:
        return not self._thread.is_alive()

    def wait(self) -> None:
        if self._error is not None:
            raise self._error


def _rows(group: Any, whole: Any) -> slice:
    """This member's share."""
    count = len(whole) // group.size()
    return slice(group.rank() * count, (group.rank() + 1) * count)


def open_exchange(
    backend: str, rank: int, size: int, host: str, timeout_s: float, tell: Callable[[str], str]
) -> DeviceExchange:
    """All members do so at once. `tell` gives rank 0's text to all; `host` is an address of this node that the others
    reach, "" when all are on one node. RuntimeError where something is missing."""
    if missing := needed(backend):
        raise RuntimeError(f'backend "{backend}" on rank {rank} on {socket.gethostname()}: {missing}')
    from torch import distributed as torch_distributed

    distributed: Any = torch_distributed
    limit = timedelta(seconds=timeout_s)
    folder = ""
    if host:
        store = _tcp_store(rank, host, limit, tell)
    else:
        folder = tell(tempfile.mkdtemp(prefix="weft-train-") if rank == 0 else "")
        store = distributed.FileStore(str(Path(folder) / "store"), size)
        store.set_timeout(limit)
    if backend == "nccl":
        options = getattr(distributed, _NCCL_CLASS).Options()
        options._timeout = timedelta(seconds=_LONG_S)
        group = getattr(distributed, _NCCL_CLASS)(store, rank, size, options)
    else:
        gloo = distributed.ProcessGroupGloo
        options = gloo._Options()
        options._devices = [gloo.create_device(hostname=host or "127.0.0.1")]
        options._timeout = limit
        group = gloo(store, rank, size, options)
    return DeviceExchange(backend, group, folder if rank == 0 else "")


def _tcp_store(rank: int, host: str, limit: timedelta, tell: Callable[[str], str]) -> Any:
    from torch import distributed

    store_class = getattr(distributed, "TCPStore")  # noqa: B009 - its stubs do not have it
    if rank == 0:
        store = store_class(host, 0, is_master=True, wait_for_workers=False, timeout=limit)
        tell(f"{host} {store.port}")
        return store
    there, _, port = tell("").rpartition(" ")
    return store_class(there, int(port), is_master=False, wait_for_workers=False, timeout=limit)


def _countable(tensor: Any) -> Any:
    """Booleans as the bytes that they are; in types that no library knows, their bytes are moved."""
    torch = sys.modules["torch"]
    if tensor.dtype is torch.bool:
        return tensor.view(torch.uint8)
    if str(tensor.dtype).removeprefix("torch.") in _REDUCED:
        return tensor
    signed = {2: torch.float16, 4: torch.int32, 8: torch.int64}[tensor.dtype.itemsize]
    return tensor.view(signed)


def _apart(source: Any, target: Any) -> Any:
    """A copy, where the result is written over a part of the argument."""
    shares = source.untyped_storage().data_ptr() == target.untyped_storage().data_ptr()
    return source.clone() if shares else source


def _reduction(op: str) -> Any:
    from torch import distributed

    return getattr(distributed.ReduceOp, {"prod": "PRODUCT"}.get(op, op.upper()))


def _options(name: str, **values: Any) -> Any:
    from torch.distributed import distributed_c10d

    made = getattr(distributed_c10d, name)()
    for one, value in values.items():
        setattr(made, one, value)
    return made
