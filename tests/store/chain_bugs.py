"""Bugs of the control store's machines, put in to see that the tests would find them: each a subclass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.store.state.chain import Replica
from weft.store.state.chain_council import Council
from weft.store.state.chain_events import Instruction, WriteDecided
from weft.store.state.chain_messages import Accept, Prepare, WriteRequest


class RepliesEarly(Replica):
    """Before its successors have the write."""

    def _decided(self, event: WriteDecided) -> list[Instruction]:
        return [*super()._decided(event), *self._commit(self.applied)]


class ServesIncomplete(Replica):
    """Reads, before it has all rows."""

    @property
    def serves_reads(self) -> bool:
        return self.is_tail


class ForgetsRequests(Replica):
    """A request that comes twice is a new one."""

    def _write(self, client: str, message: WriteRequest) -> list[Instruction]:
        return super()._write(
            client, WriteRequest(self.shard, f"{client}-{self.applied}", message.number, message.batches)
        )


class SkipsLease(Council):
    """A tail answers without a lease, and is cut off as if it had none."""

    def _may_be_read_from(self, tails: set[str], now: float) -> bool:
        return False

    def has_lease(self, now: float) -> bool:
        return self.configuration is not None


class ForgetsPromises(Council):
    """It votes for an older ballot than it has promised."""

    def vote(self, sender: str, message: Prepare | Accept, now: float, hears: Sequence[str] = ()) -> list[Instruction]:
        promised, self.promised = self.promised, None
        out = super().vote(sender, message, now, hears)
        if self.promised is None:
            self.promised = promised
        return out


PLANTED: dict[str, dict[str, Any]] = {
    "forget_promises": {"council": ForgetsPromises},
    "forget_requests": {"replica": ForgetsRequests},
    "reply_early": {"replica": RepliesEarly},
    "serve_incomplete": {"replica": ServesIncomplete},
    "skip_lease": {"council": SkipsLease},
}
"""By name, what is given to `ServerSettings`."""
