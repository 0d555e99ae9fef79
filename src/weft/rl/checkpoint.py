"""Checkpoints: a folder of safetensors for arrays and one JSON file for the rest. Nothing in it is executable.

    policy.safetensors    the weights that act, by name, and what acting with them takes (`policy_file.py`)
    learner.safetensors   everything the learner holds, by its path in the learner's tree
    workers.safetensors   each running episode's seed and actions
    state.json            format, algorithm, config, counters, generators

The folder is written beside its place and renamed, so that a reader sees all of it or nothing, and one that cannot be
written (a full disk) leaves the one before as it was.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

FORMAT = 1
STATE = "state.json"


class CheckpointError(ValueError):
    """The folder is no checkpoint, or not one of this algorithm."""


@dataclasses.dataclass
class Checkpoint:
    """What is saved of an algorithm."""

    state: dict[str, Any]
    policy: dict[str, NDArray[Any]]
    learner: dict[str, NDArray[Any]]
    workers: list[dict[str, Any]]
    policy_metadata: dict[str, str] = dataclasses.field(default_factory=dict)

    def write(self, folder: str | os.PathLike[str]) -> Path:
        """Write it to a folder; a checkpoint that is there is replaced, anything else is not."""
        target = Path(folder).absolute()
        if target.exists() and not _may_be_replaced(target):
            raise CheckpointError(f"{target} is there and is no checkpoint, so it is not replaced; name a new folder")
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            self._write_files(beside)
            os.chmod(beside, 0o755)
            _put_in_place(beside, target)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise
        return target

    def _write_files(self, folder: Path) -> None:
        episodes: dict[str, NDArray[Any]] = {}
        generators = []
        for index, worker in enumerate(self.workers):
            for name, array in (worker["environments"] or {}).items():
                episodes[f"{index}.{name}"] = np.asarray(array, order="C")
            generators.append({key: value for key, value in worker.items() if key != "environments"})
        save_file(_contiguous(self.policy), folder / "policy.safetensors", self.policy_metadata or None)
        save_file(_contiguous(self.learner), folder / "learner.safetensors")
        save_file(episodes, folder / "workers.safetensors")
        state = {"format": FORMAT, **self.state, "workers": generators}
        (folder / STATE).write_text(json.dumps(state, indent=1, default=_plain))

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> Checkpoint:
        with _damage_told(folder):
            return cls._read_files(Path(folder))

    @classmethod
    def _read_files(cls, source: Path) -> Checkpoint:
        state = read_state(source)
        workers = state.pop("workers")
        for name, array in load_file(source / "workers.safetensors").items():
            index, _, inner = name.partition(".")
            workers[int(index)].setdefault("environments", {})[inner] = array
        for worker in workers:
            worker.setdefault("environments", None)
        return cls(state, load_file(source / "policy.safetensors"), load_file(source / "learner.safetensors"), workers)


def read_state(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """What a checkpoint says of itself, without its arrays: the replay memory may be large."""
    source = Path(folder)
    if source.is_file():
        raise CheckpointError(
            f"{source} is a file; if it is a policy, weft.rl.load reads it, to act but not to learn on"
        )
    if not source.exists():
        raise CheckpointError(f"there is no checkpoint at {source}")
    if not (source / STATE).exists():
        raise CheckpointError(f"{source} is no checkpoint: it has no {STATE}")
    with _damage_told(folder):
        state: dict[str, Any] = json.loads((source / STATE).read_text())
        if state.get("format") != FORMAT:
            raise CheckpointError(f"{source} has format {state.get('format')}, but this version reads {FORMAT}")
        return state


@contextlib.contextmanager
def _damage_told(folder: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except CheckpointError:
        raise
    except (SafetensorError, OSError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"{Path(folder)} cannot be read, and is damaged or not whole: {type(error).__name__}: {error}"
        ) from error


def _put_in_place(made: Path, target: Path) -> None:
    """Rename a folder to its place. What is there is deleted when the new one has taken it, and not before."""
    if not target.exists():
        os.rename(made, target)
        return
    before = made.with_name(f"{made.name}-before")
    os.rename(target, before)
    try:
        os.rename(made, target)
    except BaseException:
        os.rename(before, target)
        raise
    shutil.rmtree(before)


def _may_be_replaced(folder: Path) -> bool:
    """Whether it is a checkpoint, or empty: nobody's work shall be lost to a folder's name."""
    return folder.is_dir() and ((folder / STATE).exists() or not any(folder.iterdir()))


def tree_to_arrays(tree: Any) -> dict[str, NDArray[Any]]:
    """The leaves of a JAX tree by their paths."""
    import jax

    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def arrays_to_tree(template: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """A tree like the template, filled from `tree_to_arrays`."""
    import jax

    def fill(path: Any, leaf: Any) -> Any:
        name = jax.tree_util.keystr(path)
        if name not in arrays:
            raise CheckpointError(f"the checkpoint has no {name}: it is of another network or another algorithm")
        if arrays[name].shape != np.shape(leaf):
            raise CheckpointError(
                f"{name} has shape {arrays[name].shape} in the checkpoint, but the algorithm has {np.shape(leaf)}"
            )
        if isinstance(leaf, np.ndarray):
            return arrays[name].astype(leaf.dtype)
        return jax.numpy.asarray(arrays[name], dtype=leaf.dtype)

    return jax.tree_util.tree_map_with_path(fill, template)


def _contiguous(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {name: np.asarray(array, order="C") for name, array in arrays.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, np.integer | np.floating | np.bool_):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
