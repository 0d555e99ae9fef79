"""The control store's contract, on the form in memory."""

from __future__ import annotations

from weft.store.tables import Delete, MemoryTables, Put


def test_rows_are_written_read_and_deleted_in_batches() -> None:
    tables = MemoryTables()
    assert tables.write([Put("t", b"a", b"1"), Put("t", b"b", b"2"), Put("u", b"a", b"3")])
    assert tables.read([("t", b"a"), ("t", b"x"), ("u", b"a"), ("v", b"a")]) == [b"1", None, b"3", None]
    assert tables.write([Delete("t", b"a"), Put("t", b"c", b"4")])
    assert tables.scan("t") == [(b"b", b"2"), (b"c", b"4")]
    tables.delete("t", b"b", b"nothing")
    assert tables.statistics() == {"t": 1, "u": 1}


def test_a_batch_whose_condition_fails_changes_nothing() -> None:
    tables = MemoryTables()
    tables.put("t", b"a", b"1")
    assert not tables.write([Put("t", b"b", b"2"), Put("t", b"a", b"9", if_absent=True)])
    assert tables.scan("t") == [(b"a", b"1")]
    assert tables.put("t", b"c", b"3", if_absent=True)


def test_scans_are_by_prefix_and_in_order() -> None:
    tables = MemoryTables()
    for key in (b"b2", b"a1", b"b1"):
        tables.put("t", key, key)
    assert [key for key, _ in tables.scan("t", b"b")] == [b"b1", b"b2"]


def test_subscribers_hear_of_their_keys_until_they_leave() -> None:
    tables = MemoryTables()
    heard: list[tuple[str, bytes, bytes | None]] = []
    leave = tables.subscribe("t", b"a", lambda *change: heard.append(change))
    tables.write([Put("t", b"a1", b"1"), Put("t", b"b", b"2"), Put("u", b"a1", b"3"), Delete("t", b"a1")])
    assert heard == [("t", b"a1", b"1"), ("t", b"a1", None)]
    tables.put("t", b"a1", b"1", if_absent=True)
    assert not tables.put("t", b"a1", b"2", if_absent=True)
    leave()
    tables.put("t", b"a2", b"4")
    assert len(heard) == 3
