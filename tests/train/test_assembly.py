"""Reports of several ranks become whole ones, without processes."""

from __future__ import annotations

from weft.train.assembly import SILENT_S, Assembly
from weft.train.worker import Report


def of_head(number: int, checkpoint: bool = True) -> Report:
    return Report({"step": number}, f"checkpoint_{number}" if checkpoint else None, None, number)


def announced(number: int, checkpoint: bool = True) -> Report:
    return Report({}, None, None, number, is_coming=checkpoint)


def part(number: int) -> Report:
    return Report({}, "/a folder", None, number)


def test_a_checkpoint_is_whole_when_every_part_is_there() -> None:
    assembly = Assembly(3)
    assembly.took(1, announced(0), 0.0)
    assembly.took(2, announced(0), 0.0)
    assembly.took(0, of_head(0), 0.0)
    assembly.took(1, part(0), 0.0)
    assert assembly.whole(1e9) == [], "one part is still to come, however long it takes"
    assembly.took(2, part(0), 0.0)
    (whole,) = assembly.whole(0.0)
    assert sorted(whole.parts) == [1, 2] and not assembly.is_waiting


def test_reports_come_out_in_order_and_those_without_a_checkpoint_wait_for_nobody_but_those_before() -> None:
    assembly = Assembly(2)
    assembly.took(0, of_head(0, checkpoint=False), 0.0)
    assert [one.report.number for one in assembly.whole(0.0)] == [0]
    assembly.took(1, announced(0, checkpoint=False), 0.0)
    assembly.took(0, of_head(1), 0.0)
    assembly.took(0, of_head(2, checkpoint=False), 0.0)
    assert assembly.whole(1e9) == [], "the other reports, and is behind"
    assembly.took(1, announced(1, checkpoint=False), 0.0)
    assert [(one.report.number, dict(one.parts)) for one in assembly.whole(0.0)] == [(1, {}), (2, {})]


def test_a_rank_that_never_reports_is_not_waited_for() -> None:
    assembly = Assembly(2)
    assembly.took(0, of_head(0), 0.0)
    assert assembly.whole(SILENT_S / 2) == []
    assert len(assembly.whole(2 * SILENT_S)) == 1
    assembly.took(0, of_head(1), 10.0)
    assembly.took(0, of_head(2), 10.0)
    assert [one.report.number for one in assembly.whole(10.0)] == [1], "rank 0 is at its next one"
    assembly.ended(1)
    assert [one.report.number for one in assembly.whole(10.0)] == [2]


def test_half_a_checkpoint_never_comes_out() -> None:
    for is_announced in (True, False):
        assembly = Assembly(2)
        assembly.took(1, announced(0, checkpoint=False), 0.0)
        assembly.took(0, of_head(1), 0.0)
        if is_announced:
            assembly.took(1, announced(1), 0.0)
        assembly.ended(1, is_lost=True)
        assert assembly.whole(1e9) == []
    assembly = Assembly(2)
    assembly.took(0, of_head(0), 0.0)
    assembly.ended(1, is_lost=True)
    assert assembly.whole(1e9) == [], "it may have died on its way to its first report"


def test_a_part_that_comes_after_all_is_not_lost() -> None:
    assembly = Assembly(2)
    assembly.took(0, of_head(0), 0.0)
    assert len(assembly.whole(2 * SILENT_S)) == 1
    assembly.took(1, announced(0), 20.0)
    assembly.took(1, part(0), 20.0)
    (late,) = assembly.whole(20.0)
    assert late.is_late and late.report.checkpoint == "checkpoint_0" and sorted(late.parts) == [1]
