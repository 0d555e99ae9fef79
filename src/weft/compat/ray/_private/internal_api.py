"""`ray._private.internal_api` of Ray 2.60."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import weft
from weft.compat.addresses import cluster_address
from weft.engine.process.session.session import context

__all__ = ["free", "memory_summary"]


def memory_summary(address: str | None = None, *_: Any, **options: Any) -> str:
    """What `weft memory` prints. Ray's options about how it is laid out have no effect."""
    from weft.cli import main as command

    weft.nodes()  # attaches, where nothing has yet
    named = cluster_address(address) if address else context()["address"]
    with contextlib.redirect_stdout(io.StringIO()) as text:
        command.main(["memory", "--address", named])
    return text.getvalue()


def free(object_refs: Any, local_only: bool = False) -> None:
    """Without effect: an object goes with the last ref to it."""
