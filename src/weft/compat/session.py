"""`ray.init`: Ray's addresses, where the dashboard is to listen, and that what no node can hold waits."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import weft
from weft.compat.addresses import cluster_address
from weft.engine.node.config import WAITS_VARIABLE
from weft.engine.node.zygote import variables

if TYPE_CHECKING:
    from weft.engine.process.session.session_context import SessionContext

_OF_THE_DASHBOARD = {"dashboard_host": "WEFT_DASHBOARD_HOST", "dashboard_port": "WEFT_DASHBOARD_PORT"}


def init(address: str | None = None, **given: Any) -> SessionContext:
    """`weft.init`, which also takes `ray://HOST:PORT`: the cluster whose head is there. `dashboard_host` and
    `dashboard_port` say where the dashboard of the node that is started listens, from the beginning."""
    if isinstance(address, str):
        address = cluster_address(address)
    if (memory := given.pop("_memory", None)) is not None and address in (None, "local"):
        given["resources"] = {**(given.get("resources") or {}), "memory": float(int(memory))}
    if (job := given.pop("job_config", None)) is not None:
        given = {**job.given(), **given}
        sys.path[:0] = [path for path in job.code_search_path if path not in sys.path]  # workers have the driver's
    asked = {variable: str(given[name]) for name, variable in _OF_THE_DASHBOARD.items() if given.get(name) is not None}
    with variables({**asked, WAITS_VARIABLE: os.environ.get(WAITS_VARIABLE, "1")}):  # for the node that is started
        context = weft.init(address, **given)
        if asked and given.get("include_dashboard") is not False:
            context.address_info["webui_url"] = context.dashboard_url  # asking for it makes it listen
    return context
