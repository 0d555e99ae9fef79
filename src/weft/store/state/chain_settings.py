"""How one server of the control store behaves: the times, sizes and classes that tests and shells may choose."""

from __future__ import annotations

from weft.store.state.chain import Replica
from weft.store.state.chain_council import LEASE_S, Council
from weft.store.state.chain_layout import CHAIN_LENGTH
from weft.store.state.chain_log import KEPT_ENTRIES


class ServerSettings:
    def __init__(
        self,
        lease_s: float = LEASE_S,
        grace_s: float = 1.0,
        patience_s: float = 0.2,
        unfit_s: float = 5.0,
        settle_s: float = 2.0,
        length: int = CHAIN_LENGTH,
        kept_entries: int = KEPT_ENTRIES,
        council: type[Council] = Council,
        replica: type[Replica] = Replica,
    ) -> None:
        self.lease_s = lease_s
        self.grace_s = grace_s
        """A server that cannot be reached for so long is taken for dead."""
        self.patience_s = patience_s
        """How long a proposal may take, and by how much each member of the council waits for the one before it."""
        self.unfit_s = unfit_s
        """A replica that could not store is not chosen again for so long."""
        self.settle_s = settle_s
        """Others may be about to come for so long after one has."""
        self.length = length
        self.kept_entries = kept_entries
        self.council, self.replica = council, replica
