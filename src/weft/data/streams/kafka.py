"""Kafka as a source (`pip install 'weft[data-kafka]'`): partitions are divided among the subtasks, offsets are kept in
the stream's own checkpoints and never committed to the broker, so that recovery is exact.
"""

from __future__ import annotations

from typing import Any

from weft.data.streams.sources import StreamSource


class KafkaSource(StreamSource):
    """The messages of a topic: dicts of key, value (bytes), timestamp (seconds), partition and offset.

    `end_at_latest` ends at the offsets that the partitions have when it is opened; without it the stream does not end.
    """

    def __init__(
        self, topic: str, settings: dict[str, Any], start: str = "earliest", end_at_latest: bool = False
    ) -> None:
        if start not in ("earliest", "latest"):
            raise ValueError(f"start must be 'earliest' or 'latest', but got {start!r}")
        self._topic = topic
        self._settings = settings
        self._start = start
        self._end_at_latest = end_at_latest

    def open(self, index: int, parallelism: int) -> None:
        try:
            import confluent_kafka
        except ModuleNotFoundError as error:
            message = "a stream from Kafka needs confluent-kafka: pip install 'weft[data-kafka]'"
            raise ModuleNotFoundError(message, name=error.name) from None
        self._kafka = confluent_kafka
        chosen = {"group.id": "weft-data", "enable.auto.commit": False, "enable.partition.eof": False}
        self._consumer = confluent_kafka.Consumer({**chosen, **self._settings})
        metadata = self._consumer.list_topics(self._topic, timeout=10).topics[self._topic]
        if metadata.error is not None:
            raise ValueError(f"topic {self._topic!r} can not be read: {metadata.error}")
        self._offsets: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        for partition in sorted(metadata.partitions):
            if partition % parallelism == index:
                low, high = self._consumer.get_watermark_offsets(self._at(partition, 0), timeout=10)
                self._offsets[partition] = low if self._start == "earliest" else high
                self._ends[partition] = high
        self._assign()

    def _at(self, partition: int, offset: int) -> Any:
        return self._kafka.TopicPartition(self._topic, partition, offset)

    def _assign(self) -> None:
        self._consumer.assign([self._at(partition, offset) for partition, offset in self._offsets.items()])

    def poll(self, most: int, timeout_s: float) -> list[Any] | None:
        if not self._offsets:
            return None
        if self._end_at_latest and all(self._offsets[one] >= end for one, end in self._ends.items()):
            return None
        found = []
        messages: list[Any] = self._consumer.consume(most, timeout_s)
        for message in messages:
            if message.error() is not None:
                raise OSError(f"topic {self._topic!r}: {message.error()}")
            if self._end_at_latest and message.offset() >= self._ends[message.partition()]:
                continue
            self._offsets[message.partition()] = message.offset() + 1
            found.append(
                {
                    "key": message.key(),
                    "value": message.value(),
                    "timestamp": message.timestamp()[1] / 1000,
                    "partition": message.partition(),
                    "offset": message.offset(),
                }
            )
        return found

    def offset(self) -> dict[int, int]:
        return dict(self._offsets)

    def seek(self, offset: dict[int, int]) -> None:
        self._offsets = dict(offset)
        self._assign()

    def close(self) -> None:
        self._consumer.close()
