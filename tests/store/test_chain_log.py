"""A replica's log: what it keeps of what the tail has acknowledged."""

from __future__ import annotations

from weft.store.state.chain_log import CHANGE_BYTES, EntryLog
from weft.store.state.chain_messages import Entry


def test_a_log_of_many_small_changes_is_bounded_by_what_they_take_in_memory() -> None:
    log = EntryLog(0, kept_entries=1000, kept_bytes=100 * CHANGE_BYTES)
    for seq in range(1, 51):
        log.append(Entry(seq, [("kv", b"", b"")] * 10))
    log.trim(50)
    assert log.last - log.first + 1 == 10
    assert log.has_after(40) and not log.has_after(39)
    assert log.bytes_after(40) == 0  # of what is sent, keys and values alone count
    log.trim(log.last)
    assert [entry.seq for entry in log.after(45)] == [46, 47, 48, 49, 50]


def test_what_is_not_acknowledged_stays_however_much_it_is() -> None:
    log = EntryLog(0, kept_entries=2, kept_bytes=CHANGE_BYTES)
    for seq in range(1, 11):
        log.append(Entry(seq, [("kv", b"key", b"value")]))
    log.trim(3)
    assert log.first == 4
