"""Who hears of a shard's changes. Pure; used by the replica that is the tail, so what is told is committed.

Invariants:
    PUB-1  what a subscription is sent follows without a gap on the `since` that it named, or is all rows there are.
"""

from __future__ import annotations

from weft.store.state.chain_events import Instruction, Send, ServeAllRows
from weft.store.state.chain_log import EntryLog
from weft.store.state.chain_messages import Changes, Entry, Subscribe

QUIET_ENTRIES = 1024
"""A subscription that nothing concerned hears of its progress after so many, so that it can resume from there."""


class _Subscription:
    __slots__ = ("at", "prefix", "table")

    def __init__(self, table: str, prefix: bytes, at: int) -> None:
        self.table = table
        self.prefix = prefix
        self.at = at


class Publisher:
    """The subscriptions at one shard's tail."""

    def __init__(self, shard: int) -> None:
        self._shard = shard
        self._by_name: dict[tuple[str, int], _Subscription] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    def subscribe(self, client: str, message: Subscribe, log: EntryLog) -> list[Instruction]:
        """Answered with what it has missed, which may be nothing."""
        one = _Subscription(message.table, message.prefix, log.last)
        self._by_name[(client, message.subscription)] = one
        since = log.last if message.since < 0 else message.since
        if since > log.last or not log.has_after(since):
            number = message.subscription
            return [ServeAllRows(client, self._shard, number, message.table, message.prefix, log.last)]
        changes = self._matching(one, log.after(since))
        return [Send(client, Changes(self._shard, message.subscription, since, log.last, changes))]

    def leave(self, client: str, subscription: int) -> None:
        self._by_name.pop((client, subscription), None)

    def client_gone(self, client: str) -> None:
        for name in [name for name in self._by_name if name[0] == client]:
            del self._by_name[name]

    def clear(self) -> None:
        self._by_name.clear()

    def publish(self, log: EntryLog) -> list[Instruction]:
        """What has been committed since the last time."""
        out: list[Instruction] = []
        for (client, number), one in self._by_name.items():
            if one.at >= log.last:
                continue
            changes = self._matching(one, log.after(one.at))
            if changes or log.last - one.at >= QUIET_ENTRIES:
                out.append(Send(client, Changes(self._shard, number, one.at, log.last, changes)))
                one.at = log.last
        return out

    @property
    def oldest(self) -> int | None:
        """The entries after this one are still to be told."""
        return min((one.at for one in self._by_name.values()), default=None)

    def _matching(self, one: _Subscription, entries: list[Entry]) -> list[tuple[int, bytes, bytes | None]]:
        return [
            (entry.seq, key, value)
            for entry in entries
            for table, key, value in entry.changes
            if table == one.table and key.startswith(one.prefix)
        ]
