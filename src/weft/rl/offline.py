"""Episodes in Parquet files: written by an algorithm's workers or by any program, read to learn from.

A row is a step. Observations and actions are stored as networks see them (`ObservationEncoder`, `ActionDecoder`):

    episode int64 | step int32 | observation list | action list | reward float64 | terminated bool | truncated bool |
    final_observation list, null but in an episode's last row

The files of a folder belong together. Their metadata names the spaces, and reading for other spaces is refused.
"""

from __future__ import annotations

import dataclasses
import json
import os
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.rl.replay import NStep
from weft.rl.spaces import ActionDecoder, ObservationEncoder, SpaceMismatch

FORMAT = 1
ROWS_IN_FILE = 100_000
_METADATA = b"weft.rl.episodes"


@dataclasses.dataclass(frozen=True)
class RecordedEpisode:
    """One episode as networks see it: observations [steps + 1, ...], actions [steps, ...], rewards [steps]."""

    observations: NDArray[Any]
    actions: NDArray[Any]
    rewards: NDArray[np.float64]
    terminated: bool  # else it was cut off

    @property
    def reward(self) -> float:
        return float(self.rewards.sum())


class EpisodeWriter:
    """Writes episodes to a folder, beside what is there.

    with EpisodeWriter("episodes", env.observation_space, env.action_space) as writer:
        writer.add(observations, actions, rewards, terminated=True)
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        observation_space: Any,
        action_space: Any,
        rows_in_file: int = ROWS_IN_FILE,
    ) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self.decoder = ActionDecoder(action_space)
        self.encoder = ObservationEncoder(observation_space, self.decoder)
        self._rows_in_file = rows_in_file
        self._waiting: list[RecordedEpisode] = []
        self._rows = 0

    def add(
        self, observations: Sequence[Any], actions: Sequence[Any], rewards: Sequence[float], terminated: bool
    ) -> None:
        """An episode as the environment gave it; there is one observation more than actions and rewards."""
        self.add_encoded(
            RecordedEpisode(
                np.stack([self.encoder.encode(observation) for observation in observations]),
                self.decoder.encode(actions),
                np.asarray(rewards, np.float64),
                terminated,
            )
        )

    def add_encoded(self, episode: RecordedEpisode) -> None:
        steps = len(episode.rewards)
        if len(episode.observations) != steps + 1 or len(episode.actions) != steps or not steps:
            raise ValueError(
                f"an episode has one observation more than actions and rewards, but got {len(episode.observations)}, "
                f"{len(episode.actions)} and {steps}"
            )
        for name, rows in (("rewards", episode.rewards), ("observations", episode.observations)):
            finite = np.isfinite(rows.reshape(len(rows), -1)).all(axis=1)
            if not finite.all():
                raise ValueError(f"{name} must be finite, but that of step {int(np.argmin(finite))} is not")
        self._waiting.append(episode)
        self._rows += steps
        if self._rows >= self._rows_in_file:
            self.flush()

    def flush(self) -> None:
        """Write what waits to a file of its own, which appears whole or not at all."""
        if not self._waiting:
            return
        import pyarrow.parquet

        name = f"episodes-{uuid.uuid4().hex}.parquet"
        beside = self._folder / f".{name}"
        pyarrow.parquet.write_table(_table(self._waiting, _description(self.encoder, self.decoder)), beside)
        os.rename(beside, self._folder / name)
        self._waiting, self._rows = [], 0

    def __enter__(self) -> EpisodeWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()


def read_episodes(
    folder: str | os.PathLike[str], encoder: ObservationEncoder, decoder: ActionDecoder
) -> list[RecordedEpisode]:
    """All episodes of a folder, or of one file, in the order of the files' names."""
    import pyarrow.parquet

    source = Path(folder)
    files = [source] if source.is_file() else sorted(source.glob("*.parquet"))
    if not files:
        raise FileNotFoundError(f"{source} holds no episodes: there is no .parquet file in it")
    wanted = _description(encoder, decoder)
    episodes: list[RecordedEpisode] = []
    for file in files:
        table = pyarrow.parquet.read_table(file)
        found = json.loads((table.schema.metadata or {}).get(_METADATA, b"{}"))
        if found != wanted:
            differing = [name for name in wanted if found.get(name) != wanted[name]]
            raise SpaceMismatch(
                f"{file} was recorded for another environment: its {differing[0]} is {found.get(differing[0])!r}, but "
                f"{wanted[differing[0]]!r} is needed"
            )
        episodes += _episodes(table, encoder, decoder)
    return episodes


def transitions(episodes: Iterable[RecordedEpisode], n_steps: int, gamma: float) -> dict[str, NDArray[Any]]:
    """What replay holds, from whole episodes."""
    parts = [
        {
            "observations": episode.observations[:-1],
            "actions": episode.actions,
            "rewards": episode.rewards.astype(np.float32),
            "terminated": _only_last(len(episode.rewards), episode.terminated),
            "truncated": _only_last(len(episode.rewards), not episode.terminated),
            "valid": np.ones(len(episode.rewards), np.bool_),
            "next_observations": episode.observations[1:],
        }
        for episode in episodes
    ]
    rows = {name: np.concatenate([part[name] for part in parts])[:, None] for name in NStep.FIELDS}
    beyond = {
        name: np.concatenate([array, np.zeros((n_steps - 1, *array.shape[1:]), array.dtype)])
        for name, array in rows.items()
    }
    return NStep(n_steps, gamma).transitions(beyond)


def _only_last(count: int, value: bool) -> NDArray[np.bool_]:
    flags = np.zeros(count, np.bool_)
    flags[-1] = value
    return flags


def _description(encoder: ObservationEncoder, decoder: ActionDecoder) -> dict[str, Any]:
    return {"format": FORMAT, "observation_space": str(encoder.space), "action_space": str(decoder.space)}


def _table(episodes: list[RecordedEpisode], description: dict[str, Any]) -> Any:
    import pyarrow

    first = uuid.uuid4().int >> 66  # so that episodes of several files differ
    lengths = [len(episode.rewards) for episode in episodes]
    ends = [_only_last(length, True) for length in lengths]
    terminated = [_only_last(len(episode.rewards), episode.terminated) for episode in episodes]
    finals: list[Any] = []
    for episode, length in zip(episodes, lengths, strict=True):
        finals += [None] * (length - 1) + [episode.observations[-1].ravel()]
    observations = np.concatenate([episode.observations[:-1] for episode in episodes])
    actions = np.concatenate([episode.actions for episode in episodes])
    columns = {
        "episode": np.repeat(first + np.arange(len(episodes), dtype=np.int64), lengths),
        "step": np.concatenate([np.arange(length, dtype=np.int32) for length in lengths]),
        "observation": _lists(observations),
        "action": _lists(actions),
        "reward": np.concatenate([episode.rewards for episode in episodes]),
        "terminated": np.concatenate(terminated),
        "truncated": np.concatenate(ends) & ~np.concatenate(terminated),
        "final_observation": pyarrow.array(finals, pyarrow.list_(pyarrow.from_numpy_dtype(observations.dtype))),
    }
    return pyarrow.table(columns, metadata={_METADATA: json.dumps(description).encode()})


def _lists(rows: NDArray[Any]) -> Any:
    import pyarrow

    flat = rows.reshape(len(rows), -1)
    return pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(flat.ravel()), flat.shape[1])


def _episodes(table: Any, encoder: ObservationEncoder, decoder: ActionDecoder) -> list[RecordedEpisode]:
    observations = _rows(table["observation"], encoder.shape, encoder.dtype)
    actions = _rows(table["action"], decoder.shape, decoder.dtype)
    rewards, terminated = table["reward"].to_numpy(), table["terminated"].to_numpy()
    ends = np.flatnonzero(terminated | table["truncated"].to_numpy())
    found, start = [], 0
    for end in ends.tolist():
        final = np.asarray(table["final_observation"][end].as_py(), encoder.dtype).reshape(1, *encoder.shape)
        part = slice(start, end + 1)
        found.append(
            RecordedEpisode(
                np.concatenate([observations[part], final]), actions[part], rewards[part], bool(terminated[end])
            )
        )
        start = end + 1
    return found


def _rows(column: Any, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    flat = np.concatenate([chunk.flatten().to_numpy(zero_copy_only=False) for chunk in column.chunks])
    return flat.astype(dtype, copy=False).reshape(-1, *shape)
