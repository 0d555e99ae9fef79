"""`ray.tune.integration.ray_train` of Ray 2.60: a training inside of a trial tells the trial."""

from __future__ import annotations

from typing import Any

import weft.tune
from weft.compat.ray.train.data_parallel_trainer import UserCallback


class TuneReportCallback(UserCallback):
    """Each report of rank 0 is a result of the trial; the checkpoint's path goes with it."""

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
        path = {} if checkpoint is None else {"checkpoint_path": checkpoint.path}
        weft.tune.report({**metrics[0], **path})
