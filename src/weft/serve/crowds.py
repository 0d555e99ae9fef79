"""Who gives way first, of those that keep others from their place. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TypeVar

CROWDED_S = 1.0
"""So long a request waits for a replica before others give way to it."""
PATIENCE_S, LEAST_PATIENCE_S = 5.0, 1.0
"""So long a client may leave a request waiting for what it sends, or does not read, while others want its place."""
_TURN_S = 2.0
"""Of that, where as many wait as do it."""
Found = TypeVar("Found")


def patience_s(keeping: int, waiting: int) -> float:
    """How long, where so many do that and so many wait: the more turns it takes until all have had theirs, the shorter.

    >>> patience_s(20, 5), patience_s(20, 20), patience_s(20, 5000)
    (5.0, 2.0, 1.0)
    """
    return max(LEAST_PATIENCE_S, min(PATIENCE_S, _TURN_S * keeping / waiting))


def crowds_first(those: list[tuple[float, str, Found]]) -> list[Found]:
    """Of (since when, from which address, who): from the address that has most of them, the oldest first.

    >>> crowds_first([(1, "a", "one"), (3, "b", "two"), (2, "b", "three")])
    ['three', 'two', 'one']
    """
    crowd = Counter(host for _, host, _ in those)
    return [one[2] for one in sorted(those, key=lambda one: (-crowd[one[1]], one[0]))]
