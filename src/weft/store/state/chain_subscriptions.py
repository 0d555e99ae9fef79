"""Subscriptions of one client of the control store: resumed where they were, whoever tells them. Pure.

What is promised is CLI-3 (`chain_client`).
"""

from __future__ import annotations

from collections.abc import Callable

from weft.store.state.chain_calls import Call, TellChanges
from weft.store.state.chain_events import Instruction, Send
from weft.store.state.chain_layout import Configuration
from weft.store.state.chain_messages import AllRows, Changes, Subscribe, Unsubscribe


class _Subscription:
    """What is known of one table and prefix, in each shard."""

    def __init__(self, call: Call, table: str, prefix: bytes) -> None:
        self.call: Call | None = call
        self.table = table
        self.prefix = prefix
        self.at: dict[int, int] = {}
        self.known: dict[int, set[bytes]] = {}
        self.asked: dict[int, tuple[str, float]] = {}
        """The server that was asked last, and when."""
        self.confirmed: dict[int, str] = {}
        """The server that tells it."""


class Subscriptions:
    """All of one client."""

    def __init__(
        self, connected: set[str], retry_s: float, renew_s: float, end_part: Callable[[Call], list[Instruction]]
    ) -> None:
        """`connected`: the servers that can be reached, kept up to date; `end_part`: one shard of a call is done."""
        self.configuration: Configuration | None = None
        self.now = 0.0
        self._connected = connected
        self._retry_s = retry_s
        self._renew_s = renew_s
        self._end_part = end_part
        self._all: dict[int, _Subscription] = {}

    def begin(self, call: Call, table: str, prefix: bytes) -> list[Instruction]:
        self._all[call.ticket] = _Subscription(call, table, prefix)
        return self._resume(call.ticket)

    def end(self, ticket: int) -> list[Instruction]:
        one = self._all.pop(ticket, None)
        if one is None:
            return []
        return [Send(server, Unsubscribe(shard, ticket)) for shard, server in one.confirmed.items()]

    def _resume(self, ticket: int, is_due: bool = False) -> list[Instruction]:
        """Subscribe wherever the present tail has not been asked, or (`is_due`) not lately."""
        one = self._all[ticket]
        out: list[Instruction] = []
        if self.configuration is None:
            return out
        for shard, chain in enumerate(self.configuration.chains):
            tail = chain.tail.server
            asked, at = one.asked.get(shard, ("", 0.0))
            wait = self._renew_s if one.confirmed.get(shard) == tail else self._retry_s
            if tail in self._connected and (asked != tail or (is_due and self.now - at >= wait)):
                one.asked[shard] = (tail, self.now)
                out.append(Send(tail, Subscribe(shard, ticket, one.table, one.prefix, one.at.get(shard, -1))))
        return out

    def changes_came(self, sender: str, message: Changes) -> list[Instruction]:
        one = self._all.get(message.subscription)
        if one is None:
            return [Send(sender, Unsubscribe(message.shard, message.subscription))]
        shard = message.shard
        at = one.at.get(shard)
        if at is not None and message.since > at:
            one.asked.pop(shard, None)  # something between was lost
            return self._resume(message.subscription)
        known = one.known.setdefault(shard, set())
        fresh = [(key, value) for seq, key, value in message.changes if at is None or seq > at]
        for key, value in fresh:
            known.add(key) if value is not None else known.discard(key)
        return self._progressed(one, sender, message, fresh)

    def all_rows_came(self, sender: str, message: AllRows) -> list[Instruction]:
        one = self._all.get(message.subscription)
        if one is None or message.through < one.at.get(message.shard, -1):
            return []
        known = one.known.setdefault(message.shard, set())
        here = {key for key, _ in message.rows}
        changes: list[tuple[bytes, bytes | None]] = [(key, None) for key in sorted(known - here)]
        one.known[message.shard] = here
        return self._progressed(one, sender, message, [*changes, *message.rows])

    def _progressed(
        self, one: _Subscription, sender: str, message: Changes | AllRows, changes: list[tuple[bytes, bytes | None]]
    ) -> list[Instruction]:
        is_first = message.shard not in one.at
        one.at[message.shard] = max(one.at.get(message.shard, -1), message.through)
        one.confirmed[message.shard] = sender
        out: list[Instruction] = [TellChanges(message.subscription, changes)] if changes else []
        if is_first and one.call is not None:
            out += self._end_part(one.call)
        return out

    # ---- servers come and go, and so does time ----

    def lost(self, server: str) -> None:
        """What it was asked for is asked of another."""
        for one in self._all.values():
            one.asked = {shard: asked for shard, asked in one.asked.items() if asked[0] != server}
            one.confirmed = {shard: told_by for shard, told_by in one.confirmed.items() if told_by != server}

    def resume(self, is_due: bool = False) -> list[Instruction]:
        return [one for ticket in self._all for one in self._resume(ticket, is_due)]

    def failed(self, call: Call) -> None:
        """It came to nothing in time."""
        if (one := self._all.get(call.ticket)) is not None and one.call is call:
            del self._all[call.ticket]
