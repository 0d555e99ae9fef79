"""The log of an actor with exact state: which calls its state holds, and what a call that comes again is answered.

Pure: no I/O, no clock. `CallLog` is the actor's side. A call is run, then written down together with its outcome, then
answered; so a call that was answered is in the log, and one that is not in the log has left no effect when its process
dies. The next incarnation takes the last checkpoint, runs the calls behind it again, in their order, and goes on.
`LogRows` is the keeper's side: rows of a control table.

    LOG-1  a call is answered only after it was written.
    LOG-2  what is in the log was run exactly once in the state that the log describes; a call that comes again is
           answered with the outcome that was written.
    LOG-3  only the newest incarnation can write: each opens a new epoch, and a write of an older one is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

ANSWERS_KEPT = 1000
ANSWER_BYTES_KEPT = 16 << 20
CALLS_KNOWN = 4096
"""Of so many calls before a checkpoint it is still known that they were run; of the last `ANSWERS_KEPT` also what came
of them. A caller can have no more than that unanswered when its actor dies."""
REF = b"r"
"""In the key of a row, behind the actor: it names an object, whose id follows."""
_ID_BYTES = 16


class RecordedCall(msgspec.Struct, frozen=True):
    """A call that was run."""

    task: bytes
    method: str
    arguments: bytes
    outcome: bytes


class Checkpoint(msgspec.Struct, frozen=True):
    """The state after all calls up to some moment."""

    state: bytes
    answers: dict[bytes, bytes] = {}
    """By task: the outcomes of the last ones."""
    known: bytes = b""
    """The ids of the calls before those, one after the other."""
    number: int = 0
    """Of the first call behind it."""


class Batch(msgspec.Struct, frozen=True):
    """What is to be written as a whole."""

    calls: list[RecordedCall]
    checkpoint: Checkpoint | None = None
    """After these calls. What was written before, and they themselves, are not needed any more."""
    number: int = 0
    """Of its first call. Calls are numbered, so that a batch may be written twice."""
    refs: list[bytes] | None = None
    """Ids of the objects that the log names from now on, where others than before."""


class Answer(msgspec.Struct, frozen=True):
    """A call that was run before."""

    outcome: bytes | None
    """None: it is not known any more what came of it."""


class CallLog:
    """One incarnation's."""

    def __init__(self, every_calls: int, every_bytes: int) -> None:
        self._every_calls = every_calls
        self._every_bytes = every_bytes
        self._answers: dict[bytes, bytes] = {}
        self._known: dict[bytes, None] = {}
        self._calls = 0
        self._bytes = 0
        self._unwritten: list[RecordedCall] = []
        self._number = 0
        """Of the next call that is written."""

    def restored(self, checkpoint: Checkpoint, calls: Iterable[RecordedCall]) -> None:
        """What the last incarnation has left; the caller runs the calls again."""
        known = checkpoint.known
        self._known = dict.fromkeys(known[at : at + _ID_BYTES] for at in range(0, len(known), _ID_BYTES))
        self._answers = dict(checkpoint.answers)
        self._number = checkpoint.number
        for call in calls:
            self._count(call)
            self._number += 1

    def find(self, task: bytes) -> Answer | None:
        """What to answer a call that came before; None when it must be run."""
        if (outcome := self._answers.get(task)) is not None:
            return Answer(outcome)
        return Answer(None) if task in self._known else None

    def ran(self, call: RecordedCall) -> None:
        self._count(call)
        self._unwritten.append(call)

    def forget(self, task: bytes) -> None:
        """Its caller has the answer and wants the call to be run again."""
        self._answers.pop(task, None)
        self._known.pop(task, None)

    @property
    def wants_checkpoint(self) -> bool:
        return self._calls >= self._every_calls or self._bytes >= self._every_bytes

    def take(self, state: bytes | None = None) -> Batch:
        """What must be written now; with the state after all of it, a checkpoint."""
        calls, self._unwritten = self._unwritten, []
        number = self._number
        self._number += len(calls)
        if state is None:
            return Batch(calls, number=number)
        self._calls = self._bytes = 0
        self._trim()
        return Batch([], Checkpoint(state, dict(self._answers), b"".join(self._known), self._number))

    def _count(self, call: RecordedCall) -> None:
        self._answers.pop(call.task, None)
        self._answers[call.task] = call.outcome
        self._calls += 1
        self._bytes += len(call.arguments) + len(call.outcome)

    def _trim(self) -> None:
        left = ANSWER_BYTES_KEPT
        kept: dict[bytes, bytes] = {}
        for task, outcome in reversed(self._answers.items()):
            left -= len(outcome)
            if len(kept) == ANSWERS_KEPT or left < 0:
                break
            kept[task] = outcome
        for task in self._answers:
            if task not in kept:
                self._known[task] = None
        for task in list(self._known)[: max(0, len(self._known) - CALLS_KNOWN)]:
            del self._known[task]
        self._answers = {task: self._answers[task] for task in reversed(kept)}


class StaleIncarnation(Exception):
    """A newer incarnation of the actor has opened the log."""


class LogRows:
    """The logs of all actors, as rows; `read`, `write` and `scan` are of a control table."""

    def __init__(
        self,
        read: Callable[[bytes], bytes | None],
        write: Callable[[Sequence[tuple[bytes, bytes | None]]], object],
        scan: Callable[[bytes], Sequence[tuple[bytes, bytes]]],
    ) -> None:
        self._read = read
        self._write = write
        """Of (key, value or None to delete); all or none."""
        self._scan = scan

    def open(self, actor: bytes) -> tuple[int, Checkpoint | None, list[RecordedCall]]:
        """For a new incarnation: (its epoch, the last checkpoint, the calls behind that).

        Calls behind a gap are of a batch that was not written whole, and so not answered: they are dropped."""
        epoch = int.from_bytes(self._read(actor + b"e") or b"\0", "big") + 1
        held = self._read(actor + b"c")
        checkpoint = msgspec.msgpack.decode(held, type=Checkpoint) if held is not None else None
        calls: list[RecordedCall] = []
        changes: list[tuple[bytes, bytes | None]] = [(actor + b"e", epoch.to_bytes(8, "big"))]
        following = 0 if checkpoint is None else checkpoint.number
        for key, row in self._scan(actor + b"l"):
            if int.from_bytes(key[-8:], "big") == following:
                calls.append(msgspec.msgpack.decode(row, type=RecordedCall))
                following += 1
            else:
                changes.append((key, None))
        self._write(changes)
        return epoch, checkpoint, calls

    def append(self, actor: bytes, epoch: int, batch: Batch) -> None:
        """Once or twice. Raises StaleIncarnation (LOG-3)."""
        if int.from_bytes(self._read(actor + b"e") or b"\0", "big") != epoch:
            raise StaleIncarnation(f"another incarnation of actor {actor.hex()[:8]} has taken over")
        rows: list[tuple[bytes, bytes | None]] = []
        if batch.checkpoint is not None:
            rows.append((actor + b"c", msgspec.msgpack.encode(batch.checkpoint)))
            rows += [(key, None) for key, _ in self._scan(actor + b"l")]
        for number, call in enumerate(batch.calls, batch.number):
            rows.append((_call_key(actor, number), msgspec.msgpack.encode(call)))
        if batch.refs is not None:
            named = set(batch.refs)
            rows += [(actor + REF + one, None) for one in self.refs(actor) if one not in named]
            rows += [(actor + REF + one, b"") for one in named]
        self._write(rows)

    def refs(self, actor: bytes) -> list[bytes]:
        """The objects that it names."""
        return [key[len(actor) + 1 :] for key, _ in self._scan(actor + REF)]

    def drop(self, actor: bytes) -> None:
        """The actor is dead for good. Nothing happens when it had no log."""
        if self._read(actor + b"e") is None:
            return
        self._write([(key, None) for key, _ in self._scan(actor)])


def _call_key(actor: bytes, number: int) -> bytes:
    return actor + b"l" + number.to_bytes(8, "big")
