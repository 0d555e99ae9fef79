"""Many environments stepped together, whatever kind they are and however they reset themselves.

`EnvironmentList` steps single environments in turn; `vector_stepping` drives one Gymnasium vector environment in any of
its three autoreset modes. Both answer a step with a `Step` of the same meaning:

STEP-1  `observations` are what to act on next; after an episode's end they begin the next episode, except that a
        vector environment in NEXT_STEP mode needs one more step for it, which is marked as not `valid`.
STEP-2  `finals` holds the last observation of each episode that ended in this step, and no other.
STEP-3  What is not as the spaces say raises EnvironmentFailed, which names the environment, the episode's step and the
        field.
STEP-4  Where environments may be restarted, a single one that raises is made anew: its step is not `valid`, it is in
        `lost`, and its episode counts for nothing. One that fails MOST_FAILURES times in a row, each time within
        STEADY_STEPS of the last and before an episode's end, raises EnvironmentFailed. So does one that answers with
        what cannot be learnt from: a reward that is no finite number, an observation that is not of the space.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np
from gymnasium.vector import VectorEnv
from gymnasium.wrappers import OrderEnforcing, TimeLimit
from numpy.typing import NDArray

from weft.rl.spaces import ActionDecoder, ObservationEncoder, SpaceMismatch

SEED_BOUND = 2**31 - 1
ACTION_TAKEN = "action_taken"  # in the info of a step: what was done instead of what was chosen
STEP_ANSWER = ("observation", "reward", "terminated", "truncated", "info")
RESET_ANSWER = ("observation", "info")
RESEED_STEPS = 4096  # seeding takes longer than many steps of a small environment
MOST_HISTORY = 32 * RESEED_STEPS  # steps since a seed after which an environment's state is no longer kept
MOST_FAILURES = 5
STEADY_STEPS = 100
UNKEPT = -1  # in the place of a seed


class EnvironmentFailed(RuntimeError):
    """An environment raised, hung, or gave back what its spaces rule out."""


class Episode(NamedTuple):
    """A finished episode."""

    reward: float
    length: int
    agent: str = ""


@dataclasses.dataclass(slots=True)
class Step:
    """What one step of all environments gave."""

    observations: NDArray[Any]
    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    valid: NDArray[np.bool_]
    finals: dict[int, NDArray[Any]]
    all_valid: bool = False  # True spares the reader a look at `valid`
    taken: NDArray[Any] | None = None  # what was done, where that is not what was chosen
    lost: tuple[int, ...] = ()  # environments that raised and were made anew


class Environments(Protocol):
    """What a worker steps."""

    count: int
    encoder: ObservationEncoder
    decoder: ActionDecoder
    episodes: list[Episode]  # those that have ended; whoever reads them empties the list
    failures: list[str]  # why environments were made anew; whoever reads them empties the list

    def reset(self) -> NDArray[Any]: ...
    def step(self, chosen: NDArray[Any]) -> Step: ...
    def where(self) -> str: ...
    def state(self) -> dict[str, NDArray[Any]] | None: ...
    def restore(self, saved: dict[str, NDArray[Any]]) -> NDArray[Any]: ...
    def close(self) -> None: ...


def open_environments(
    make: Callable[[], Any],
    count: int,
    rng: np.random.Generator,
    label: str,
    restarts: bool = False,
    check_bounds: bool = False,
) -> Environments:
    """The environments of a worker. A maker of vector environments is called once and says itself how many they are.

    With `restarts` a single environment that raises is made anew; one in a vector, or of several agents, still raises.
    `check_bounds`: an observation far outside its space's bounds counts as raised, too.
    """
    try:
        first = make()
    except Exception as error:
        raise EnvironmentFailed(f"{label} cannot be made: {type(error).__name__}: {error}") from error
    if isinstance(first, VectorEnv):
        from weft.rl.vector_stepping import VectorEnvironments

        return VectorEnvironments(first, rng, label)
    copies = [first, *(make() for _ in range(count - 1))]
    if hasattr(first, "possible_agents"):
        from weft.rl.multi_agent import AgentColumns
        from weft.rl.turns import TurnColumns, is_turn_based

        return TurnColumns(copies, rng, label) if is_turn_based(first) else AgentColumns(copies, rng, label)
    return EnvironmentList(copies, rng, label, make if restarts else None, check_bounds)


class EnvironmentList:
    """Single environments, stepped one after the other.

    An environment is seeded when it begins, and again at the first episode's end after RESEED_STEPS. So its state is
    its last seed and the actions since: that is what `state` holds, and `restore` plays it again. Of an episode that
    has run for MOST_HISTORY steps nothing is kept: after a restore a new one begins.
    """

    def __init__(
        self,
        envs: Sequence[Any],
        rng: np.random.Generator,
        label: str,
        make_anew: Callable[[], Any] | None = None,
        check_bounds: bool = False,
    ) -> None:
        self._envs = list(envs)
        self._make_anew = make_anew
        self._check_bounds = check_bounds
        self.failures: list[str] = []
        self._failed_at = [-STEADY_STEPS] * len(self._envs)  # rows of the history
        self._failed_in_a_row = [0] * len(self._envs)
        self._unkept: set[int] = set()  # environments whose episodes are too long to be played again
        self._rng = rng
        self._label = label
        self.decoder = ActionDecoder(envs[0].action_space)
        self.encoder = ObservationEncoder(envs[0].observation_space, self.decoder)
        self.count = len(self._envs)
        self.episodes: list[Episode] = []
        self._observations = np.zeros((self.count, *self.encoder.shape), self.encoder.dtype)
        self._rewards = np.zeros(self.count)  # of the running episodes
        steps_and_limits = [self._step_and_limit(env) for env in envs]
        self._steps = [step for step, _ in steps_and_limits]
        self._limits = [limit for _, limit in steps_and_limits]
        self._next_cut = 0.0  # no episode reaches its limit before the history has so many rows
        self._history: list[Any] = []  # the actions of all environments, one row per step
        self._seeds = [0] * self.count
        self._seeded_at = [0] * self.count  # rows of the history
        self._began_at = [0] * self.count
        self._doing, self._index = "reset", 0
        self._seen: list[Any] = []  # of the step that is being made
        self._always = np.ones(self.count, np.bool_)
        self._never = np.zeros(self.count, np.bool_)
        # What is played elsewhere may act on its own, and cannot be played again.
        self._is_outside = any(getattr(getattr(env, "unwrapped", env), "is_outside", False) for env in envs)

    def reset(self) -> NDArray[Any]:
        """Begin a new episode everywhere."""
        self._observations = self._observations.copy()  # the last step gave the old ones away
        for index in range(self.count):
            self._begin_or_replace(index, self._new_seed())
        return self._observations.copy()

    def begin(self, index: int, seed: int) -> NDArray[Any]:
        """Begin a new episode in one environment, with this seed."""
        self._observations = self._observations.copy()
        self._begin_episode(index, seed)
        return self._observations.copy()

    def step(self, chosen: NDArray[Any]) -> Step:
        actions = self.decoder.decode(chosen)
        seen: list[Any] = []
        rewards: list[Any] = []
        ended: dict[int, bool] = {}  # whether it terminated
        lost: list[int] = []
        answer = taken = None
        self._doing, self._seen = "step", seen
        pairs = zip(self._steps, actions, strict=True)
        while len(seen) < self.count:
            try:
                for step, action in pairs:
                    answer = None
                    answer = step(action)
                    observation, reward, has_terminated, has_truncated, info = answer
                    if has_terminated or has_truncated:
                        _check_flags(has_terminated, has_truncated)
                        ended[len(seen)] = bool(has_terminated)
                    if self._is_outside and ACTION_TAKEN in info:
                        taken = chosen.copy() if taken is None else taken
                        taken[len(seen)] = self.decoder.encode([info[ACTION_TAKEN]])[0]
                    rewards.append(reward)
                    seen.append(observation)
            except Exception as error:
                self._note_failure(len(seen), misshapen(answer, STEP_ANSWER) or error)
                ended.pop(len(seen), None)
                lost.append(len(seen))
                rewards.append(0.0)
                seen.append(None)
        if len(self._history) + 1 >= self._next_cut:
            self._cut_off(ended)
        observations, earned = self._encoded(seen, ended, lost), self._numbers(rewards)
        self._observations = observations
        self._history.append(actions)
        self._rewards += earned
        terminated, truncated, finals = self._never, self._never, {}
        if ended:
            terminated, truncated = self._never.copy(), self._never.copy()
            for index, has_terminated in ended.items():
                terminated[index], truncated[index] = has_terminated, not has_terminated
                finals[index] = observations[index].copy()
                self._end_episode(index)
        if not lost:
            return Step(observations, earned, terminated, truncated, self._always, finals, all_valid=True, taken=taken)
        valid = self._always.copy()
        valid[lost] = False
        for index in lost:
            self._begin_anew(index)
        return Step(observations, earned, terminated, truncated, valid, finals, taken=taken, lost=tuple(lost))

    def _step_and_limit(self, env: Any) -> tuple[Callable[[Any], Any], float]:
        step, limit = _step_and_limit(env)
        return (step if self._make_anew is None else self._vetted(step)), limit

    def _vetted(self, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A step whose answer is looked at at once: a bad one costs its environment and not the whole fragment."""

        def vetted(action: Any) -> Any:
            answer = step(action)
            if misshapen(answer, STEP_ANSWER) is None:
                observation, reward, terminated, truncated, _ = answer
                if not _is_number(reward) or not np.isfinite(np.float32(reward)):
                    raise SpaceMismatch(f"the reward must be a finite number, but got {reward!r}")
                self._encode_vetted(observation, bool(terminated or truncated))
            return answer

        return vetted

    def _encode_vetted(self, observation: Any, is_last: bool = False) -> NDArray[Any]:
        encoded = self.encoder.encode(observation, is_last)
        if self._make_anew is not None and encoded.dtype != np.uint8:
            if not np.isfinite(encoded).all():
                raise SpaceMismatch(f"the observation is not finite: {encoded}")
            if self._check_bounds and not is_last and self.encoder.out_of_bounds(encoded[None]).any():
                raise SpaceMismatch(f"the observation lies outside {self.encoder.space}: {encoded}")
        return encoded

    def _note_failure(self, index: int, error: Exception) -> None:
        """Count that an environment raised; raise where it may not be made anew, or has been too often."""
        if self._make_anew is None:
            self._fail(error)
        cause = error.__cause__ if isinstance(error, EnvironmentFailed) else error
        if not isinstance(cause, Exception) or isinstance(cause, EnvironmentFailed):
            raise error  # it hangs: the watchdog's word is for the whole worker
        error = cause
        row = len(self._history)
        began = max(self._failed_at[index], self._began_at[index])
        is_steady = row - began >= STEADY_STEPS or self._began_at[index] > self._failed_at[index] + 1
        self._failed_in_a_row[index] = 1 if is_steady else self._failed_in_a_row[index] + 1
        self._failed_at[index] = row
        self.failures.append(f"{self.where()} failed: {type(error).__name__}: {error}")
        if self._failed_in_a_row[index] >= MOST_FAILURES:
            self._fail(error)

    def _begin_or_replace(self, index: int, seed: int | None) -> None:
        """A new episode; in another environment, where this one raises in its reset and may be made anew."""
        try:
            self._begin_episode(index, seed)
        except EnvironmentFailed as error:
            if self._make_anew is None:
                raise
            self._note_failure(index, error)
            self._begin_anew(index)

    def _begin_anew(self, index: int) -> None:
        """Another environment in the place of one that raised, and a new episode in it."""
        assert self._make_anew is not None
        with contextlib.suppress(Exception):  # it is broken
            self._envs[index].close()
        self._doing, self._index = "reset", index
        while True:
            try:
                self._envs[index] = self._make_anew()
                self._steps[index], self._limits[index] = self._step_and_limit(self._envs[index])
                self._begin_episode(index, self._new_seed())
                return
            except Exception as error:
                self._note_failure(index, error)

    def _cut_off(self, ended: dict[int, bool]) -> None:
        """Add the episodes that reach their limit with this step, and look when the next could."""
        rows = len(self._history) + 1
        for index, limit in enumerate(self._limits):
            if rows - self._began_at[index] >= limit:
                ended.setdefault(index, False)
        self._let_go()
        longest = min(self._seeded_at) + MOST_HISTORY
        self._next_cut = min(longest, *map(operator.add, self._began_at, self._limits))

    def _let_go(self) -> None:
        """Keep no more actions of episodes that have run for too long, as in tasks that never end."""
        rows = len(self._history)
        for index, row in enumerate(self._seeded_at):
            if rows + 1 - row >= MOST_HISTORY:
                self._unkept.add(index)
                self._seeded_at[index] = rows
        self._forget()

    def _encoded(self, seen: list[Any], ended: dict[int, bool], lost: list[int]) -> NDArray[Any]:
        """What the environments showed, in a new array: at once where it is already as networks take it."""
        if self.encoder.is_identity and not lost:
            try:
                together = np.array(seen)
            except ValueError:  # of different shapes: the loop below says whose is wrong
                pass
            else:
                if together.shape == self._observations.shape and together.dtype == self.encoder.dtype:
                    return together
        encoded = np.empty_like(self._observations)
        for index, observation in enumerate(seen):
            if index in lost:
                encoded[index] = self._observations[index]
                continue
            try:
                encoded[index] = self.encoder.encode(observation, index in ended)
            except Exception as error:
                self._seen = seen[:index]
                self._fail(error)
        return encoded

    def _numbers(self, rewards: list[Any]) -> NDArray[np.float64]:
        """What the environments gave for the step."""
        try:
            earned = np.array(rewards, np.float64)
        except (TypeError, ValueError):
            earned = np.empty(0)
        if earned.shape == (self.count,):
            return earned
        self._seen = list(itertools.takewhile(_is_number, rewards))
        self._fail(SpaceMismatch(f"the reward must be a number, but got {rewards[len(self._seen)]!r}"))

    def where(self) -> str:
        """What is being done, for messages."""
        index = self._index if self._doing == "reset" else min(len(self._seen), self.count - 1)
        step = len(self._history) - self._began_at[index]
        return f"{self._doing} {step} of environment {index} of {self._label}"

    def state(self) -> dict[str, NDArray[Any]] | None:
        """Each environment's last seed and the actions since."""
        if self._is_outside:
            return None
        saved: dict[str, NDArray[Any]] = {"seeds": np.asarray(self._seeds, np.int64)}
        for index, row in enumerate(self._seeded_at):
            if index in self._unkept:
                saved["seeds"][index] = UNKEPT
                continue
            actions = [actions[index] for actions in self._history[row:]]
            saved[f"actions.{index}"] = np.asarray(actions, self.decoder.space.dtype or np.int64)
        return saved

    def restore(self, saved: dict[str, NDArray[Any]]) -> NDArray[Any]:
        """Play the saved actions again; the observations to act on next. Of another number nothing can be played."""
        if len(saved["seeds"]) != self.count:
            return self.reset()
        played = [saved.get(f"actions.{index}", np.zeros(0)) for index in range(self.count)]
        longest = max(len(actions) for actions in played)
        self._history = [[None] * self.count for _ in range(longest)]
        self._next_cut = 0
        for index, actions in enumerate(played):
            first = longest - len(actions)
            seed = int(saved["seeds"][index])
            self._begin_episode(index, self._new_seed() if seed == UNKEPT else seed, first)
            if seed == UNKEPT:
                continue
            listed = actions.tolist() if self.decoder.kind == "discrete" else list(actions)
            for row, action in enumerate(listed, first):
                self._history[row][index] = action
                observation, reward, terminated, truncated, _ = self._envs[index].step(action)
                self._observations[index] = self.encoder.encode(observation)
                self._rewards[index] += float(reward)
                if terminated or truncated:
                    self._begin_episode(index, None, row + 1)
        return self._observations.copy()

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def _new_seed(self) -> int:
        return int(self._rng.integers(SEED_BOUND))

    def _end_episode(self, index: int) -> None:
        rows = len(self._history)
        self.episodes.append(Episode(float(self._rewards[index]), rows - self._began_at[index]))
        if rows - self._seeded_at[index] < RESEED_STEPS and index not in self._unkept:
            self._begin_or_replace(index, None)
        else:
            self._begin_or_replace(index, self._new_seed())
            self._forget()

    def _forget(self) -> None:
        """Drop the part of the history that no environment needs, now and then."""
        unneeded = min(self._seeded_at)
        if unneeded > 4 * RESEED_STEPS:
            del self._history[:unneeded]
            self._seeded_at = [row - unneeded for row in self._seeded_at]
            self._began_at = [row - unneeded for row in self._began_at]
            self._failed_at = [row - unneeded for row in self._failed_at]
            self._next_cut = 0

    def _begin_episode(self, index: int, seed: int | None, row: int | None = None) -> None:
        row = len(self._history) if row is None else row
        if seed is not None:
            self._seeds[index], self._seeded_at[index] = seed, row
            self._unkept.discard(index)
        self._began_at[index] = row
        self._rewards[index] = 0.0
        self._doing, self._index = "reset", index
        answer = None
        try:
            answer = self._envs[index].reset(seed=seed)
            observation, _ = answer
            self._observations[index] = self._encode_vetted(observation)
        except Exception as error:
            self._fail(misshapen(answer, RESET_ANSWER) or error)

    def _fail(self, error: Exception) -> NoReturn:
        if isinstance(error, EnvironmentFailed):
            raise error
        raise EnvironmentFailed(f"{self.where()} failed: {type(error).__name__}: {error}") from error


def _is_number(value: Any) -> bool:
    try:
        return np.array(value, np.float64).shape == ()
    except (TypeError, ValueError):
        return False


def misshapen(answer: Any, fields: tuple[str, ...]) -> SpaceMismatch | None:
    """What to say of an answer that does not have these fields, as that of environments for the Gym of old."""
    is_sequence = isinstance(answer, tuple | list)
    if answer is None or (is_sequence and len(answer) == len(fields)):
        return None
    got = f"{len(answer)} values" if is_sequence else f"a {type(answer).__name__}"
    return SpaceMismatch(
        f"it must return ({', '.join(fields)}), but returned {got}; Gymnasium's API is not that of Gym"
    )


def _check_flags(terminated: Any, truncated: Any) -> None:
    """Anything can be true or false in Python: a text, or what is not a number."""
    for field, flag in (("terminated", terminated), ("truncated", truncated)):
        if flag not in (False, True):
            raise SpaceMismatch(f"{field} must be True or False, but got {flag!r}")


def _step_and_limit(env: Any) -> tuple[Callable[[Any], Any], float]:
    """What steps an environment, and after how many steps an episode must be cut off where that does not do it itself.

    `gymnasium.make` puts two wrappers around an environment, which take a twentieth of the time of a step of CartPole.
    """
    limit = getattr(env, "_max_episode_steps", None)
    if type(env) is not TimeLimit or limit is None:
        return env.step, math.inf
    inner = env.env
    return (inner.env if type(inner) is OrderEnforcing else inner).step, limit
