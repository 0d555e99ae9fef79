"""What a server of the control store is started with."""

from __future__ import annotations

import msgspec

SHARDS = 4
MOST_SHARDS = 256
"""All of them are in the one record that the council decides."""


class ServerConfig(msgspec.Struct, frozen=True):
    """What a server is started with."""

    name: str
    """Of its own, that no server has had before; one with a folder goes by the name in it."""
    host: str = "127.0.0.1"
    port: int = 0
    seeds: tuple[str, ...] = ()
    """Where other servers listen; without any this one founds a store."""
    shards: int = SHARDS
    """Of a store that is founded."""
    folder: str = ""
    """Where to keep the rows; without one they live as long as some server of their chain."""
    store: str = ""
    """redis://… to keep them there instead."""
    replaces: str = ""
    """A server that died unasked: nobody uses any more what it has in the store."""
    fsync: str = "periodic"
    lease_s: float = 2.0
    grace_s: float = 1.0
