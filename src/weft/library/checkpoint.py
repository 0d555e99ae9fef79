"""A checkpoint: files that a trial can go on from.

>>> checkpoint = Checkpoint.from_dict({"weights": [0.5, 1.5], "step": 3})
>>> checkpoint.to_dict()["step"]
3
>>> with checkpoint.as_directory() as folder:
...     Checkpoint.from_directory(folder).to_dict()["weights"]
[0.5, 1.5]
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from weft import cloudpickle
from weft.library.storage import Storage, open_storage

__all__ = ["Checkpoint"]

STATE_FILE = "state.pkl"


class Checkpoint:
    """Either a folder somewhere, or a dictionary that is not written yet.

    >>> Checkpoint.from_dict({"step": 3}).to_dict()
    {'step': 3}
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        data: Any = None,
        storage: Storage | None = None,
        name: str = "",
    ) -> None:
        self._data = data
        self._name = name
        self._storage = storage
        if path is not None:
            self._storage = open_storage(path)

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str]) -> Checkpoint:
        """The files in a folder."""
        return cls(path)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Checkpoint:
        """Values by name, pickled."""
        return cls(data=data)

    @property
    def path(self) -> str:
        """Where it lies; raises ValueError for one that is not written yet."""
        if self._storage is None:
            raise ValueError("a checkpoint from a dictionary has no path until it was reported")
        return f"{self._storage.root}/{self._name}" if self._name else self._storage.root

    @contextlib.contextmanager
    def as_directory(self) -> Iterator[str]:
        """A local folder with its files, to read."""
        if self._storage is None:
            import tempfile

            with tempfile.TemporaryDirectory(prefix="weft-tune-") as folder:
                self.write_to(folder)
                yield folder
        else:
            with self._storage.folder(self._name) as path:
                yield str(path)

    def to_directory(self, path: str | os.PathLike[str]) -> str:
        """Copy the files to a folder."""
        with self.as_directory() as source:
            shutil.copytree(source, path, dirs_exist_ok=True)
        return os.fspath(path)

    def to_dict(self) -> Any:
        """What `from_dict` was given, or what a `save_checkpoint` returned."""
        if self._storage is None:
            return self._data
        with self.as_directory() as folder:
            state = Path(folder, STATE_FILE)
            if not state.exists():
                raise ValueError(f"checkpoint {self.path} holds files, not a dictionary: use as_directory()")
            return pickle.loads(state.read_bytes())

    def write_to(self, folder: str) -> None:
        """Write its files into an empty folder."""
        if self._storage is None:
            Path(folder, STATE_FILE).write_bytes(cloudpickle.dumps(self._data))
        else:
            self.to_directory(folder)

    def __repr__(self) -> str:
        return f"Checkpoint({self.path})" if self._storage is not None else "Checkpoint(from a dictionary)"
