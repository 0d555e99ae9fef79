"""What the driver prints of its workers' output."""

from __future__ import annotations

import os

import pytest

from weft.engine.process.worker.output import TaggedStream
from weft.terminal.logs import LogPrinter


def test_a_line_has_the_tasks_name_and_the_pid(capsys: pytest.CaptureFixture[str]) -> None:
    LogPrinter().show(12, "stdout", [("f", "hello"), ("", "from C")])
    assert capsys.readouterr().out == "(f pid=12) hello\n(pid=12) from C\n"


def test_errors_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    LogPrinter().show(12, "stderr", [("f", "oh")])
    assert capsys.readouterr() == ("", "(f pid=12) oh\n")


def test_what_many_workers_say_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    printer = LogPrinter(deduplicate=True)
    for pid in range(5):
        printer.show(100 + pid, "stdout", [("f", f"worker {pid} started")])
    assert capsys.readouterr().out == "(f pid=100) worker 0 started\n"
    printer.flush()
    assert capsys.readouterr().out == "(f pid=104) worker 4 started [repeated 4x across 4 workers]\n"
    printer.flush()
    assert capsys.readouterr().out == ""


def test_a_single_repetition_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    printer = LogPrinter(deduplicate=True)
    printer.show(1, "stdout", [("f", "once")])
    printer.show(2, "stdout", [("f", "once")])
    printer.flush()
    assert capsys.readouterr().out == "(f pid=1) once\n(f pid=2) once\n"


def test_one_worker_may_repeat_itself(capsys: pytest.CaptureFixture[str]) -> None:
    printer = LogPrinter(deduplicate=True)
    printer.show(1, "stdout", [("f", f"step {i}") for i in range(3)])
    assert capsys.readouterr().out.count("step") == 3


def test_deduplication_can_be_switched_off(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_DEDUP_LOGS", "0")
    printer = LogPrinter()
    for pid in range(3):
        printer.show(pid, "stdout", [("f", "same")])
    assert capsys.readouterr().out.count("same") == 3


def test_what_has_no_newline_is_shown_once_it_does_not_grow() -> None:
    reading, writing = os.pipe()
    try:
        stream = TaggedStream(writing, None, "<stdout>")
        for number in range(3):
            stream.write(f"{number} ")
        assert os.read(reading, 1000) == b"\x1e\x1f0 1 2 \n"
        stream.write("next\n")
        assert os.read(reading, 1000) == b"\x1e\x1fnext\n"
    finally:
        os.close(reading)
        os.close(writing)


def test_a_stream_tags_whole_lines() -> None:
    reading, writing = os.pipe()
    try:
        stream = TaggedStream(writing, None, "<stdout>")
        stream.write("first\nsecond")
        assert os.read(reading, 1000) == b"\x1e\x1ffirst\n"
        stream.write(" half\n")
        assert os.read(reading, 1000) == b"\x1e\x1fsecond half\n"
        stream.write("rest")
        stream.finish_line()
        assert os.read(reading, 1000) == b"\x1e\x1frest\n"
    finally:
        os.close(reading)
        os.close(writing)
