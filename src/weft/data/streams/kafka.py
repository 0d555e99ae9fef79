"""Kafka as a source (`pip install 'weft[data-kafka]'`): partitions are divided among the subtasks, offsets are kept in
the stream's own checkpoints and never committed to the broker, so that recovery is exact.
"""

from __future__ import annotations

import time
from typing import Any

from weft.data.streams.sources import StreamSource
from weft.library.checks import one_of


class KafkaSource(StreamSource):
    """The messages of a topic: dicts of key, value (bytes), timestamp (seconds), partition and offset.

    `end_at_latest` ends at the offsets that the partitions have when it is opened; without it the stream does not end,
    and partitions that the topic gets later are read from their beginning, as are those that it has got since the
    checkpoint that it goes on from. Messages that the broker has dropped before they were read are an error.
    """

    LOOK_EVERY_S = 30.0
    """For new partitions."""

    def __init__(
        self, topic: str, settings: dict[str, Any], start: str = "earliest", end_at_latest: bool = False
    ) -> None:
        one_of("start", start, ("earliest", "latest"))
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
        self._share = index, parallelism
        # The end of a partition is told: its last offsets may be those of transactions' markers, which are no messages.
        chosen = {"group.id": "weft-data", "enable.auto.commit": False}
        fixed = {"enable.partition.eof": True, "auto.offset.reset": "error"}
        self._consumer = confluent_kafka.Consumer({**chosen, **self._settings, **fixed})
        self._offsets: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        for partition in self._partitions():
            low, high = self._bounds(partition)
            self._offsets[partition] = low if self._start == "earliest" else high
            self._ends[partition] = high
        self._assign()

    def _partitions(self) -> list[int]:
        """Of the topic, those of this subtask."""
        metadata = self._consumer.list_topics(self._topic, timeout=10).topics[self._topic]
        if metadata.error is not None:
            raise ValueError(f"topic {self._topic!r} cannot be read: {metadata.error}")
        self._looked_at = time.monotonic()
        index, parallelism = self._share
        return [partition for partition in sorted(metadata.partitions) if partition % parallelism == index]

    def _bounds(self, partition: int) -> tuple[int, int]:
        """The offsets of its first message, and behind its last one."""
        low, high = self._consumer.get_watermark_offsets(self._at(partition, 0), timeout=10)
        return low, high

    def _find_new_partitions(self) -> None:
        new = [partition for partition in self._partitions() if partition not in self._offsets]
        for partition in new:
            self._offsets[partition] = self._bounds(partition)[0]
        if new:
            self._assign()

    def _at(self, partition: int, offset: int) -> Any:
        return self._kafka.TopicPartition(self._topic, partition, offset)

    def _assign(self) -> None:
        self._consumer.assign([self._at(partition, offset) for partition, offset in self._offsets.items()])

    def poll(self, most: int, timeout_s: float) -> list[Any] | None:
        if not self._end_at_latest and time.monotonic() - self._looked_at >= self.LOOK_EVERY_S:
            self._find_new_partitions()
        if not self._offsets and not self._end_at_latest:
            time.sleep(timeout_s)
            return []
        if self._end_at_latest and all(self._offsets[one] >= end for one, end in self._ends.items()):
            return None
        found = []
        messages: list[Any] = self._consumer.consume(most, timeout_s)
        for message in messages:
            if message.error() is not None:
                self._take_error(message)
                continue
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

    def _take_error(self, message: Any) -> None:
        """What is no message: the end of a partition for now, or an error."""
        error, partition = message.error(), message.partition()
        if error.code() == self._kafka.KafkaError._PARTITION_EOF:
            self._offsets[partition] = max(self._offsets[partition], message.offset())
            return
        if error.code() == self._kafka.KafkaError._AUTO_OFFSET_RESET:
            raise self._expired(partition, *self._bounds(partition))
        raise OSError(f"topic {self._topic!r}: {error}")

    def _expired(self, partition: int, low: int, high: int) -> OSError:
        return OSError(
            f"topic {self._topic!r}: the stream is to go on at offset {self._offsets[partition]} of partition "
            f"{partition}, which now has offsets {low} to {high}: messages were dropped before they were read. Keep "
            "them longer than a stream may stand still, or begin without the old checkpoints"
        )

    @property
    def unassigned(self) -> bool:
        return not self._offsets

    def offset(self) -> dict[int, int]:
        return dict(self._offsets)

    def seek(self, offset: dict[int, int]) -> None:
        """Partitions that are not in the checkpoint are new since then, and read from their beginning."""
        new = {partition: self._bounds(partition)[0] for partition in self._offsets if partition not in offset}
        self._offsets = {**offset, **new}
        for partition in offset:
            low, high = self._bounds(partition)
            if not low <= self._offsets[partition] <= high:
                raise self._expired(partition, low, high)
        self._assign()

    def close(self) -> None:
        self._consumer.close()
