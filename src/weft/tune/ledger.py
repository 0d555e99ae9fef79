"""The ledger: everything that an experiment's state machine was told, in order, so that it can be told again.

`experiment.pkl` is the experiment as it was given, written once. `ledger.bin` is a log of entries, appended in batches.
A driver that is killed loses at most the last unwritten batch: the trials of it run again from their last checkpoint.

LEDGER-1  An entry is whole or not there: each has its length and checksum, and reading ends at the first that is torn.
LEDGER-2  An entry about a checkpoint comes after the checkpoint lies whole in the storage, and after the entries of the
          results before it.
LEDGER-3  A checkpoint is deleted after the entry that replaces it was written.
"""

from __future__ import annotations

import pickle
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import msgspec

from weft import cloudpickle
from weft.library.storage import Storage
from weft.tune.errors import LedgerError

__all__ = ["Ledger", "plain", "read_entries", "read_experiment", "replay"]

LOG = "ledger.bin"
SPEC = "experiment.pkl"
_HEAD = struct.Struct("<II")
PLAIN = (str, int, float, bool, type(None), bytes)


class Ledger:
    """Appends; the owner of the file while an experiment runs."""

    def __init__(self, storage: Storage, name: str = LOG) -> None:
        self._storage, self._name = storage, name
        self._waiting: list[bytes] = []
        self._encode = msgspec.msgpack.Encoder(enc_hook=_pickled).encode

    def add(self, *entry: Any) -> None:
        data = self._encode(entry if entry[0] != "added" else (*entry[:2], _with_tuples(entry[2])))
        self._waiting.append(_HEAD.pack(len(data), zlib.crc32(data)))
        self._waiting.append(data)

    def flush(self) -> None:
        """Once this returns, the entries outlive this process."""
        if self._waiting:
            data = b"".join(self._waiting)
            self._waiting.clear()
            self._storage.append(self._name, data)

    def sync(self) -> None:
        """Once this returns, they outlive the machine."""
        self.flush()
        self._storage.sync_log(self._name)


def plain(value: Any) -> Any:
    """Numbers of NumPy and the like as Python's, so that results compare and travel well."""
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind is dict:
        return {key: plain(each) for key, each in value.items()}
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        return value.item()
    return value


def _pickled(value: Any) -> Any:
    return msgspec.msgpack.Ext(1, cloudpickle.dumps(value))


def _with_tuples(value: Any) -> Any:
    """A configuration in which tuples will still be tuples when it is read: a searched choice is known by its value."""
    if type(value) is dict:
        return {key: _with_tuples(each) for key, each in value.items()}
    if type(value) is list:
        return [_with_tuples(each) for each in value]
    if type(value) is tuple:
        members = [_with_tuples(each) for each in value]
        return msgspec.msgpack.Ext(2, msgspec.msgpack.encode(members, enc_hook=_pickled))
    return value


def _unpickled(code: int, data: memoryview) -> Any:
    if code == 2:
        return tuple(msgspec.msgpack.decode(data, ext_hook=_unpickled))
    if code != 1:
        raise LedgerError(f"the ledger has an entry of unknown type {code}: it was written by a newer version")
    return pickle.loads(data)


def read_entries(storage: Storage, name: str = LOG) -> Iterator[tuple[Any, ...]]:
    """The whole entries; what lies after them is the torn end of a killed writer and is cut off."""
    data = storage.read_log(name)
    if data is None:
        return
    decode = msgspec.msgpack.Decoder(tuple, ext_hook=_unpickled).decode
    at = 0
    while at + _HEAD.size <= len(data):
        length, checksum = _HEAD.unpack_from(data, at)
        body = data[at + _HEAD.size : at + _HEAD.size + length]
        if len(body) < length or zlib.crc32(body) != checksum:
            break
        at += _HEAD.size + length
        yield decode(body)
    if at < len(data):
        storage.cut_log(name, at)


def write_experiment(storage: Storage, spec: Any) -> None:
    storage.write(SPEC, cloudpickle.dumps(spec))


def read_experiment(storage: Storage) -> Any:
    data = storage.read(SPEC)
    if data is None:
        raise LedgerError(f"there is no experiment at {storage.root}: it has no {SPEC}")
    return pickle.loads(data)


def replay(state: Any, entries: Iterator[tuple[Any, ...]]) -> int:
    """Tell a new state machine what the ledger says; how many entries that were."""
    from weft.tune.trial import SavedCheckpoint

    count = 0
    for kind, trial_id, *rest in entries:
        count += 1
        if kind == "added":
            state.replay_added(trial_id, rest[0])
            continue
        if kind == "search ended":
            state.replay_search_ended()
            continue
        if kind == "stalled":
            state.stalled()
            continue
        if kind == "interrupted":
            state.interrupted()
            continue
        trial = state.trials[trial_id]
        if kind == "started":
            state.started(trial)
        elif kind == "reported":
            state.reported(trial, rest[0])
        elif kind == "saved":
            state.saved(trial, SavedCheckpoint(*rest))
        elif kind == "paused":
            state.paused(trial)
        elif kind == "ended":
            state.ended(trial)
        elif kind == "returned":
            state.returned(trial, *rest)
        elif kind == "revived":
            state.revived(trial)
        elif kind == "failed":
            state.failed(trial, *rest)
        else:
            raise LedgerError(f"the ledger has an entry {kind!r} that is not known: it was written by a newer version")
    return count
