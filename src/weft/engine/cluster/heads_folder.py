"""What a head keeps in a folder of its machine, from which the cluster starts again after the end of all its nodes.

Runs in the daemon's thread. The folder (`store.head_folder`) has what the control store has.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from weft.engine.cluster.restoring import Restoring, read_tables, rows_in
from weft.engine.node.chronicle import HEAD, WARNING
from weft.engine.state import events as ev
from weft.machine.start_error import StartError

if TYPE_CHECKING:
    from weft.engine.cluster.keeping import Keeping
    from weft.engine.cluster.membership import Membership
    from weft.engine.node.chronicle import Chronicle
    from weft.net.loop import Loop
    from weft.store.head_folder import HeadFolder, Tables
    from weft.store.served_store import Store

AGAIN_S = 1.0
"""After so long a folder that another has open is tried again."""


class HeadsFolder:
    """One daemon's; most have none."""

    def __init__(
        self,
        loop: Loop,
        keeping: Keeping,
        members: Membership,
        restoring: Restoring,
        chronicle: Chronicle,
        feed: Callable[[ev.Event], None],
    ) -> None:
        self._loop = loop
        self._keeping = keeping
        self._members = members
        self._restoring = restoring
        self._chronicle = chronicle
        self._feed = feed
        self.folder: HeadFolder | None = None
        self.tables: Tables = {}
        """What it had when this node began the cluster."""
        self._has_complained = False

    @property
    def epoch(self) -> int:
        """Of the last head that wrote it; 0 when there was none."""
        from weft.store.head_folder import epoch_in

        return epoch_in(self.tables)

    def begin(self, epoch: int) -> None:
        """This node begins the cluster, or starts it again with what its head had kept."""
        from weft.store.head_folder import row_of_epoch

        assert self.folder is not None
        keeping, members = self._keeping, self._members
        is_new = not self.epoch
        tables, self.tables = self.tables, {}
        keeping.use_folder(self.folder)
        keeping.write([row_of_epoch(epoch)])
        if is_new:
            keeping.keep_all()
            return
        rows = rows_in(tables)
        members.took_over(rows.members, epoch)
        keeping.member(members.own)
        self._restoring.restore(rows, epoch, None, {}, {}, is_restart=True)
        own = members.own
        text = f"node {own.node_id[:8]} at {own.address} started the cluster again, as head"
        self._chronicle.note(HEAD, own.node_id, text, WARNING)
        self._feed(ev.HeadReady())

    def supersede(self, by: str) -> None:
        """Another node has what this one had kept, or has it from now on."""
        if self.folder is not None:
            from weft.store.head_folder import supersede

            supersede(self.folder.path, by)

    def keep(self, store: Store, epoch: int, again: Callable[[], None]) -> None:
        """The folder of this machine is to have what the control store has; `again` is called where that fails."""
        folder, keeping = self.folder, self._keeping
        if folder is None or folder.is_open:
            return

        def failed(_: str) -> None:
            keeping.let_go_of_folder()
            folder.close()
            self._loop.call_later(AGAIN_S, again)

        try:
            folder.open(is_successor=True)
        except StartError as error:  # the head before may be about to end
            if not self._has_complained:
                self._has_complained = True
                print(f"weft: this head cannot keep its store yet: {error}", file=sys.stderr, flush=True)
            self._loop.call_later(AGAIN_S, again)
            return
        keeping.expect_folder()
        keeping.when_kept(
            lambda: read_tables(store, lambda tables: keeping.begin_folder(folder, tables, epoch), failed)
        )
