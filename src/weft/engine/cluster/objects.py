"""Objects that are known on more nodes than one: imports and exports; `pulls` moves their bytes.

Runs in the daemon's thread. The node that has the bytes is the object's *origin*. Elsewhere it is an import: an entry
without memory until a reader wants it; then the bytes are pulled into it, and it is an object like any other. The
import on the owner's node decides over the object's life, the others follow the origin. `homes` finds another origin
when the first is dead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from weft import _native
from weft.engine.cluster.pulls import GONE, LOST, Entry, Pulls
from weft.engine.cluster.transport import NodeLink
from weft.engine.node.spilling import Spilling
from weft.engine.state.events import Process
from weft.engine.wire import kinds
from weft.engine.wire import link_messages as lm
from weft.engine.wire.link_messages import GlobalObject, GlobalProcess
from weft.net.loop import Loop

__all__ = ["DAEMON", "Entry", "Import", "Objects", "Origin"]

SWEEP_S = 0.1
DAEMON: Process = (0, 1)
Origin: TypeAlias = tuple[int, int, int]
"""(node, entry, generation) there."""


class Import:
    """One object whose bytes are, or were, on another node."""

    __slots__ = ("has_bytes", "is_owned", "is_sought", "on_bytes", "origin", "waiting")

    def __init__(self, origin: GlobalObject, is_owned: bool) -> None:
        self.origin = origin
        self.is_owned = is_owned
        """Its owner is a process of this node."""
        self.has_bytes = False
        """They came once; since then they are here, in the arena or in the spill file."""
        self.is_sought = False
        """Its origin is dead, and other nodes are asked for a copy (`homes`): who wants its bytes waits."""
        self.waiting: list[Process] = []
        self.on_bytes: list[Callable[[bool], None]] = []
        """Whom of the daemon to tell whether they came."""


class Objects:
    """All imports and exports of a node."""

    def __init__(
        self,
        port: _native.NodePort,
        loop: Loop,
        spilling: Spilling,
        number: int,
        send: Callable[[int, lm.LinkMessage], bool],
        drop_chunks: Callable[[int], None],
    ) -> None:
        self._port = port
        self._loop = loop
        self.number = number
        self._send = send
        """To the node of that number; False when there is no link to it."""
        self.imports: dict[Entry, Import] = {}
        self._by_origin: dict[Origin, Entry] = {}
        self.exports: dict[Entry, set[int]] = {}
        self.pulls = Pulls(port, loop, spilling, send, drop_chunks, self._pull_ended)
        self._is_sweeping = False
        self.moved: dict[Origin, GlobalObject] = {}
        """Where objects of nodes that have left are now."""
        self.orphans: dict[Entry, GlobalProcess] = {}
        """Objects of this node whose owner, of another one, is dead; until somebody inherits them."""
        self.on_adopted: Callable[[Entry], None] = lambda entry: None
        self.on_gone: Callable[[Entry], None] = lambda entry: None
        """Of objects that more nodes than this one knew."""

    # ---- names ----

    def to_local(self, name: GlobalObject, owner: Process) -> Entry:
        """This node's entry for it. `owner`: a process of this node, or the daemon when the owner is elsewhere."""
        if (new := self.moved.get(name[:3])) is not None:
            found = self.to_local(new, owner)
            self._rename(found, name, new)
            return found
        node, entry, generation, size = name
        if node == self.number:
            return (entry, generation)
        origin = (node, entry, generation)
        known = self._by_origin.get(origin)
        if known is not None and self._port.exists(*known):
            return known
        made = self._port.import_object(size, *owner)
        self.imports[made] = Import(name, owner != DAEMON)
        self._port.name_import(*made, *name)
        self._by_origin[origin] = made
        self._send(node, lm.Imported(entry, generation))
        self._sweep_later()
        return made

    def refuse(self, name: GlobalObject) -> None:
        """There is no entry for an object whose owner is a process of this node: nobody will ask for it."""
        node, entry, generation, _ = self.moved.get(name[:3], name)
        self._send(node, lm.Free(entry, generation))

    # ---- bytes come in ----

    def restore(self, process: Process, payload: bytes) -> bool:
        """A reader wants it; False when it is no import, or its bytes are on this node already."""
        entry: Entry = kinds.PROCESS_BODY.unpack_from(payload)
        wanted = self.imports.get(entry)
        if wanted is None or wanted.has_bytes:
            return False
        if process not in wanted.waiting:
            wanted.waiting.append(process)
        self._pull(entry, wanted)
        return True

    def _pull(self, entry: Entry, wanted: Import) -> None:
        if not wanted.is_sought and not self.pulls.is_pulled(entry):
            self.pulls.begin(entry, wanted.origin)

    def _pull_ended(self, entry: Entry, why: str) -> None:
        wanted = self.imports.get(entry)
        if wanted is not None and not (wanted.is_sought and why):
            self._answer(entry, wanted, why)

    def _answer(self, entry: Entry, wanted: Import, why: str) -> None:
        """To all who wait for it."""
        wanted.has_bytes = not why
        error = b""
        if why == GONE:
            text = "its owner has freed it, or has died with the only copy of what put() made, while it was being read"
            error = _native.error_value(kinds.ErrorCode.OBJECT_LOST, text)
        elif why == LOST:
            text = (
                "its bytes are gone with the node that had them, and what made it cannot be run again: put(), a task "
                "with max_retries=0, or a method with max_task_retries=0. Return it from a task that may be retried, "
                "or let the method be."
            )
            error = _native.error_value(kinds.ErrorCode.RECONSTRUCTION_FAILED, text)
        elif why:
            error = f"an object of another node cannot be read: {why}".encode()
        answer = kinds.RESTORED_BODY.pack(*entry, int(not why), 0) + error
        for process in wanted.waiting:
            self._port.send(*process, kinds.RESTORED, answer)
        wanted.waiting.clear()
        calls, wanted.on_bytes = wanted.on_bytes, []
        for call in calls:
            call(not why)

    # ---- bytes go out ----

    def find_came(self, link: NodeLink, message: lm.FindObject) -> None:
        self.pulls.find_came(link, self.number, message)

    def pull_came(self, link: NodeLink, message: lm.Pull) -> None:
        """Of an object of this node, or of one that it has imported and passes on."""
        entry: Entry | None = (message.entry, message.generation)
        if message.node != self.number:
            entry = self._by_origin.get((message.node, message.entry, message.generation))
        self.pulls.serve(link, entry, message)

    # ---- ends ----

    def was_imported(self, node: int, message: lm.Imported) -> None:
        entry = (message.entry, message.generation)
        if self._port.exists(*entry):
            self.exports.setdefault(entry, set()).add(node)
            self._sweep_later()
        else:
            self._send(node, lm.Gone(*entry))

    def is_gone(self, node: int, message: lm.Gone) -> None:
        """The origin's entry is gone: so is the import."""
        entry = self._by_origin.get((node, message.entry, message.generation))
        if entry is not None and (known := self.imports.get(entry)) is not None:
            known.is_owned = False
            self._port.remove(*entry)

    def free(self, message: lm.Free) -> None:
        if self._port.exists(message.entry, message.generation):
            self._port.remove(message.entry, message.generation)

    def device_lost(self, payload: bytes) -> None:
        """A reader has removed an import that nobody can read. Its origin does so too, and tells the other nodes that
        have it: its owner finds it lost. Who asks the owner sooner is given the name again, and finds it lost again."""
        if (known := self.imports.get(kinds.IN_ARENA_BODY.unpack_from(payload))) is not None:
            node, entry, generation, _ = known.origin
            self._send(node, lm.Free(entry, generation))

    def node_gone(self, node: int, seek: Callable[[Iterable[Entry]], None]) -> None:
        """`seek`: called with what processes of this node own, and what was there."""
        lost = {entry: known for entry, known in self.imports.items() if known.origin[0] == node}
        seek([entry for entry, known in lost.items() if known.is_owned])
        self.pulls.node_gone(node)
        for entry, known in lost.items():
            if not known.is_owned and not known.has_bytes:
                self._port.remove(*entry)  # whoever reads it finds it lost, and asks its owner
        for nodes in self.exports.values():
            nodes.discard(node)

    def found(self, entry: Entry) -> None:
        """There is a copy: it has another origin by now."""
        if (known := self.imports.get(entry)) is None:
            return
        known.is_sought = False
        if known.waiting or known.on_bytes:
            self._pull(entry, known)

    def lost(self, entries: Iterable[Entry]) -> None:
        """There is no copy. All go before anybody hears of one: what made several then runs again for all."""
        imports = {entry: known for entry in entries if (known := self.imports.get(entry)) is not None}
        for entry, known in imports.items():
            known.is_sought = False
            self._port.remove(*entry)
        for entry, known in imports.items():
            self._answer(entry, known, LOST)

    def forget_node(self, node: int) -> None:
        """Copies of what was there: nobody owns them, or their owner's node would have chosen an origin."""
        for entry, known in self.imports.items():
            if known.origin[0] == node and not known.is_owned:
                self._port.remove(*entry)

    # ---- owners that die ----

    def owner_dies(self, process: Process, name: GlobalProcess) -> None:
        """A process of another node, for which objects of this one were made; before it is marked dead."""
        self.orphans.update(dict.fromkeys(self._port.take_objects(*process), name))

    def inherited(self, entry: Entry) -> None:
        """A process of another node is its owner from now on."""
        self.orphans.pop(entry, None)

    def free_orphans(self, of: Callable[[GlobalProcess], bool]) -> None:
        """Of owners that are settled: nobody has inherited these."""
        for entry in [entry for entry, owner in self.orphans.items() if of(owner)]:
            del self.orphans[entry]
            if self._port.exists(*entry):
                self._port.remove(*entry)

    # ---- a new origin ----

    def fetch(self, entry: Entry, on_bytes: Callable[[bool], None]) -> None:
        """Have the bytes of an import here, and say whether they came."""
        wanted = self.imports[entry]
        if wanted.has_bytes:
            on_bytes(True)
            return
        wanted.on_bytes.append(on_bytes)
        self._pull(entry, wanted)

    def import_of(self, origin: Origin) -> Entry | None:
        """This node's entry for an object of another."""
        entry = self._by_origin.get(origin)
        return entry if entry in self.imports else None

    def own(self, entry: Entry) -> None:
        """A process of this node is its owner from now on."""
        self.orphans.pop(entry, None)
        if (known := self.imports.get(entry)) is not None:
            known.is_owned = True
            self._tell_origin(known)

    def adopt(self, entry: Entry) -> GlobalObject:
        """An import whose bytes are here is an object of this node's own from now on; its new name."""
        known = self.imports.pop(entry)
        self._by_origin.pop(known.origin[:3], None)
        new = self.moved[known.origin[:3]] = (self.number, *entry, known.origin[3])
        self._rename(entry, known.origin, new)
        self.on_adopted(entry)
        return new

    def rewire(self, old: Origin, new: GlobalObject) -> None:
        """The object is to be found elsewhere from now on."""
        self.moved[old] = new
        entry = self._by_origin.pop(old, None)
        if entry is not None and (known := self.imports.get(entry)) is not None:
            self._rename(entry, known.origin, new)
            known.origin = new
            self._by_origin[new[:3]] = entry
            self.pulls.moved(entry, new)
            self._send(new[0], lm.Imported(new[1], new[2]))
            self._tell_origin(known)
            if known.is_sought:  # another node was faster, the one of a dead owner for example
                self.found(entry)

    def _tell_origin(self, known: Import) -> None:
        """Where copies are counted it has to know of this one."""
        if known.has_bytes or known.is_owned:
            self._send(known.origin[0], lm.Kept(*known.origin[1:3], known.has_bytes, known.is_owned))

    def _rename(self, entry: Entry, old: GlobalObject, new: GlobalObject) -> None:
        """Records of this node give it its new name; those that still come with the old one find it, too."""
        self._port.name_import(*entry, *old)
        self._port.name_import(*entry, *new)

    def _sweep_later(self) -> None:
        if not self._is_sweeping:
            self._is_sweeping = True
            self._loop.call_later(SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        self._is_sweeping = False
        exists = self._port.exists
        for entry in [entry for entry in self.imports if not exists(*entry)]:
            known = self.imports.pop(entry)
            self._answer(entry, known, GONE)  # who waits in line for room would not be answered any more
            self._port.forget_import(*entry)
            self.on_gone(entry)
            node, theirs, generation, _ = known.origin
            if self._by_origin.get((node, theirs, generation)) == entry:
                del self._by_origin[node, theirs, generation]
            if known.is_owned:
                self._send(node, lm.Free(theirs, generation))
        for entry in [entry for entry in self.exports if not exists(*entry)]:
            self._port.forget_import(*entry)
            self.pulls.copies.pop(entry, None)
            self.on_gone(entry)
            for node in self.exports.pop(entry):
                self._send(node, lm.Gone(*entry))
        if self.imports or self.exports:
            self._sweep_later()
