"""The parts in which `make test` runs: no test is left out, and what they came to is one line."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

import by_folder
from by_folder import Outcome, Part, closing_line, parts

PART = Part("tests/some", (), 1, False)


def outcome(closing: str, told: str = "", has_passed: bool = True) -> Outcome:
    return Outcome(PART, has_passed, f"{told}\n{closing}", closing.partition(" in ")[0])


def test_every_file_of_tests_is_in_one_part() -> None:
    counts = Counter(path for part in parts([]) for path in part.files)
    assert sorted(counts) == sorted(by_folder.HERE.rglob("test_*.py"))
    assert set(counts.values()) == {1}
    assert len({part.log for part in parts([])}) == len(parts([]))


def test_a_folder_can_be_chosen_and_keeps_the_order_of_its_files() -> None:
    chosen = parts(["cluster"])
    files = [path for part in sorted(chosen, key=lambda part: part.place) for path in part.files]
    assert len(chosen) > 1 and files == sorted(by_folder.HERE.glob("cluster/test_*.py"))


def test_no_part_is_much_larger_than_others_small_ones_come_last_and_like_ones_apart() -> None:
    sizes = [by_folder._size(list(part.files)) for part in parts([]) if not part.is_alone]
    assert max(sizes) < 2.5 * by_folder.PART_BYTES
    last = sizes[-len(sizes) // 4 :]
    assert max(last) < by_folder.PART_BYTES
    folders = [part.name.rpartition("-")[0] for part in parts([]) if part.name[-1].isdigit()]
    assert not [three for three in zip(folders, folders[1:], folders[2:], strict=False) if len(set(three)) == 1]
    assert all((by_folder.HERE / folder).is_dir() for folder in by_folder.WEIGHTS)


def test_the_closing_line_has_the_counts_of_all_parts() -> None:
    outcomes = [outcome("3 passed, 1 skipped in 1.20s"), outcome("1 failed, 4 passed, 1 error in 2.00s", "", False)]
    assert closing_line(outcomes, 61.0) == "1 failed, 7 passed, 1 skipped, 1 error in 61.00s (0:01:01)"
    assert closing_line([], 0.0) == "no tests ran in 0.00s (0:00:00)"


def test_a_part_whose_process_died_is_an_error() -> None:
    assert closing_line([outcome("", "Fatal Python error", has_passed=False)], 1.0) == "1 error in 1.00s (0:00:01)"


def test_what_did_not_just_pass_is_told_again_at_the_end() -> None:
    told = "F\n=== short test summary info ===\nFAILED tests/test_a.py::test_x - assert 0\nSKIPPED [1] b.py:1: why"
    assert outcome("1 failed, 1 skipped in 0.10s", told).summary == told.splitlines()[2:]
    assert outcome("1 passed in 0.10s").summary == []


@pytest.mark.parametrize(
    ("test", "status", "closing"),
    [
        ("def test_x(): pass", 0, "1 passed"),
        ("def test_x(): assert 0", 1, "1 failed"),
        ("import no_such_thing", 1, "1 error"),
    ],
)
def test_a_part_is_run_and_shown(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    test: str,
    status: int,
    closing: str,
) -> None:
    (tmp_path / "test_one.py").write_text(test)
    monkeypatch.setattr(by_folder, "LOGS", tmp_path)
    found = by_folder.run(Part("one", (tmp_path / "test_one.py",), 1, False))
    shown = capsys.readouterr().out
    assert found.has_passed is (status == 0)
    assert closing_line([found], 1.0).startswith(closing)
    assert ("Error" in shown) is (status != 0), "a failure is shown in full, what passed is a line"
    assert shown.splitlines()[-1].startswith("one: ")


def test_a_part_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*args: object, **options: object) -> None:
        raise subprocess.TimeoutExpired("pytest", 1.0)

    monkeypatch.setattr(by_folder, "LOGS", tmp_path)
    monkeypatch.setattr(subprocess, "run", run)
    found = by_folder.run(PART)
    assert not found.has_passed and found.counts["error"] == 1
