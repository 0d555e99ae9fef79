"""Finds the controller of the cluster that this process is part of, or starts one."""

from __future__ import annotations

from typing import Any

import weft
from weft.serve.controller import NAME, NAMESPACE, Controller

MOST_CONTROLLER_CALLS = 10_000
"""Each router has one under way all the time."""


def controller_of_cluster(start: bool = False) -> Any:
    """The controller's actor; LookupError where there is none and it is not to be started."""
    if start:
        if not weft.is_initialized():
            weft.init()
        lasting = {"lifetime": "detached", "num_cpus": 0, "max_restarts": -1, "max_task_retries": -1}
        options = {"name": NAME, "namespace": NAMESPACE, "max_concurrency": MOST_CONTROLLER_CALLS, **lasting}
        return weft.remote(Controller).options(get_if_exists=True, **options).remote()
    if not weft.is_initialized():
        raise LookupError("nothing is served here: Weft is not initialised")
    try:
        return weft.get_actor(NAME, namespace=NAMESPACE)
    except ValueError:
        raise LookupError("nothing is served here: serve.run() starts it") from None
