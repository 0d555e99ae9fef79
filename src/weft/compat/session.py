"""`ray.init`: Ray's addresses, and where the dashboard is to listen."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import weft
from weft.compat.addresses import cluster_address

if TYPE_CHECKING:
    from weft.engine.process.session.session_context import SessionContext

_OF_THE_DASHBOARD = {"dashboard_host": "WEFT_DASHBOARD_HOST", "dashboard_port": "WEFT_DASHBOARD_PORT"}


def init(address: str | None = None, **given: Any) -> SessionContext:
    """`weft.init`, which also takes `ray://HOST:PORT`: the cluster whose head is there. `dashboard_host` and
    `dashboard_port` say where the dashboard of the node that is started listens, from the beginning."""
    if isinstance(address, str):
        address = cluster_address(address)
    asked = {variable: str(given[name]) for name, variable in _OF_THE_DASHBOARD.items() if given.get(name) is not None}
    with _variables(asked):
        context = weft.init(address, **given)
        if asked and given.get("include_dashboard") is not False:
            context.address_info["webui_url"] = context.dashboard_url  # asking for it makes it listen
    return context


@contextlib.contextmanager
def _variables(asked: dict[str, str]) -> Iterator[None]:
    """The node that is started inherits them; nothing else is to."""
    before = {name: os.environ.get(name) for name in asked}
    os.environ.update(asked)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
