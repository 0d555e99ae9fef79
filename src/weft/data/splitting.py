"""One dataset for several consumers: divided once, or shared while it streams.

`streaming_split` is one actor that runs the execution and hands out refs of blocks; the blocks themselves go from the
tasks that made them to the consumers. An epoch begins when the first consumer asks for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import weft
from weft import cloudpickle
from weft.data import plan
from weft.data.execute import get
from weft.data.iteration import Consumable
from weft.data.sources.memory import BlockSource
from weft.library.checks import at_least

if TYPE_CHECKING:
    from weft.data.dataset import Dataset

LEFT_OVER = "streaming_split(equal=True), as the rest of a division"


def split(dataset: Dataset, parts: int) -> list[Dataset]:
    at_least("parts", parts, 1)
    made = dataset.materialize()
    source = _blocks_source(made)
    blocks_a_part = max(1, -(-len(source.refs) // parts))
    divided = _blocks_source(made.repartition(parts * blocks_a_part).materialize())
    datasets = []
    for number in range(parts):
        mine = slice(number * blocks_a_part, (number + 1) * blocks_a_part)
        piece = BlockSource(divided.refs[mine], divided.rows[mine], divided.sizes[mine], divided.names, "split")
        datasets.append(dataset._then(plan.Read((), piece)))
    return datasets


def _blocks_source(dataset: Dataset) -> BlockSource:
    node = dataset._plan
    assert isinstance(node, plan.Read) and isinstance(node.source, BlockSource)
    return node.source


def streaming_split(dataset: Dataset, parts: int, equal: bool) -> list[DataIterator]:
    at_least("parts", parts, 1)
    if not weft.is_initialized():
        weft.init()
    coordinator: Any = weft.remote(num_cpus=0)(Coordinator).remote(cloudpickle.dumps(dataset), parts, equal)
    return [DataIterator(coordinator, number) for number in range(parts)]


Piece = tuple[Any, int, int]
"""A block, and which of its rows: [start, stop)."""


class Handout:
    """Who gets which rows of the blocks of an epoch: pure.

    With `equal` all consumers have been given as many rows after each block. What cannot be divided waits for the next
    one, so that in the end fewer rows are left over than there are consumers.
    """

    def __init__(self, parts: int, equal: bool) -> None:
        self._parts = parts
        self._equal = equal
        self._waiting: list[deque[Piece]] = [deque() for _ in range(parts)]
        self._left_over: deque[Piece] = deque()

    def waiting(self, consumer: int) -> Piece | None:
        return self._waiting[consumer].popleft() if self._waiting[consumer] else None

    def arrived(self, block: Any, rows: int, asker: int) -> None:
        """A block has come because `asker` wanted one."""
        if not self._equal:
            self._waiting[asker].append((block, 0, rows))
            return
        if rows:
            self._left_over.append((block, 0, rows))
        share = self.rows_left_over // self._parts
        for waiting in self._waiting:
            waiting.extend(self._cut(share))

    def _cut(self, rows: int) -> Iterator[Piece]:
        while rows:
            block, start, stop = self._left_over.popleft()
            if stop - start > rows:
                self._left_over.appendleft((block, start + rows, stop))
                stop = start + rows
            rows -= stop - start
            yield block, start, stop

    @property
    def rows_left_over(self) -> int:
        return sum(stop - start for _, start, stop in self._left_over)


class Coordinator:
    """Runs the executions of a streaming split."""

    def __init__(self, pickled: bytes, parts: int, equal: bool) -> None:
        self._dataset: Dataset = cloudpickle.loads(pickled)
        self._parts = parts
        self._equal = equal
        self._epochs: dict[int, tuple[Iterator[Any], Handout]] = {}
        self._ended: dict[int, set[int]] = {}

    def take(self, consumer: int, epoch: int) -> Piece | None:
        """The next piece for a consumer; None when its epoch is over."""
        if epoch not in self._epochs:
            self._epochs[epoch] = (iter(self._dataset._bundles()), Handout(self._parts, self._equal))
        bundles, handout = self._epochs[epoch]
        while True:
            piece = handout.waiting(consumer)
            if piece is not None:
                return piece
            bundle = next(bundles, None)
            if bundle is None:
                self._leave(consumer, epoch, handout.rows_left_over)
                return None
            handout.arrived(bundle.ref, bundle.report.rows, consumer)

    def _leave(self, consumer: int, epoch: int, rows_left_over: int) -> None:
        gone = self._ended.setdefault(epoch, set())
        if not gone and rows_left_over and self._dataset.statistics is not None:
            self._dataset.statistics.skip({LEFT_OVER: rows_left_over})
        gone.add(consumer)
        if len(gone) == self._parts:
            del self._epochs[epoch], self._ended[epoch]

    def stats(self) -> str:
        return self._dataset.stats()


class DataIterator(Consumable):
    """One consumer's share of a streaming split. Each loop over it is an epoch; all consumers take part in each."""

    def __init__(self, coordinator: Any, number: int) -> None:
        self._coordinator = coordinator
        self._number = number
        self._epoch = 0

    def _blocks(self) -> Iterator[pa.Table]:
        epoch, self._epoch = self._epoch, self._epoch + 1
        ahead = self._coordinator.take.remote(self._number, epoch)
        while True:
            piece = get(ahead)
            if piece is None:
                return
            ahead = self._coordinator.take.remote(self._number, epoch)
            ref, start, stop = piece
            yield get(ref).slice(start, stop - start)

    def stats(self) -> str:
        """What the stages have done so far, as text."""
        found: str = get(self._coordinator.stats.remote())
        return found
