"""What a trainer's rank 0 has reported, kept in the storage line by line, so that a run can be resumed.

HIST-1  Reports after the last checkpoint are dropped when the loop starts anew: it will make them again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from weft.library.storage import Storage

__all__ = ["LOG", "History"]

LOG = "results.jsonl"


class History:
    def __init__(self, storage: Storage, keep_checkpoints: int | None) -> None:
        self._storage, self._keep = storage, keep_checkpoints
        self.metrics: list[dict[str, Any]] = []
        self.checkpoints: list[tuple[int, str]] = []
        """(how many reports there were, name), oldest first; those that are still there."""
        self.checkpoints_made = 0

    @property
    def checkpoint(self) -> str | None:
        """The name of the newest one."""
        return self.checkpoints[-1][1] if self.checkpoints else None

    def load(self) -> None:
        """What a run before this one left; a torn last line is its end."""
        for line in (self._storage.read_log(LOG) or b"").splitlines(keepends=True):
            if not line.endswith(b"\n"):
                break
            entry = json.loads(line)
            if "rewound" in entry:
                del self.metrics[entry["rewound"] :]
            else:
                self._add(entry["metrics"], entry["checkpoint"])
        self.rewind()

    def add(self, metrics: Mapping[str, Any], checkpoint: str | None) -> None:
        """Its checkpoint lies in the storage already."""
        self._write({"metrics": dict(metrics), "checkpoint": checkpoint})
        self._add(dict(metrics), checkpoint)
        while self._keep is not None and len(self.checkpoints) > self._keep:
            self._storage.delete_folder(self.checkpoints.pop(0)[1])

    def begin_with(self, checkpoint: str) -> None:
        """A checkpoint from elsewhere, before the first report."""
        self.checkpoints.append((0, checkpoint))

    def delete(self) -> None:
        """Forget all of it, here and in the storage."""
        for _, checkpoint in self.checkpoints:
            self._storage.delete_folder(checkpoint)
        self._storage.cut_log(LOG, 0)
        self.metrics, self.checkpoints, self.checkpoints_made = [], [], 0

    def rewind(self) -> None:
        """Drop what was reported after the last checkpoint."""
        kept = self.checkpoints[-1][0] if self.checkpoints else 0
        if kept < len(self.metrics):
            self._write({"rewound": kept})
            del self.metrics[kept:]

    def _add(self, metrics: dict[str, Any], checkpoint: str | None) -> None:
        self.metrics.append(metrics)
        if checkpoint is not None:
            self.checkpoints.append((len(self.metrics), checkpoint))
            self.checkpoints_made = max(self.checkpoints_made, int(checkpoint.rpartition("_")[2]) + 1)

    def _write(self, entry: dict[str, Any]) -> None:
        self._storage.append(LOG, json.dumps(entry, default=str).encode() + b"\n")
