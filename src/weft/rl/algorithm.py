"""What all algorithms have in common: construction, one iteration a `train()`, checkpoints, evaluation, the policy.

An algorithm's file says how its model, its behaviour and its learner are built (`build`) and what one iteration does
(`iterate`). Everything that the learner holds is one tree in `self.learner`; `self.acting_params()` are the arrays of
it that workers act with.
"""

from __future__ import annotations

import abc
import contextlib
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from weft.library.keywords import answers_attributes, answers_keywords
from weft.library.progress import ProgressLine, said_meanwhile
from weft.library.settings import SettingError
from weft.library.tensorboard import EventLog
from weft.rl import environments
from weft.rl.behaviours import Behaviour
from weft.rl.board import RunBoard
from weft.rl.checkpoint import Checkpoint, CheckpointError, arrays_to_tree, tree_to_arrays
from weft.rl.config import AlgorithmConfig, settings_of
from weft.rl.evaluation import EvaluationWorkers
from weft.rl.interrupts import interrupts_held
from weft.rl.metrics import Metrics, summary
from weft.rl.multi_agent import common_spaces, is_multi_agent
from weft.rl.networks import WeightLayout
from weft.rl.offline import EpisodeWriter
from weft.rl.policy import Policy
from weft.rl.policy_file import PolicyFileError, metadata_of
from weft.rl.rollout import Blueprint, Fragment
from weft.rl.spaces import ActionDecoder, ObservationEncoder, SpaceMismatch
from weft.rl.video import FRAMES_PER_SECOND, Player, write_video
from weft.rl.workers import RolloutWorkers

if TYPE_CHECKING:
    from typing_extensions import Self

ConfigT = TypeVar("ConfigT", bound=AlgorithmConfig)


@answers_attributes(
    action_space="it is .decoder.space",
    compute_action="write predict(observation)[0]",
    compute_actions="write predict(observations)[0]",
    compute_single_action="write predict(observation)[0]",
    device="it is JAX's default; .config.devices says how many of them learn",
    export_onnx="write .policy.export_onnx(path)",
    fit="write learn(steps), or train() for one iteration",
    get_env="it is .env",
    get_parameters="write weights(), or .acting_params() by name",
    get_policy="it is .policy",
    get_vec_normalize_env="the filter of normalize_observations is within the policy",
    get_weights="it is weights()",
    load_replay_buffer="a checkpoint holds the memory: PPO.from_checkpoint(folder)",
    logger="train() returns its metrics, and PPO(env, tensorboard=folder) writes them",
    n_envs="it is .config.envs_per_worker, of each worker",
    num_timesteps="it is .metrics.timesteps",
    observation_space="it is .encoder.space",
    save_replay_buffer="save(folder) writes the memory, too",
    set_env="make another: PPO.from_checkpoint(folder, env=...)",
    set_random_seed="write PPO(env, seed=1)",
    training_iteration="it is .metrics.iteration",
)
class Algorithm(abc.ABC, Generic[ConfigT]):
    """A reinforcement-learning algorithm at work on an environment."""

    name: ClassVar[str]
    config_class: ClassVar[type[AlgorithmConfig]]

    def __init__(
        self,
        config: ConfigT | Mapping[str, Any] | str | Callable[..., Any] | None = None,
        env: Any = None,
        **settings: Any,
    ) -> None:
        """From a config, a dictionary of settings, or settings by name. Instead of a config the environment may stand
        first, or the name of one of Stable-Baselines3's policies, after which the environment comes."""
        given, settings = settings_of(self.config_class, config, env, settings)
        self.config: ConfigT = self.config_class.of(given, settings)  # type: ignore[assignment]
        self.seed = secrets.randbits(31) if self.config.seed is None else self.config.seed
        self.rng = np.random.default_rng([self.seed, 2**20])
        self.env = environments.resolve(self.config.env)
        self.encoder, self.decoder = self.spaces()
        self.metrics = Metrics(self.config.metrics_window)
        self._board = RunBoard(self.name, self.config.env)
        self._events = EventLog(self.config.tensorboard) if self.config.tensorboard is not None else None
        self.learner: Any = None
        self.behaviour: Behaviour
        self.version = 0
        self._is_stopped = False
        self._predicting: tuple[tuple[int, int], Policy] | None = None
        self.build()
        self.layout = WeightLayout(self.acting_params())
        self.workers = self.start_workers()
        self._evaluation: EvaluationWorkers | None = None
        if self.config.evaluation_workers:
            self._evaluation = EvaluationWorkers(self.blueprint(), self.config.evaluation_workers)

    def __repr__(self) -> str:
        if self._is_stopped:
            return f"{self.name}({self.config.env}, stopped)"
        done = self.metrics
        return f"{self.name}({self.config.env}, {done.iteration} iterations, {done.timesteps:,} steps)"

    # ---- what an algorithm says of itself ----

    @abc.abstractmethod
    def build(self) -> None:
        """Set `self.behaviour` and `self.learner`."""

    @abc.abstractmethod
    def acting_params(self) -> Mapping[str, Any]:
        """The parameters that workers act with."""

    @abc.abstractmethod
    def iterate(self) -> Mapping[str, Any]:
        """One iteration of training; what the learner has to say of it."""

    def extra_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What else a resumed run needs: plain values, and arrays."""
        return {}, {}

    def restore_extra(self, plain: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take over what `extra_state` gave."""

    def start_workers(self) -> RolloutWorkers:
        """The actors that play; an algorithm with actors of its own overrides it."""
        config = self.config
        return RolloutWorkers(self.blueprint(), config.workers, config.cpus_per_worker, config.on_environment_error)

    # ---- what users call ----

    def train(self) -> dict[str, Any]:
        """One iteration. The result's names are listed at `weft.rl.metrics.Metrics`. The first one compiles, and a line
        at a terminal or in a notebook says so."""
        self._check_running("train")
        self.metrics.begin()
        with said_meanwhile(self.name, "compiling the first update…", is_shown=not self.metrics.iteration):
            said = self.iterate()
        learner = {name: float(np.asarray(value)) for name, value in said.items()}
        result = self.metrics.result(learner, self.workers.restarted, self.workers.environments_restarted)
        evaluated = self._evaluated()
        if evaluated is not None:
            result["evaluation"] = evaluated
        self._board.add(result)
        if self._events is not None:
            self._events.add(result)
        return result

    @answers_keywords(
        log_interval="write callback=print, which gets each result",
        reset_num_timesteps="steps are counted on; total_timesteps are those that are added",
        tb_log_name="write PPO(env, tensorboard=folder)",
        timesteps="write total_timesteps=",
    )
    def learn(
        self, total_timesteps: int, callback: Callable[[dict[str, Any]], Any] | None = None, progress_bar: bool = False
    ) -> Self:
        """Train for so many steps more, at least. `callback` gets each result; if it returns False, training ends.

        With `progress_bar` a line at a terminal or in a notebook says how far training is.
        """
        if not isinstance(total_timesteps, int | float | np.number) or not 0 < total_timesteps < np.inf:
            raise SettingError(f"{self.name}: learn() takes a number of steps above 0, but got {total_timesteps!r}")
        if callback is not None and not callable(callback):
            raise SettingError(f"{self.name}: a callback is one function of each result, but got {callback!r}")
        until = self.metrics.timesteps + total_timesteps
        line = ProgressLine(self.name, is_shown=progress_bar)
        try:
            while self.metrics.timesteps < until:
                result = self.train()
                if not result["timesteps_this_iter"]:
                    raise SettingError(
                        f"{self.name}: learn() counts steps of environments, and there are none; call train() in a loop"
                    )
                done = min(1.0, 1 - (until - self.metrics.timesteps) / total_timesteps)
                line.tell(f"{done:4.0%} of {total_timesteps:,} steps, mean reward {result['episode_reward_mean']:.4g}")
                if callback is not None and callback(result) is False:
                    break
        finally:
            line.close()
        return self

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[Any, None]:
        """(action, None) for an observation, or several at once, with the weights of now; see `Policy.predict`."""
        if self._predicting is None or self._predicting[0] != (self.version, self.metrics.iteration):
            self._predicting = (self.version, self.metrics.iteration), self.policy
        return self._predicting[1].predict(observation, state, episode_start, deterministic)

    def evaluate(self, episodes: int | None = None) -> dict[str, float]:
        """Whole episodes without exploration, in environments of their own; training goes on as if it had not been."""
        self._check_running("evaluate")
        count = self.config.evaluation_episodes if episodes is None else episodes
        return summary(self.workers.evaluate(self.weights(), count, self._evaluation_seed()))

    def record(self, folder: str | os.PathLike[str], episodes: int, explore: bool = True) -> Path:
        """Play whole episodes with the present policy and write them to a folder (`weft.rl.offline`).

        With `explore` actions are drawn as they are in training now.
        """
        self._check_running("record")
        if not isinstance(self.encoder, ObservationEncoder):
            raise SpaceMismatch("episodes of agents whose spaces differ cannot be recorded in one folder")
        exploration = getattr(self, "exploration", lambda: 0.0)() if explore else None
        with EpisodeWriter(folder, self.encoder.space, self.decoder.space) as writer:
            for episode in self.workers.record(self.weights(), episodes, self._evaluation_seed(), exploration):
                writer.add_encoded(episode)
        return Path(folder)

    def record_video(
        self, path: str | os.PathLike[str], episodes: int = 1, fps: int = FRAMES_PER_SECOND
    ) -> list[float]:
        """Write episodes of the present policy as a .gif or a .mp4; their rewards."""
        player = Player(self.policy, self.env, self.config.env_config, "rgb_array", self.seed)
        write_video(path, player.scenes(episodes), fps)
        return player.rewards

    @property
    def policy(self) -> Policy:
        """The policy as it is now."""
        return Policy(self.behaviour, self.encoder, self.decoder, self.layout, self.weights(), self.seed, self.name)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write a checkpoint from which training goes on exactly as it would have gone on here."""
        self._check_running("save")
        plain, arrays = self.extra_state()
        state = {
            "algorithm": self.name,
            "config": {**self.config.to_json(), "seed": self.seed},
            "metrics": self.metrics.state(),
            "rng": self.rng.bit_generator.state,
            "version": self.version,
            "extra": plain,
        }
        learner = {**tree_to_arrays(self.learner), **{f"extra:{name}": array for name, array in arrays.items()}}
        policy = {name: np.asarray(value) for name, value in self.acting_params().items()}
        metadata: dict[str, str] = {}
        with contextlib.suppress(PolicyFileError):  # a network of the user's: the file has its weights alone
            metadata = metadata_of(self.name, self.behaviour, self.encoder, self.decoder, self.seed)
        return Checkpoint(state, policy, learner, self.workers.state(), metadata).write(folder)

    def restore(self, folder: str | os.PathLike[str]) -> None:
        """Go on from a checkpoint of an algorithm like this one."""
        self._check_running("restore")
        self._take(Checkpoint.read(folder))

    @classmethod
    def from_checkpoint(cls, folder: str | os.PathLike[str], **settings: Any) -> Self:
        """The algorithm that a checkpoint was saved from; settings given here replace the saved ones."""
        checkpoint = Checkpoint.read(folder)
        algorithm = cls(_saved_config(checkpoint, cls.name), **settings)
        algorithm._take(checkpoint)
        return algorithm

    @classmethod
    def load(cls, folder: str | os.PathLike[str], **settings: Any) -> Self:
        """`from_checkpoint`, as Stable-Baselines3 calls it."""
        return cls.from_checkpoint(folder, **settings)

    @classmethod
    def load_policy(cls, folder: str | os.PathLike[str], **settings: Any) -> Policy:
        """The policy of a checkpoint of this algorithm: `Policy.from_checkpoint` says what that takes."""
        policy = Policy.from_checkpoint(folder, **settings)
        _check_algorithm(policy.algorithm, cls.name)
        return policy

    def stop(self) -> None:
        """End the workers and close the environments. What was learnt stays: `policy` can still be had."""
        self._is_stopped = True
        self.workers.close()
        if self._evaluation is not None:
            self._evaluation.close()
            self._evaluation = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # ---- what algorithms use ----

    def blueprint(self) -> Blueprint:
        """All that a worker needs to make its environments and to act in them."""
        config = self.config
        return Blueprint(
            env=self.env,
            env_config=config.env_config,
            envs=config.envs_per_worker,
            steps=config.fragment_steps,
            seed=self.seed,
            behaviour=self.behaviour,
            layout=self.layout,
            episode_limit=config.episode_limit,
            reward_scale=config.reward_scale,
            reward_clip=config.reward_clip,
            timeout_s=config.sample_timeout_s,
            check_bounds=config.check_bounds,
            restarts=config.on_environment_error == "restart",
        )

    def weights(self) -> NDArray[np.float32]:
        """The acting parameters as one vector."""
        vector: NDArray[np.float32] = self.layout.pack(self.acting_params())
        return vector

    def sample(self, exploration: float = 0.0, steps: int | None = None) -> list[Fragment]:
        """One fragment of each worker with the present weights, counted in the metrics."""
        with self.metrics.span("sample"):
            fragments = self.workers.sample(self.weights(), self.version, exploration, steps)
        for fragment in fragments:
            self.metrics.count(fragment.steps, fragment.episodes)
        return fragments

    @contextlib.contextmanager
    def learning(self) -> Iterator[None]:
        """Around a step of the learner: its time is counted, and Ctrl-C waits until it has ended."""
        with self.metrics.span("learn"), interrupts_held():
            yield

    def _check_running(self, wanted: str) -> None:
        if self._is_stopped:
            raise RuntimeError(
                f"{self.name} was stopped, so it cannot {wanted}: its workers and environments are closed. Call "
                f"{wanted}() before stop() or the end of the with block; to go on, {self.name}.from_checkpoint(folder)"
            )

    def _evaluated(self) -> dict[str, float] | None:
        """What there is to say of evaluations after an iteration: its own, or the one that ended beside training."""
        interval = self.config.evaluation_interval
        due = bool(interval) and self.metrics.iteration % interval == 0
        if self._evaluation is None:
            return {**self.evaluate(), "training_iteration": self.metrics.iteration} if due else None
        finished = self._evaluation.finished()
        if due and not self._evaluation.is_busy:
            seed, iteration = self._evaluation_seed(), self.metrics.iteration
            self._evaluation.begin(self.weights(), self.config.evaluation_episodes, seed, iteration)
        return None if finished is None else {**summary(finished[1]), "training_iteration": finished[0]}

    def _evaluation_seed(self) -> int:
        return int(np.random.default_rng([self.seed, 2**21, self.metrics.iteration]).integers(2**31))

    def _take(self, checkpoint: Checkpoint) -> None:
        _saved_config(checkpoint, self.name)
        extra = {
            name.removeprefix("extra:"): array
            for name, array in checkpoint.learner.items()
            if name.startswith("extra:")
        }
        self.learner = arrays_to_tree(self.learner, checkpoint.learner)
        self.metrics.restore(checkpoint.state["metrics"])
        self.rng.bit_generator.state = checkpoint.state["rng"]
        self.version = checkpoint.state["version"]
        self.restore_extra(checkpoint.state["extra"], extra)
        self.workers.restore(checkpoint.workers)

    def spaces(self) -> tuple[ObservationEncoder, ActionDecoder]:
        """What is seen and done in the environment."""
        probe = environments.make(self.env, self.config.env_config)
        try:
            if is_multi_agent(probe):
                observation_space, action_space = common_spaces(probe)
            elif isinstance(probe, VectorEnv):
                observation_space, action_space = probe.single_observation_space, probe.single_action_space
            else:
                observation_space, action_space = probe.observation_space, probe.action_space
            decoder = ActionDecoder(action_space)
            return ObservationEncoder(observation_space, decoder), decoder
        finally:
            probe.close()


def stack(fragments: list[Fragment]) -> dict[str, NDArray[Any]]:
    """The fragments of several workers side by side: arrays [steps, all environments, ...]."""
    if len(fragments) == 1:
        return fragments[0].arrays
    return {name: np.concatenate([part.arrays[name] for part in fragments], axis=1) for name in fragments[0].arrays}


def _saved_config(checkpoint: Checkpoint, name: str) -> dict[str, Any]:
    _check_algorithm(checkpoint.state["algorithm"], name)
    return dict(checkpoint.state["config"])


def _check_algorithm(saved: str, name: str) -> None:
    if saved != name:
        raise CheckpointError(f"the checkpoint is of {saved}, not of {name}")
