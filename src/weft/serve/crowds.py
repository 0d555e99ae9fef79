"""Who gives way first, of those that keep others from their place. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TypeVar

CROWDED_S = 1.0
"""So long a request waits for a replica before others give way to it."""
PATIENCE_S = 5.0
"""So long a client may leave a request waiting for what it sends, or does not read, while others want its place."""
Found = TypeVar("Found")


def crowds_first(those: list[tuple[float, str, Found]]) -> list[Found]:
    """Of (since when, from which address, who): from the address that has most of them, the oldest first.

    >>> crowds_first([(1, "a", "one"), (3, "b", "two"), (2, "b", "three")])
    ['three', 'two', 'one']
    """
    crowd = Counter(host for _, host, _ in those)
    return [one[2] for one in sorted(those, key=lambda one: (-crowd[one[1]], one[0]))]
