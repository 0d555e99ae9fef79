"""The control store's load, by shard.

What daemons write (nodes, jobs, actors, functions) is what the real code writes; lineage of refs that escape is the
model's. A shard's server works `control_write_s` for each row.
"""

from __future__ import annotations

from weft.testing.simulate.clock import Clock

NODES_A_SHARD = 4
"""Shards grow with the cluster, so that each has the same load."""


class ControlLoad:
    """Rows written, by shard."""

    def __init__(self, clock: Clock, nodes: int, write_s: float) -> None:
        self._clock = clock
        self._write_s = write_s
        self.rows = [0] * max(1, nodes // NODES_A_SHARD)
        self.tables: dict[str, int] = {}

    def write(self, table: str, key: int, rows: int) -> None:
        """Rows of one batch: consecutive keys go to different shards."""
        self.tables[table] = self.tables.get(table, 0) + rows
        shards = len(self.rows)
        each, rest = divmod(rows, shards)
        if each:
            for shard in range(shards):
                self.rows[shard] += each
        start = (key * 0x9E3779B97F4A7C15 >> 17) % shards
        for offset in range(rest):
            self.rows[(start + offset) % shards] += 1

    def summary(self, elapsed_s: float) -> dict[str, float]:
        seconds = max(elapsed_s, 1e-9)
        busiest = max(self.rows)
        return {
            "shards": len(self.rows),
            "rows": sum(self.rows),
            "rows_per_shard_per_s": sum(self.rows) / len(self.rows) / seconds,
            "rows_busiest_shard_per_s": busiest / seconds,
            "busiest_shard_busy": busiest * self._write_s / seconds,
        }
