"""The class API: a model that is set up, stepped, saved and loaded.

>>> class Counter(Trainable):
...     def setup(self, config):
...         self.total, self.by = 0, config["by"]
...     def step(self):
...         self.total += self.by
...         return {"total": self.total}
...     def save_checkpoint(self, checkpoint_dir):
...         return {"total": self.total}
...     def load_checkpoint(self, checkpoint):
...         self.total = checkpoint["total"]

The names of 2018 (`_setup`, `_train`, `_save`, `_restore`, `_stop`) work too. A trainable also works by itself:
`Counter({"by": 2}).train()`.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weft import cloudpickle
from weft.library.checkpoint import STATE_FILE

__all__ = ["Trainable"]

PATH_FILE = ".path"
"""Names the file that an old-style `_save` returned, inside the checkpoint."""


class Trainable:
    """Subclass it. What is not overridden does nothing, but `step`, which must be there.

    >>> class Descent(Trainable):
    ...     def setup(self, config): self.x = config["start"]
    ...     def step(self):
    ...         self.x *= 0.5
    ...         return {"x": self.x}
    >>> trial = Descent({"start": 8.0})
    >>> trial.train()["x"], trial.train()["x"]
    (4.0, 2.0)
    """

    def __init__(self, config: Mapping[str, Any] | None = None, logdir: str | None = None) -> None:
        self.config: dict[str, Any] = dict(config or {})
        self._logdir = logdir
        self.iteration = 0
        self.trial_id = "default"
        self.trial_name = "default"
        self.trial_resources: Any = None
        self._call_first("_setup", "setup", self.config)

    # ---- to override ----

    def setup(self, config: dict[str, Any]) -> None:
        """Make the model."""

    def step(self) -> Mapping[str, Any]:
        """Train for a while; return metrics. `done: True` among them ends the trial."""
        raise NotImplementedError(f"{type(self).__name__} must have a step method")

    def save_checkpoint(self, checkpoint_dir: str) -> Any:
        """Write files into the folder, or return what `load_checkpoint` shall get."""
        raise NotImplementedError(
            f"{type(self).__name__} was asked for a checkpoint, but has no save_checkpoint method"
        )

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Go on from what `save_checkpoint` returned, or from the folder that it wrote."""
        raise NotImplementedError(f"{type(self).__name__} was given a checkpoint, but has no load_checkpoint method")

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Become a new trial without being made anew; True when that was done."""
        return False

    def cleanup(self) -> None:
        """The trial has ended."""

    # ---- to use ----

    @property
    def logdir(self) -> str:
        """A folder of this machine for the trial's own files."""
        if self._logdir is None:
            self._logdir = tempfile.mkdtemp(prefix="weft-trainable-")
        os.makedirs(self._logdir, exist_ok=True)
        return self._logdir

    @property
    def training_iteration(self) -> int:
        """How many steps have been trained."""
        return self.iteration

    def train(self) -> dict[str, Any]:
        """One step; its metrics and `training_iteration`."""
        metrics = self._call_first("_train", "step")
        if not isinstance(metrics, Mapping):
            raise TypeError(f"step of {type(self).__name__} must return a dictionary of metrics, but got {metrics!r}")
        self.iteration += 1
        return {"training_iteration": self.iteration, **metrics}

    def save(self, checkpoint_dir: str) -> str:
        """Save into a folder, which is made; returns it."""
        os.makedirs(checkpoint_dir, exist_ok=True)
        made = self._call_first("_save", "save_checkpoint", checkpoint_dir)
        if isinstance(made, str | os.PathLike):
            inside = os.path.relpath(os.path.join(checkpoint_dir, made), checkpoint_dir)
            Path(checkpoint_dir, PATH_FILE).write_text(inside)
        elif made is not None:
            Path(checkpoint_dir, STATE_FILE).write_bytes(cloudpickle.dumps(made))
        return checkpoint_dir

    def restore(self, checkpoint_dir: str) -> None:
        """Go on from what `save` wrote."""
        state, path = Path(checkpoint_dir, STATE_FILE), Path(checkpoint_dir, PATH_FILE)
        saved: Any = checkpoint_dir
        if state.exists():
            saved = pickle.loads(state.read_bytes())
        elif path.exists():
            saved = os.path.normpath(os.path.join(checkpoint_dir, path.read_text()))
        self._call_first("_restore", "load_checkpoint", saved)

    def stop(self) -> None:
        """Called by the engine at the end: runs `cleanup`."""
        self._call_first("_stop", "cleanup")

    @property
    def can_save(self) -> bool:
        """Whether the class says how to save."""
        return hasattr(self, "_save") or type(self).save_checkpoint is not Trainable.save_checkpoint

    def _call_first(self, old_name: str, name: str, *args: Any) -> Any:
        """The method of 2018 if the class has one, else that of today."""
        old = getattr(self, old_name, None)
        return old(*args) if old is not None else getattr(self, name)(*args)
