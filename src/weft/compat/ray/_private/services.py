"""`ray._private.services` of Ray 2.60."""

from __future__ import annotations

from weft.util import get_node_ip_address as _own_address


def get_node_ip_address(address: str = "") -> str:
    """The address of this machine; `address`, by which Ray finds the way out of it, has no effect."""
    return _own_address()
