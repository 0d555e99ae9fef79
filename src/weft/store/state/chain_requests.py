"""What a write request does to the rows it meets. Only the head of a chain evaluates it; the others get the effects.

Invariant:
    DEC-1  the row of SESSIONS that says a request was done is written by the very changes of that request.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from weft.store.state.chain_messages import WriteRequest
from weft.store.state.chain_rows import Change, Put, Write

SESSIONS = "$sessions"
"""The table of what each client had done last; replicated like any other."""
_encode = msgspec.msgpack.Encoder().encode
_decode_session = msgspec.msgpack.Decoder(tuple[int, list[bool]]).decode


class Rows(Protocol):
    """What `decide` reads."""

    def get(self, table: str, key: bytes) -> bytes | None: ...


class Stale(ValueError):
    """The client has had a later request done: nobody waits for this one."""


def decide(rows: Rows, request: WriteRequest) -> tuple[list[Change] | None, list[bool]]:
    """The changes that a request makes, and for each batch whether its conditions held; no changes for a repeated one.

    Raises Stale."""
    client = request.client.encode()
    session = rows.get(SESSIONS, client)
    if session is not None:
        number, outcomes = _decode_session(session)
        if number == request.number:
            return None, outcomes
        if number > request.number:
            raise Stale(f"request {request.number} of {request.client} comes after its request {number}")
    changes: list[Change] = []
    outcomes = []
    written: dict[tuple[str, bytes], bool] = {}
    has_conditions = any(isinstance(one, Put) and one.if_absent for batch in request.batches for one in batch)
    for batch in request.batches:
        if has_conditions:
            holds = all(_holds(rows, written, one) for one in batch)
            if holds:
                written.update({(one.table, one.key): isinstance(one, Put) for one in batch})
        else:
            holds = True
        outcomes.append(holds)
        if holds:
            changes.extend((one.table, one.key, one.value if isinstance(one, Put) else None) for one in batch)
    changes.append((SESSIONS, client, _encode((request.number, outcomes))))
    return changes, outcomes


def _holds(rows: Rows, written: dict[tuple[str, bytes], bool], one: Write) -> bool:
    if not (isinstance(one, Put) and one.if_absent):
        return True
    here = written.get((one.table, one.key))
    return not (here if here is not None else rows.get(one.table, one.key) is not None)
