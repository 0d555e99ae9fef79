"""Count the words of texts that never end: mappers stream, reducers add up, and the totals are there all the while.

python examples/streaming_map_reduce.py

A mapper is a generator task: it is held back when nobody takes what it yields. The driver only passes refs on.
"""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Iterator

import weft

WORDS = "the loom of time weaves thread on thread while the weaver sings of the sea and of stone".split()


def texts(seed: int) -> Iterator[str]:
    """Lines of words, without end; early words are more frequent."""
    draw = random.Random(seed)
    while True:
        yield " ".join(WORDS[int(len(WORDS) * draw.random() ** 2)] for _ in range(200))


def home(word: str, reducers: int) -> int:
    return zlib.crc32(word.encode()) % reducers


@weft.remote
def count_words(seed: int, reducers: int) -> Iterator[list[Counter[str]]]:
    """For each line of a source, the counts for each reducer."""
    for line in texts(seed):
        parts: list[Counter[str]] = [Counter() for _ in range(reducers)]
        for word, count in Counter(line.split()).items():
            parts[home(word, reducers)][word] = count
        yield parts


@weft.remote(num_cpus=0)
class Reducer:
    """Adds up its share of the words."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.totals: Counter[str] = Counter()

    def add(self, parts: list[Counter[str]]) -> int:
        self.totals.update(parts[self.number])
        return self.totals.total()

    def most_common(self, count: int) -> list[tuple[str, int]]:
        return self.totals.most_common(count)


def main(lines: int = 2_000, mappers: int = 2, reducer_count: int = 2) -> Counter[str]:
    streams = [count_words.remote(seed, reducer_count) for seed in range(mappers)]
    reducers = [Reducer.remote(number) for number in range(reducer_count)]
    totals: Counter[str] = Counter()
    for taken in range(1, lines + 1):
        ready, _ = weft.wait(streams, num_returns=1)
        parts = next(ready[0])
        sizes = [reducer.add.remote(parts) for reducer in reducers]
        if taken % (lines // 4) == 0:
            assert sum(weft.get(sizes)) == 200 * taken
            totals = Counter()
            for top in weft.get([reducer.most_common.remote(5) for reducer in reducers]):
                totals.update(dict(top))
            print(f"after {taken:5,} lines:", ", ".join(f"{word} {n:,}" for word, n in totals.most_common(5)))
    for stream in streams:
        weft.cancel(stream)
    return totals


if __name__ == "__main__":
    main()
