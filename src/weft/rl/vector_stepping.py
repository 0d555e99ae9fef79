"""One Gymnasium vector environment, in any of its three autoreset modes. See `weft.rl.stepping`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import iterate
from numpy.typing import NDArray

from weft.rl.spaces import ActionDecoder, ObservationEncoder, SpaceMismatch
from weft.rl.stepping import RESET_ANSWER, SEED_BOUND, STEP_ANSWER, EnvironmentFailed, Episode, Step, misshapen


class VectorEnvironments:
    """One Gymnasium vector environment. Its running episodes cannot be saved: after a restore new ones begin."""

    def __init__(self, env: VectorEnv[Any, Any, Any], rng: np.random.Generator, label: str) -> None:
        self._env = env
        self._rng = rng
        self._label = label
        self._mode = AutoresetMode(env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))
        self.decoder = ActionDecoder(env.single_action_space)
        self.encoder = ObservationEncoder(env.single_observation_space, self.decoder)
        self.count = env.num_envs
        self.episodes: list[Episode] = []
        self.failures: list[str] = []
        self._rewards = np.zeros(self.count)
        self._lengths = np.zeros(self.count, np.int64)
        self._resetting = np.zeros(self.count, np.bool_)
        self._doing = "reset"

    def reset(self) -> NDArray[Any]:
        self._doing = "reset"
        answer = self._guarded(lambda: self._env.reset(seed=int(self._rng.integers(SEED_BOUND))))
        self._rewards[:], self._lengths[:], self._resetting[:] = 0, 0, False
        return self._encode_all(self._fields(answer, RESET_ANSWER)[0])

    def step(self, chosen: NDArray[Any]) -> Step:
        self._doing = "step"
        actions = np.asarray(self.decoder.decode(chosen))
        answer = self._guarded(lambda: self._env.step(actions))
        raw, rewards, terminated, truncated, info = self._fields(answer, STEP_ANSWER)
        valid = ~self._resetting
        rewards = np.where(valid, self._column("reward", rewards, np.float64), 0.0)
        terminated = self._column("terminated", terminated, np.bool_) & valid
        truncated = self._column("truncated", truncated, np.bool_) & valid & ~terminated
        done = terminated | truncated
        observations = self._encode_all(raw, None if self._mode is AutoresetMode.SAME_STEP else done)
        finals = self._finals(done, observations, info)
        self._count_episodes(valid, rewards, done)
        if self._mode is AutoresetMode.NEXT_STEP:
            self._resetting = done.copy()
        elif self._mode is AutoresetMode.DISABLED and done.any():
            observations = self._reset_where(done)
        return Step(observations, rewards, terminated, truncated, valid, finals)

    def where(self) -> str:
        return f"{self._doing} {int(self._lengths.max(initial=0))} of the vector environment of {self._label}"

    def state(self) -> dict[str, NDArray[Any]] | None:
        return None

    def restore(self, saved: dict[str, NDArray[Any]]) -> NDArray[Any]:
        return self.reset()

    def close(self) -> None:
        self._env.close()

    def _finals(self, done: NDArray[np.bool_], observations: NDArray[Any], info: Any) -> dict[int, NDArray[Any]]:
        indices = np.flatnonzero(done).tolist()
        if self._mode is not AutoresetMode.SAME_STEP:
            return {index: observations[index].copy() for index in indices}
        if indices and "final_obs" not in info:
            raise EnvironmentFailed(f"{self.where()} says SAME_STEP, but its info has no 'final_obs'")
        return {index: self.encoder.encode(_final_of(info["final_obs"], index), True) for index in indices}

    def _reset_where(self, done: NDArray[np.bool_]) -> NDArray[Any]:
        answer = self._guarded(lambda: self._env.reset(options={"reset_mask": done}))
        return self._encode_all(self._fields(answer, RESET_ANSWER)[0])

    def _count_episodes(self, valid: NDArray[np.bool_], rewards: NDArray[Any], done: NDArray[np.bool_]) -> None:
        self._rewards += rewards
        self._lengths += valid
        for index in np.flatnonzero(done):
            self.episodes.append(Episode(float(self._rewards[index]), int(self._lengths[index])))
        self._rewards[done], self._lengths[done] = 0, 0

    def _encode_all(self, observations: Any, are_last: NDArray[np.bool_] | None = None) -> NDArray[Any]:
        encoded = np.zeros((self.count, *self.encoder.shape), self.encoder.dtype)

        def fill() -> None:
            shown = list(iterate(self._env.observation_space, observations))
            if len(shown) != self.count:
                raise SpaceMismatch(f"observations must be those of {self.count} environments, but are {len(shown)}")
            for index, observation in enumerate(shown):
                try:
                    encoded[index] = self.encoder.encode(observation, are_last is not None and bool(are_last[index]))
                except SpaceMismatch as error:
                    raise SpaceMismatch(f"{error}, from its environment {index}") from error

        self._guarded(fill)
        return encoded

    def _column(self, field: str, values: Any, dtype: type[np.generic]) -> NDArray[Any]:
        """One value of each environment."""
        column = np.asarray(values)
        if column.shape != (self.count,) or column.dtype.kind not in "buif":
            got = f"{column.dtype} of shape {column.shape}"
            self._fail(SpaceMismatch(f"{field} must be numbers of shape ({self.count},), but got {got}"))
        return column.astype(dtype)

    def _fields(self, answer: Any, fields: tuple[str, ...]) -> Any:
        fault = misshapen(answer, fields)
        if fault is not None:
            self._fail(fault)
        return answer

    def _guarded(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> NoReturn:
        raise EnvironmentFailed(f"{self.where()} failed: {type(error).__name__}: {error}") from error


def _final_of(finals: Any, index: int) -> Any:
    if isinstance(finals, dict):
        return {name: _final_of(part, index) for name, part in finals.items()}
    if isinstance(finals, tuple):
        return tuple(_final_of(part, index) for part in finals)
    return finals[index]
