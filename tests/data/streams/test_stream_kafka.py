"""Kafka as a source, against the mock cluster of its own client library."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from waiting import wait_until
from weft import data
from weft.data.streams.kafka import KafkaSource

confluent_kafka = pytest.importorskip("confluent_kafka")
pytestmark = pytest.mark.usefixtures("shared_weft_session")


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """A broker in this process, for as long as the producer lives, with 1,000 messages in 4 partitions."""
    producer = confluent_kafka.Producer({"test.mock.num.brokers": 1, "log_level": 0})
    found = producer.list_topics(timeout=10)
    for number in range(1000):
        producer.produce("numbers", str(number).encode(), key=str(number % 7).encode(), partition=number % 4)
    assert producer.flush(30) == 0
    yield ",".join(f"{broker.host}:{broker.port}" for broker in found.brokers.values())
    del producer


def numbers(message: dict[str, Any]) -> int:
    return int(message["value"])


@pytest.mark.parametrize("parallelism", [1, 2])
def test_all_messages_of_a_topic_are_read(servers: str, parallelism: int) -> None:
    stream = data.stream_kafka("numbers", servers=servers, parallelism=parallelism, end_at_latest=True)
    assert sorted(stream.map(numbers).run()) == list(range(1000))


def test_offsets_are_in_the_checkpoints_and_nothing_is_read_twice(servers: str) -> None:
    read: list[int] = []
    stream = data.stream_kafka("numbers", servers=servers).map(numbers)
    with stream.start(checkpoint_every_s=0.05, sink=lambda number, outputs: read.extend(outputs)) as job:
        wait_until(lambda: len(read) == 1000)
        os.kill(job.pids()[0], signal.SIGKILL)
        wait_until(lambda: job.restarts == 1)
        done = job.checkpoints_completed
        wait_until(lambda: job.checkpoints_completed > done + 1)
    assert sorted(read) == list(range(1000))


def test_subtasks_without_a_partition_hold_no_window_back(servers: str) -> None:
    found: list[Any] = []
    stream = data.stream_kafka("numbers", servers=servers, parallelism=5).timestamps(numbers)
    windows = stream.key_by(lambda message: 0).window(data.Tumbling(100)).count()
    with windows.start(checkpoint_every_s=0.05, sink=lambda number, outputs: found.extend(outputs)):
        wait_until(lambda: len(found) == 9)  # the last one is not over
    assert {result.value for result in found} == {100}


def test_a_place_to_start_that_there_is_not_is_refused(servers: str) -> None:
    with pytest.raises(ValueError, match="must be 'earliest' or 'latest', but got 'middle'"):
        data.stream_kafka("numbers", servers=servers, start="middle")


class Partition:
    """Of the broker below: the messages from one offset on, and markers, which are offsets without a message."""

    def __init__(self, low: int, values: list[int], markers: int = 0) -> None:
        self.low = low
        self.values = values
        self.markers = markers

    @property
    def high(self) -> int:
        return self.low + len(self.values) + self.markers


class Broker:
    """As much of `confluent_kafka` as the source needs, for what the mock cluster has not: old messages that are
    dropped, transactions' markers, new partitions. It is a module, its own consumer and its messages."""

    KafkaError = confluent_kafka.KafkaError
    TopicPartition = confluent_kafka.TopicPartition

    def __init__(self, *partitions: Partition) -> None:
        self.partitions = dict(enumerate(partitions))
        self.error = None

    def Consumer(self, settings: dict[str, Any]) -> Broker:
        assert settings["auto.offset.reset"] == "error" and settings["enable.partition.eof"] is True
        return self

    def list_topics(self, topic: str, timeout: float) -> SimpleNamespace:
        return SimpleNamespace(topics={topic: self})

    def get_watermark_offsets(self, at: Any, timeout: float) -> tuple[int, int]:
        return self.partitions[at.partition].low, self.partitions[at.partition].high

    def assign(self, places: list[Any]) -> None:
        self.places = {place.partition: place.offset for place in places}

    def consume(self, most: int, timeout: float) -> list[Any]:
        found = []
        for number, at in self.places.items():
            partition = self.partitions[number]
            for offset in range(at, partition.low + len(partition.values)):
                value = str(partition.values[offset - partition.low]).encode()
                found.append(self.message(number, offset, value))
            self.places[number] = partition.high
            eof = SimpleNamespace(code=lambda: confluent_kafka.KafkaError._PARTITION_EOF)
            found.append(self.message(number, partition.high, None, eof))
        return found

    @staticmethod
    def message(partition: int, offset: int, value: bytes | None, error: Any = None) -> SimpleNamespace:
        fields = {
            "partition": partition,
            "offset": offset,
            "value": value,
            "error": error,
            "key": None,
            "timestamp": (0, 0),
        }
        return SimpleNamespace(**{name: (lambda held=held: held) for name, held in fields.items()})


def opened(broker: Broker, monkeypatch: pytest.MonkeyPatch, **options: Any) -> KafkaSource:
    monkeypatch.setitem(sys.modules, "confluent_kafka", broker)  # type: ignore[arg-type]
    source = KafkaSource("numbers", {}, **options)
    source.open(0, 1)
    return source


def values(found: list[Any] | None) -> list[int]:
    assert found is not None
    return [int(message["value"]) for message in found]


def test_a_topic_that_ends_in_a_transactions_marker_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    source = opened(Broker(Partition(0, [1, 2], markers=1)), monkeypatch, end_at_latest=True)
    assert values(source.poll(10, 0)) == [1, 2]
    assert source.poll(10, 0) is None
    assert source.offset() == {0: 3}


def test_messages_that_were_dropped_before_they_were_read_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    source = opened(Broker(Partition(100, [1, 2])), monkeypatch)
    with pytest.raises(OSError, match=r"at offset 7 of partition 0, which now has offsets 100 to 102"):
        source.seek({0: 7})


def test_partitions_that_came_after_a_checkpoint_are_read_from_their_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(Partition(0, [1, 2]), Partition(0, [3]))
    source = opened(broker, monkeypatch, start="latest")
    source.seek({0: 1})
    assert sorted(values(source.poll(10, 0))) == [2, 3]


def test_partitions_that_come_while_a_stream_runs_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(Partition(0, [1]))
    source = opened(broker, monkeypatch)
    monkeypatch.setattr(source, "LOOK_EVERY_S", 0.0)
    assert values(source.poll(10, 0)) == [1]
    broker.partitions[1] = Partition(0, [5])
    assert values(source.poll(10, 0)) == [5]
    assert source.offset() == {0: 1, 1: 1}


def test_a_stream_that_goes_on_past_the_end_of_a_topic_is_told(servers: str) -> None:
    source = KafkaSource("numbers", {"bootstrap.servers": servers})
    source.open(0, 1)
    try:
        with pytest.raises(OSError, match="at offset 9999 of partition 2"):
            source.seek({0: 0, 1: 0, 2: 9999, 3: 0})
    finally:
        source.close()
