"""Makes a fresh worker a worker of one job: paths, folder, environment, devices, and its own `__main__`.

Runs once in a worker, before its first function is loaded. The zygote has imported nothing of the user's; BLAS
libraries that load later see the thread limits set here, and numpy's, if it is loaded already, is told.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from weft.engine.process.session import context_state
from weft.engine.process.worker import output
from weft.engine.wire.messages import BindJob
from weft.machine import accelerators

if TYPE_CHECKING:
    from weft.environments.installed import Installed

_THREAD_LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_OWN_PREFIX = "WEFT_"
_IMPORTS = "WEFT_WORKER_IMPORTS"
"""Names of modules that a driver has its workers import before its functions; spaces between them."""
_OF_A_JOB = (
    "WEFT_TRACING",
    "WEFT_LOGGING",
    "WEFT_LOGGING_LEVEL",
    "WEFT_LOGGING_FORMAT",
    "WEFT_RECORD_CALLS",
    _IMPORTS,
)
"""Those of ours that a driver chooses for its workers; the others are the node's."""


def bind(job: BindJob, packages: Installed | None = None, variables: Mapping[str, str] | None = None) -> None:
    """Take on the job's environment. The driver's variables win over what the daemon was started with.

    `packages` are the runtime environment's, `variables` those that this process was executed with. Raises what the
    runtime environment's set-up raises, last: all else is done by then."""
    if variables is None:
        variables = job.environment
        if job.runtime_env:
            from weft.environments import apply

            variables = apply.variables(variables, job.runtime_env)
        set_environment(variables)
    limit_threads(job.num_cpus, variables)
    show_gpus(job.gpu_ids)
    set_paths(job.sys_path, job.cwd)
    for module in os.environ.get(_IMPORTS, "").split():
        importlib.import_module(module)
    sys.modules["__main__"] = types.ModuleType("__main__")
    state = context_state.state
    state.node_id, state.node_ip = job.home.node_id, job.home.ip
    state.job, state.driver_pid, state.namespace = job.job, job.driver_pid, job.namespace
    state.num_cpus, state.gpu_ids, state.runtime_env = job.num_cpus, device_names(job.gpu_ids), job.runtime_env
    state.placement_group, state.captures_child_tasks = job.placement_group, job.captures
    state.records_calls = os.environ.get("WEFT_RECORD_CALLS", "0") not in ("", "0")
    output.install()
    if os.environ.get("WEFT_LOGGING"):
        from weft.engine.process.telling import logging_config

        logging_config.apply_here()
    if os.environ.get("WEFT_LOGGING_LEVEL"):
        from weft.engine.process.telling import own_logging

        own_logging.apply_here()
        own_logging.LOGGER.debug("this process works for job %s", job.job)
    if job.runtime_env:
        from weft.environments import apply

        apply.enter(job.runtime_env, packages)


def set_environment(wanted: Mapping[str, str]) -> None:
    for name in list(os.environ):
        if name not in wanted and _is_of_a_job(name):
            del os.environ[name]
    os.environ.update({name: value for name, value in wanted.items() if _is_of_a_job(name)})


def _is_of_a_job(name: str) -> bool:
    return name in _OF_A_JOB or not name.startswith(_OWN_PREFIX)


def limit_threads(num_cpus: float, chosen: Mapping[str, str]) -> None:
    """One BLAS thread a CPU of this worker, unless the user has chosen otherwise."""
    for name in _THREAD_LIMITS:
        if name not in chosen:
            os.environ[name] = str(max(1, int(num_cpus)))
    if num_cpus >= 2 and "numpy" in sys.modules and not any(name in chosen for name in _THREAD_LIMITS):
        from weft.machine import blas

        blas.set_threads(int(num_cpus))


_ALL_DEVICES = ("WEFT_NOSET_CUDA_VISIBLE_DEVICES", "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES")
"""Either is set: every worker sees the devices that the driver sees, and chooses by itself."""
_NONE_ON_ZERO = "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"
"""0: so do those that asked for no GPU."""


def show_gpus(gpu_ids: list[int]) -> None:
    """Only the devices that this worker was given, as Ray does; none when it asked for none."""
    if any(os.environ.get(name, "0") not in ("", "0") for name in _ALL_DEVICES):
        return
    if not gpu_ids and os.environ.get(_NONE_ON_ZERO) == "0":
        return
    names = device_names(gpu_ids)
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, names))
    if _VENDOR is not accelerators.NVIDIA_GPUS:
        os.environ[_VENDOR.variable] = _VENDOR.selection(names)


_VENDOR = accelerators.vendor()
_OF_THE_NODE = dict(os.environ)
"""The node daemon's, read in the zygote: a job may bring its own."""


def device_names(gpu_ids: list[int]) -> list[Any]:
    """As the vendor's libraries know them."""
    return _VENDOR.names(gpu_ids, _OF_THE_NODE)


def set_paths(sys_path: list[str], cwd: str) -> None:
    """Import what the driver can import, in the driver's order."""
    sys.path[:] = sys_path + [entry for entry in sys.path if entry not in sys_path]
    sys.path_importer_cache.clear()
    with contextlib.suppress(OSError):  # the folder may have gone since
        os.chdir(cwd)
