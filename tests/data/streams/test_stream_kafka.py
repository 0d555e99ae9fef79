"""Kafka as a source, against the mock cluster of its own client library."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from waiting import wait_until
from weft import data

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


def test_a_place_to_start_that_there_is_not_is_refused(servers: str) -> None:
    with pytest.raises(ValueError, match="must be 'earliest' or 'latest', but got 'middle'"):
        data.stream_kafka("numbers", servers=servers, start="middle")
