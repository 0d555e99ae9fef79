"""The chronicle: kept in the table `events`, bounded, passed on to a head, kept back while there is none."""

from __future__ import annotations

import itertools

from weft.engine.node import chronicle
from weft.engine.node.chronicle import NODE, WARNING, WORKER, Chronicle
from weft.engine.wire.messages import Happening
from weft.store.tables import EVENTS, MemoryTables


def kept_here(tables: MemoryTables) -> Chronicle:
    return Chronicle(tables, "a1", lambda _: False, itertools.count(10**9, 10**9).__next__)


def texts(of: Chronicle) -> list[str]:
    return [row["message"] for row in of.rows(0, 10_000)]


def test_what_happened_is_listed_with_the_latest_first() -> None:
    told = kept_here(MemoryTables())
    told.note(NODE, "b2", "node b2 joined")
    told.note(WORKER, "77", "a worker died", WARNING)
    latest = told.rows(0, 1)[0]
    assert (latest["severity"], latest["source_type"], latest["subject_id"]) == (WARNING, WORKER, "77")
    assert (latest["node_id"], latest["time_s"], latest["message"]) == ("a1", 2.0, "a worker died")
    assert told.rows(1, 5)[0]["message"] == "node b2 joined"


def test_only_the_last_ones_are_kept() -> None:
    tables = MemoryTables()
    told = kept_here(tables)
    for number in range(chronicle.MOST + 5):
        told.note(NODE, "b2", f"{number}")
    assert len(tables.scan(EVENTS)) == chronicle.MOST
    assert texts(told)[0] == f"{chronicle.MOST + 4}" and texts(told)[-1] == "5"


def test_who_takes_over_goes_on_with_the_rows_of_the_one_before() -> None:
    before, after = MemoryTables(), MemoryTables()
    kept_here(before).note(NODE, "b2", "earlier")
    heir = Chronicle(after, "c3", lambda _: False)
    heir.note(NODE, "c3", "while taking over")
    for key, row in before.scan(EVENTS):
        after.put(EVENTS, key, row)
    assert texts(heir) == ["while taking over", "earlier"]


def test_another_node_passes_on_what_it_has_to_tell_and_keeps_it_while_there_is_no_head() -> None:
    sent: list[Happening] = []
    has_head = False

    def pass_on(one: Happening) -> bool | None:
        if has_head:
            sent.append(one)
        return True if has_head else None

    told = Chronicle(MemoryTables(), "a1", pass_on)
    told.note(WORKER, "1", "first")
    assert not sent and not texts(told)
    has_head = True
    told.head_is_there()
    told.note(WORKER, "2", "second")
    assert [one.text for one in sent] == ["first", "second"] and not texts(told)
