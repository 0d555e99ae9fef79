"""`ray._private.worker` of Ray 2.60: this process, as a driver or a worker of the cluster."""

from __future__ import annotations

from typing import Any

import weft
from weft import get, put, shutdown, wait
from weft.compat.session import init
from weft.engine.process.session.context_state import state

__all__ = ["LOCAL_MODE", "SCRIPT_MODE", "WORKER_MODE", "get", "global_worker", "init", "put", "shutdown", "wait"]

SCRIPT_MODE, WORKER_MODE, LOCAL_MODE, SPILL_WORKER_MODE, RESTORE_WORKER_MODE = range(5)


class Worker:
    """What packages ask of `global_worker`."""

    @property
    def connected(self) -> bool:
        return weft.is_initialized()

    @property
    def mode(self) -> int | None:
        """SCRIPT_MODE in a driver, WORKER_MODE in a worker; None where there is no session."""
        if not self.connected:
            return None
        return LOCAL_MODE if state.local is not None else WORKER_MODE if state.is_worker else SCRIPT_MODE

    @property
    def namespace(self) -> str:
        return weft.get_runtime_context().namespace

    @property
    def current_job_id(self) -> Any:
        return weft.JobID.from_hex(weft.get_runtime_context().get_job_id())

    @property
    def current_node_id(self) -> Any:
        return weft.NodeID.from_hex(weft.get_runtime_context().get_node_id())

    @property
    def actor_id(self) -> Any:
        found = weft.get_runtime_context().get_actor_id()
        return None if found is None else weft.ActorID.from_hex(found)

    @property
    def worker_id(self) -> bytes:
        return bytes.fromhex(weft.get_runtime_context().get_worker_id())

    def check_connected(self) -> None:
        """RuntimeError where there is no session."""
        if not self.connected:
            raise RuntimeError("no session runs: call ray.init() first")


global_worker = Worker()
