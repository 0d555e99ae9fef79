"""Pages of the dashboard for libraries: publish what a run knows about itself, and the page shows the newest.

>>> publish("tune", "my_experiment", {"trials": []})
>>> withdraw("tune", "my_experiment")

A board is JSON; numbers that JSON has not (NaN, infinity) become null. Publishing sends it to the node daemon, some 100
microseconds: once a second is often enough. A board stays until it is withdrawn or its node ends.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from weft.engine.process.session import attached, rpc

__all__ = ["Curve", "publish", "withdraw"]

LARGEST_BYTES = 4 << 20
_NAMESPACE = "boards"


def publish(page: str, name: str, board: Any) -> None:
    """Replace the board of that name on that page ("tune", "rl"). ValueError when it is not JSON, or over 4 MiB."""
    try:
        value = json.dumps(_finite(board), allow_nan=False).encode()
    except TypeError as error:
        raise ValueError(f"the board {name!r} of {page!r} is not JSON: {error}") from error
    if len(value) > LARGEST_BYTES:
        raise ValueError(f"the board {name!r} of {page!r} must be at most {LARGEST_BYTES} bytes, but has {len(value)}")
    attached.ensure()
    rpc.request("kv_put", key=f"{page}\0{name}", value=value, namespace=_NAMESPACE)


def withdraw(page: str, name: str) -> None:
    """Remove it. Nothing happens when there is none."""
    attached.ensure()
    rpc.request("kv_del", key=f"{page}\0{name}", namespace=_NAMESPACE)


class Curve:
    """A line of at most `most` points, however many are added: every second one goes when it is full.

    >>> curve = Curve(most=4)
    >>> for x in range(9):
    ...     curve.add(x, 2 * x)
    >>> curve.points
    [[0, 0], [4, 8], [8, 16]]
    """

    def __init__(self, most: int = 200) -> None:
        self.points: list[list[float]] = []
        self._most = most
        self._stride = 1
        self._seen = 0

    def add(self, x: float, y: float) -> None:
        """A point; when there are too many, every second one is dropped."""
        if self._seen % self._stride == 0:
            if len(self.points) >= self._most:
                self.points = self.points[::2]
                self._stride *= 2
            if self._seen % self._stride == 0:
                self.points.append([x, y])
        self._seen += 1


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return value
