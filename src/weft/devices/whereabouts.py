"""Where the blocks of a value lie, for people. Nothing is opened or brought, and nothing counts as read.

The unpickler calls `open_holding` for a value that has blocks; on a thread that only seeks them that raises what the
value names, and the holder is asked at its socket.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from weft._native import DeviceLost
from weft.devices import hooks, machine_id, reader
from weft.devices.blocks import here

ANSWER_S = 10.0


@dataclass(eq=False)
class Whereabouts(Exception):
    """A holding, as the value names it; raised to end the unpickling, and nothing is wrong."""

    address: str
    machine: str
    node: str
    token: bytes


def seek(read: Callable[[], object]) -> Whereabouts | None:
    """`read` unpickles the value; None when that has no blocks."""
    before, here.seeks = here.seeks, True
    try:
        read()
    except Whereabouts as found:
        return found.with_traceback(None)
    finally:
        here.seeks = before
    return None


def ask(found: Whereabouts) -> dict[str, Any]:
    """The row of `holder.Server.rows`. DeviceLost when the holder has ended, TimeoutError when it does not answer."""
    if found.machine == machine_id.of():
        return ask_here(found.address, found.token)
    far = importlib.import_module(hooks.FAR)
    return cast(dict[str, Any], far.ask(found.node, found.address, found.token, ANSWER_S))


def ask_here(address: str, token: bytes) -> dict[str, Any]:
    """Of a holder on this machine."""
    with reader.connect(address) as holder:
        holder.settimeout(ANSWER_S)
        try:
            holder.send(msgspec.msgpack.encode(("tell", token)))
            answer = holder.recv(hooks.PACKET_BYTES)
        except ConnectionError as error:
            raise DeviceLost(reader.GONE) from error
    row = msgspec.msgpack.decode(answer, type=dict[str, Any]) if answer else {}
    if not row:
        raise DeviceLost(reader.GONE)
    return row
