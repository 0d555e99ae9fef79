"""From a worker's pipe to named lines."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from weft.engine.node.output import LARGEST_BATCH_BYTES, LONGEST_LINE_BYTES, Stream, WorkerOutput
from weft.net.loop import Loop

WORKER = (5, 1)


def lines_of(*chunks: bytes) -> list[tuple[str, str]]:
    stream = Stream(WORKER, "stdout", -1)
    for chunk in chunks:
        stream.feed(chunk)
    stream.finish()
    return stream.take()


def test_lines_are_put_together_from_any_pieces_and_cut_from_their_tags() -> None:
    text = b"\x1ef\x1fone\nplain\n\x1eActor.go\x1ftwo\nrest"
    expected = [("f", "one"), ("", "plain"), ("Actor.go", "two"), ("", "rest")]
    assert lines_of(text) == expected
    assert lines_of(*(text[i : i + 1] for i in range(len(text)))) == expected


def test_bytes_that_are_no_text_do_no_harm() -> None:
    assert lines_of(b"\xff\xfe\n\n") == [("", "\ufffd\ufffd"), ("", "")]


def test_an_endless_line_is_cut() -> None:
    lines = lines_of(b"x" * (LONGEST_LINE_BYTES * 2 + 5))
    assert [len(text) for _, text in lines] == [LONGEST_LINE_BYTES, LONGEST_LINE_BYTES, 5]
    whole = lines_of(b"x" * (LONGEST_LINE_BYTES + 5) + b"\n")
    assert [len(text) for _, text in whole] == [LONGEST_LINE_BYTES, 5]


def test_a_flood_is_dropped_with_a_note_and_then_goes_on() -> None:
    stream = Stream(WORKER, "stdout", -1)
    stream.feed((b"y" * 1023 + b"\n") * (LARGEST_BATCH_BYTES // 1024 + 10))
    lines = stream.take()
    assert "10 more lines were dropped" in lines[-1][1]
    assert len(lines) == LARGEST_BATCH_BYTES // 1024 + 1
    stream.feed(b"after\n")
    assert stream.take() == [("", "after")]


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.close()


def test_pipes_are_read_delivered_and_closed(loop: Loop) -> None:
    heard: list[tuple[tuple[int, int], str, list[tuple[str, str]]]] = []
    output = WorkerOutput(loop, lambda *batch: heard.append(batch))
    out, err = output.open(WORKER)
    os.write(out, b"\x1ef\x1fhello\n")
    loop.run_once(1)
    assert heard == [(WORKER, "stdout", [("f", "hello")])]
    os.write(err, b"unfinished")
    output.flush()
    os.write(out, b"last\n")
    output.close(WORKER)
    assert heard[1:] == [(WORKER, "stdout", [("", "last")]), (WORKER, "stderr", [("", "unfinished")])]
    output.close(WORKER)
    for fd in (out, err):
        with pytest.raises(BrokenPipeError):
            os.write(fd, b"x")
        os.close(fd)


def test_a_worker_that_closes_its_output_is_no_longer_watched(loop: Loop) -> None:
    output = WorkerOutput(loop, lambda *batch: None)
    for fd in output.open(WORKER):
        os.close(fd)
    loop.run_once(1)
    loop.run_once(0)
    output.close_all()


def test_lines_that_come_fast_are_sent_in_one_batch(loop: Loop) -> None:
    heard: list[list[tuple[str, str]]] = []
    output = WorkerOutput(loop, lambda process, stream, lines: heard.append(lines))
    out, err = output.open(WORKER)
    os.write(out, b"0\n")
    loop.run_once(1)
    for number in (b"1\n", b"2\n"):
        os.write(out, number)
        loop.run_once(1)
    while len(heard) < 2:
        loop.run_once(0.01)
    assert heard == [[("", "0")], [("", "1"), ("", "2")]]
    os.close(out)
    os.close(err)
    output.close_all()
