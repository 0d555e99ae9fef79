"""From which size on frames are deferred. Below it an object is one of pandas, and nothing of Weft is near it.

Files are read in parts from fewer bytes on: parsing costs more than any call later. A frame that is not large enough
is then put together at once.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

LEAST_CELLS = 128_000_000 // max(2, os.cpu_count() or 1)
"""Two cores gain nothing for plain calls on fewer: a task costs more than the work."""
LEAST_TEXT_BYTES = 50_000_000
LEAST_COLUMNAR_BYTES = 6_000_000


@dataclass
class Limits:
    rows: int | None = None
    """What the user chose: rows alone."""

    @property
    def text_bytes(self) -> int:
        return LEAST_TEXT_BYTES if self.rows is None else self.rows * 8

    @property
    def columnar_bytes(self) -> int:
        return LEAST_COLUMNAR_BYTES if self.rows is None else self.rows

    def are_passed_by(self, rows: int, columns: int) -> bool:
        if self.rows is not None:
            return rows >= max(self.rows, 1)
        return rows * columns > LEAST_CELLS


limits = Limits(int(os.environ["WEFT_PANDAS_ROWS"]) if "WEFT_PANDAS_ROWS" in os.environ else None)


def set_rows(rows: int | None) -> None:
    """Defer frames from so many rows on; None: by their cells, as it was at first."""
    limits.rows = rows
