"""Which checkpoints of a trial may go. Pure: it is told what was saved and says what to delete."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from weft.library.lookup import value_at
from weft.tune.config import CheckpointConfig
from weft.tune.trial import SavedCheckpoint, Trial

__all__ = ["CheckpointKeeper"]


class CheckpointKeeper:
    def __init__(self, config: CheckpointConfig) -> None:
        self._config = config
        self._kept: dict[str, list[tuple[float, int, str]]] = {}
        """trial -> (score, order, path), worst first"""
        self._order = 0

    def saved(
        self, trial: Trial, checkpoint: SavedCheckpoint, result: Mapping[str, Any], in_use: Iterable[Trial]
    ) -> list[str]:
        """The paths that are not needed any more. `in_use`: trials that may go on from a checkpoint."""
        limit = self._config.num_to_keep
        if limit is None:
            return []
        kept = self._kept.setdefault(trial.trial_id, [])
        self._order += 1
        kept.append((self._score(result), self._order, checkpoint.path))
        kept.sort()
        if len(kept) <= limit:
            return []
        needed = {other.checkpoint.path for other in in_use if other.checkpoint is not None} | {checkpoint.path}
        surplus = [entry for entry in kept if entry[2] not in needed][: len(kept) - limit]
        self._kept[trial.trial_id] = [entry for entry in kept if entry not in surplus]
        return [path for _, _, path in surplus]

    def _score(self, result: Mapping[str, Any]) -> float:
        attribute = self._config.checkpoint_score_attribute
        value = value_at(result, attribute)
        if not isinstance(value, int | float) or math.isnan(value):
            return 0.0 if attribute is None else -math.inf
        return float(value) if self._config.checkpoint_score_order == "max" else -float(value)
