"""Streams through real actors: state, windows, joins, sources, recovery after kills."""

from __future__ import annotations

import os
import random
import signal
import socket
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from stream_events import slowly

from waiting import wait_until
from weft import data
from weft.data.streams.sources import FileSource

pytestmark = pytest.mark.usefixtures("shared_weft_session")


def numbered(count: int) -> Any:
    return lambda: ((float(number), f"w{number % 7}") for number in range(count))


def test_events_are_mapped_filtered_and_flattened() -> None:
    made = data.stream_from(lambda: ["a b", "", "c"]).flat_map(str.split).map(str.upper).filter(lambda w: w != "B")
    assert made.run() == ["A", "C"]


def test_state_is_kept_by_key() -> None:
    events = data.stream_from(lambda: [("a", 1), ("b", 10), ("a", 2), ("b", 20), ("a", 3)])
    totals = events.key_by(lambda event: event[0]).reduce(lambda left, right: (left[0], left[1] + right[1]))
    assert Counter(key for key, _ in totals.run()) == {"a": 3, "b": 2}
    assert dict(sorted(totals.map(lambda pair: pair[1]).run())) == {"a": 6, "b": 30}

    def nth(key: str, event: tuple[str, int], state: dict[str, Any]) -> list[Any]:
        state["seen"] = state.get("seen", 0) + 1
        return [(key, state["seen"])] if state["seen"] % 2 == 0 else []

    assert sorted(events.key_by(lambda event: event[0]).process(nth).run()) == [("a", 2), ("b", 2)]


def counts_of(results: list[data.WindowResult]) -> Counter[Any]:
    return Counter({(result.key, result.window.start): result.value for result in results})


def expected_counts(count: int, size: int) -> Counter[Any]:
    return Counter((f"w{number % 7}", float(number - number % size)) for number in range(count))


def windowed(source: data.Stream, size: float) -> data.Stream:
    keyed = source.timestamps(lambda event: event[0]).key_by(lambda event: event[1])
    return keyed.window(data.Tumbling(size)).count()


def test_words_are_counted_in_windows_of_event_time() -> None:
    results = windowed(data.stream_from(numbered(5000)), 100).run()
    assert counts_of(results) == expected_counts(5000, 100)


def test_several_sources_are_read_and_their_windows_wait_for_the_slowest() -> None:
    def part(index: int, parallelism: int) -> Any:
        return ((float(number), f"w{number % 7}") for number in range(5000) if number % parallelism == index)

    results = windowed(data.stream_from(part, parallelism=2), 100).run()
    assert counts_of(results) == expected_counts(5000, 100)


def test_events_out_of_order_count_up_to_the_allowed_delay() -> None:
    times = [1.0, 5.0, 3.0, 12.0, 8.0, 30.0, 2.0]
    stream = data.stream_from(lambda: iter(times)).timestamps(float, max_delay_s=5)
    job = stream.key_by(lambda time: "k").window(data.Tumbling(10)).collect(parallelism=1).start()
    with job:
        results = list(job)
        assert results[0].window.start == 0.0
        assert sum(len(result.value) for result in results) + job.progress()[-1].late == len(times)


def test_sliding_and_session_windows() -> None:
    stream = data.stream_from(lambda: [0.0, 1.0, 2.0, 10.0, 11.0]).timestamps(float).key_by(lambda time: "k")
    sessions = stream.window(data.Session(3)).count().run()
    assert [(result.window.start, result.window.end, result.value) for result in sessions] == [(0, 5, 3), (10, 14, 2)]
    sliding = stream.window(data.Sliding(4, 2)).sum().run()
    assert {result.window.start: result.value for result in sliding} == {-2: 1, 0: 3, 2: 2, 8: 21, 10: 21}
    largest = stream.window(data.Tumbling(100)).reduce(max).run()
    assert [result.value for result in largest] == [11.0]


def test_two_streams_are_joined_in_windows() -> None:
    clicks = data.stream_from(lambda: [(1.0, "a"), (2.0, "b"), (15.0, "a")])
    views = data.stream_from(lambda: [(0.5, "a"), (3.0, "a"), (16.0, "b")])
    keyed = [one.timestamps(lambda event: event[0]).key_by(lambda event: event[1]) for one in (clicks, views)]
    results = keyed[0].join(keyed[1], data.Tumbling(10)).run()
    assert sorted((result.key, result.value[0][0], result.value[1][0]) for result in results) == [
        ("a", 1.0, 0.5),
        ("a", 1.0, 3.0),
    ]


def test_unions_and_broadcasts() -> None:
    left, right = data.stream_from(lambda: range(5)), data.stream_from(lambda: range(10, 15))
    assert sorted(left.union(right).run()) == [*range(5), *range(10, 15)]
    rules = data.stream_from(lambda: [3])
    made = left.with_broadcast(rules, lambda event, rule: (event, rule), parallelism=1).run()
    assert [event for event, _ in made] == [0, 1, 2, 3, 4]
    assert {rule for _, rule in made} <= {None, 3}


def test_a_file_is_followed_while_it_grows(tmp_path: Path) -> None:
    file = tmp_path / "log.txt"
    file.write_text("one\ntw")
    seen = tmp_path / "seen"
    seen.touch()

    def note(word: str) -> None:
        with open(seen, "a") as out:
            out.write(word + "\n")

    with data.stream_lines(str(file)).for_each(note).start() as job:
        wait_until(lambda: seen.read_text() == "one\n")
        with open(file, "a") as out:
            out.write("o\nthree\n")
        (tmp_path / "log.txt.done").touch()
        assert list(job) == ["one", "two", "three"]


def test_lines_come_from_a_socket() -> None:
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"one\ntwo\nthr")
            connection.sendall(b"ee\nfour")

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        assert data.stream_socket("127.0.0.1", server.getsockname()[1]).run() == ["one", "two", "three", "four"]
    finally:
        thread.join()
        server.close()


def test_what_a_function_raises_ends_the_stream_at_once() -> None:
    stream = data.stream_from(lambda: range(10)).map(lambda number: 1 // (number - 5))
    with pytest.raises(ZeroDivisionError) as caught:
        stream.run()
    if sys.version_info >= (3, 11):
        assert "in map in IteratorSource → map, at the event 5" in str(caught.value)


def test_a_source_that_can_not_be_opened_ends_the_stream_at_once(tmp_path: Path) -> None:
    job = data.stream_lines(str(tmp_path / "nowhere")).start()
    with pytest.raises(FileNotFoundError, match="nowhere"):
        job.wait()
    assert job.restarts == 0


def test_a_file_that_is_rotated_is_followed_and_one_that_is_cut_is_told(tmp_path: Path) -> None:
    file = tmp_path / "log.txt"
    file.write_text("one\n")
    source = FileSource(str(file))
    source.open(0, 1)
    assert source.poll(10, 0) == ["one"]
    with open(file, "a") as out:
        out.write("two\nthr")
        out.flush()
        assert source.poll(10, 0) == ["two"]
        before = source.offset()
        file.rename(tmp_path / "log.txt.1")
        out.write("ee\n")
    file.write_text("four\n")
    assert [source.poll(10, 0) for _ in range(3)] == [["three"], [], ["four"]]
    source.seek(before)
    assert [source.poll(10, 0) for _ in range(3)] == [["three"], [], ["four"]]
    file.write_text("")
    with pytest.raises(OSError, match="was cut to 0 bytes after 5"):
        source.poll(10, 0)
    (tmp_path / "log.txt.1").unlink()
    with pytest.raises(ValueError, match="is gone"):
        source.seek(before)
    source.close()


# ---- recovery ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2])
def test_results_are_exact_after_three_kills(tmp_path: Path, seed: int) -> None:
    chosen = random.Random(seed)
    gate = tmp_path / "gate"
    source = data.stream_from(slowly(30_000, 25_000, gate))
    results: list[data.WindowResult] = []
    job = windowed(source, 100).start(checkpoint_every_s=0.05, sink=lambda number, outputs: results.extend(outputs))
    with job:
        for kill in range(3):
            before = job.checkpoints_completed
            wait_until(lambda before=before: job.checkpoints_completed > before and len(job.pids()) == 3)
            os.kill(chosen.choice(job.pids()), signal.SIGKILL)
            wait_until(lambda kill=kill: job.restarts > kill)
        gate.touch()
        assert job.wait(60)
    assert job.restarts == 3
    assert counts_of(results) == expected_counts(30_000, 100)
    assert len(results) == len(counts_of(results)), "a result was put out twice"


def test_a_stopped_stream_goes_on_from_its_folder(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    by_number: dict[int, list[Any]] = {}

    def sink(number: int, outputs: list[Any]) -> None:
        by_number[number] = outputs  # what comes again under a number replaces what came before

    stream = windowed(data.stream_from(slowly(10_000, 8_000, gate)), 100)
    with stream.start(checkpoint_every_s=0.05, checkpoint_dir=str(tmp_path / "state"), sink=sink) as job:
        wait_until(lambda: job.checkpoints_completed >= 3)
    gate.touch()
    with stream.start(checkpoint_every_s=0.05, checkpoint_dir=str(tmp_path / "state"), sink=sink) as job:
        assert job.wait(60)
    results = [result for outputs in by_number.values() for result in outputs]
    assert counts_of(results) == expected_counts(10_000, 100)
    assert len(results) == len(counts_of(results))


def test_a_folder_of_another_stream_is_refused(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    stream = data.stream_from(slowly(100, 50, gate))
    with stream.start(checkpoint_every_s=0.01, checkpoint_dir=str(tmp_path / "state")) as job:
        wait_until(lambda: job.checkpoints_completed >= 1)
        gate.touch()
        list(job)
    with pytest.raises(ValueError, match="1 subtasks, but this one has 3"):
        windowed(stream, 10).start(checkpoint_dir=str(tmp_path / "state"))


def test_progress_tells_what_each_stage_did() -> None:
    with windowed(data.stream_from(numbered(1000)), 100).start() as job:
        assert job.wait(60)
        source, window = job.progress()
    assert (source.events_in, source.events_out) == (1000, 1000)
    assert window.events_in == 1000 and window.events_out == len(expected_counts(1000, 100))
    assert window.name == "window" and window.watermark == float("inf")
