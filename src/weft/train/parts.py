"""One checkpoint of what all ranks have saved: their files beside each other, whoever reads them later.

A file that only one rank has lies where that rank had it, so that what PyTorch's distributed checkpoints write together
is together. Of a file that several have, rank 0's has the place; others' that differ from it lie in `rank_00001/` and
so on, and those that are the same are kept once.
"""

from __future__ import annotations

import filecmp
import json
import os
import pickle
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weft.library.checkpoint import STATE_FILE, Checkpoint
from weft.library.storage import LocalStorage, Storage
from weft.train.worker import Report

__all__ = ["add_parts", "states_of_ranks"]

RANKS = "ranks.json"
"""Whose parts are in a checkpoint, if others' than rank 0's are."""


def add_parts(storage: Storage, checkpoint: str, parts: Mapping[int, Report]) -> None:
    """To a checkpoint that has rank 0's files already."""
    if not parts:
        return
    for rank, part in sorted(parts.items()):
        if part.packed is not None:
            _add_packed(storage, checkpoint, rank, part.packed)
        else:
            assert isinstance(storage, LocalStorage) and part.checkpoint is not None
            _add_folder(Path(storage.path(checkpoint)), rank, Path(part.checkpoint))
    known = json.loads(storage.read(f"{checkpoint}/{RANKS}") or b"[0]")
    storage.write(f"{checkpoint}/{RANKS}", json.dumps(sorted({*known, *parts})).encode())


def _add_packed(storage: Storage, checkpoint: str, rank: int, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        there = storage.read(f"{checkpoint}/{name}")
        if there is None:
            storage.write(f"{checkpoint}/{name}", data)
        elif there != data:
            storage.write(f"{checkpoint}/{_folder_of(rank)}/{name}", data)


def _add_folder(target: Path, rank: int, folder: Path) -> None:
    """By renames: the folder is on the same file system."""
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        name = path.relative_to(folder)
        place = target / name
        if place.exists():
            if filecmp.cmp(path, place, shallow=False):
                continue
            place = target / _folder_of(rank) / name
        place.parent.mkdir(parents=True, exist_ok=True)
        os.replace(path, place)
    shutil.rmtree(folder, ignore_errors=True)


def states_of_ranks(checkpoint: Checkpoint) -> list[Any]:
    """The dictionaries that the ranks have saved in a checkpoint, in their order; as many as there were ranks that did.

    >>> from weft import train
    >>> import numpy as np
    >>> def loop():
    ...     context = train.get_context()
    ...     train.report({}, checkpoint={"part": np.arange(4)[context.share(4)].tolist()})
    >>> train.states_of_ranks(train.Trainer(loop, workers=2).fit().checkpoint)
    [{'part': [0, 1]}, {'part': [2, 3]}]
    """
    with checkpoint.as_directory() as folder:
        known = Path(folder, RANKS)
        ranks: list[int] = json.loads(known.read_bytes()) if known.exists() else [0]
        found = []
        for rank in ranks:
            own = Path(folder, _folder_of(rank), STATE_FILE)
            found.append(pickle.loads((own if own.exists() else Path(folder, STATE_FILE)).read_bytes()))
        return found


def _folder_of(rank: int) -> str:
    return f"rank_{rank:05d}"
