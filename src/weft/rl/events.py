"""Results as TensorBoard event files: `tensorboard --logdir FOLDER` shows them."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class EventLog:
    """One event file of one run; every result is a line of scalars at its `timesteps_total`."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        self._path = Path(folder) / f"events.out.tfevents.{int(time.time()):010d}.{platform.node()}.{os.getpid()}"

    def add(self, result: Mapping[str, Any]) -> None:
        from weft.tune.loggers.tensorboard import encode_events

        is_new = not self._path.exists()
        with self._path.open("ab") as file:
            file.write(encode_events([{**result, "timestamp": time.time()}], is_new))
