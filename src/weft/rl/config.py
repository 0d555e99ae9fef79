"""What every algorithm can be told. An algorithm's own dataclass adds its own fields to these.

>>> from weft.rl import PPOConfig
>>> PPOConfig(env="CartPole-v1", learning_rate=1e-3).learning_rate
0.001
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from weft.library.keywords import answers_attributes
from weft.library.settings import SettingError, check_settings, current_names, setting
from weft.rl.names import UNNAMED, importable_name, named

if TYPE_CHECKING:
    from typing_extensions import Self

# Names under which the classic library's users know our settings.
OLD_NAMES = {
    "num_workers": "workers",
    "num_rollout_workers": "workers",
    "num_envs": "envs_per_worker",
    "num_envs_per_worker": "envs_per_worker",
    "lr": "learning_rate",
    "sgd_stepsize": "learning_rate",
    "stepsize": "learning_rate",
    "horizon": "episode_limit",
    "sample_batch_size": "fragment_steps",
    "rollout_fragment_length": "fragment_steps",
    "clip_rewards": "reward_clip",
    "n_envs": "envs_per_worker",
    "tensorboard_log": "tensorboard",
    "stats_window_size": "metrics_window",
    "evaluation_num_episodes": "evaluation_episodes",
}
_NETWORK = "the network is told by hidden=(64, 64), activation=..., or a network= of your own"
_DEVICE = "learners are JAX's and take the GPU where JAX finds one; JAX_PLATFORMS=cpu keeps them on the CPU"
INSTEAD = {
    "action_noise": "write noise=0.1, with noise_correlation= for noise that lasts",
    "callback": "write learn(steps, callback)",
    "callbacks": "write learn(steps, callback)",
    "create_env_on_driver": "environments are made here where workers=0",
    "device": _DEVICE,
    "ent_coef": "the weight of the entropy is learnt: initial_temperature= and target_entropy= say how",
    "exploration_fraction": "write exploration_timesteps=, the steps over which exploration falls",
    "framework": _DEVICE,
    "gradient_steps": "write updates_per_step=, gradient steps for each step of an environment",
    "log_level": "progress is shown by learn(steps, progress_bar=True)",
    "model": _NETWORK,
    "net_arch": _NETWORK,
    "num_gpus": _DEVICE,
    "num_learners": _DEVICE,
    "policy": "it follows from the spaces; " + _NETWORK,
    "policy_kwargs": _NETWORK,
    "train_batch_size": "a batch is envs_per_worker * fragment_steps, of each worker: write these",
    "tau": "the target network is copied whole, each target_interval gradient steps",
    "train_freq": "write fragment_steps=, steps between gradient steps, and updates_per_step=",
    "use_sde": "exploration that depends on the state is not there",
    "verbose": "progress is shown by learn(steps, progress_bar=True), and train() returns its metrics",
}
"""What to write for settings of other libraries that have no field here."""
_BUILDER = "write PPOConfig(env=..., learning_rate=...), then PPO(config)"


# What Stable-Baselines3 wants to be told, and what follows here from the spaces.
POLICY_NAMES = ("MlpPolicy", "CnnPolicy", "MultiInputPolicy", "MlpLstmPolicy", "CnnLstmPolicy", "MultiInputLstmPolicy")


def settings_of(kind: type, config: Any, env: Any, settings: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """(config or dictionary, settings) of an algorithm's arguments, where an environment may stand first. `kind` is
    the class of its config."""
    if isinstance(config, str) and config in POLICY_NAMES:
        if "Lstm" in config and "memory" not in (field.name for field in dataclasses.fields(kind)):
            raise SettingError(f"{kind.__name__}: {config} has a memory; use RecurrentPPO")
        config = None
        if env is None:
            raise SettingError("after the name of a policy comes the environment")
    elif not isinstance(config, Mapping) and (isinstance(config, str) or callable(config) or hasattr(config, "step")):
        if env is not None:
            raise SettingError(f"the environment is given twice: {config!r} and {env!r}")
        config, env = None, config
    if env is None:
        return config, dict(settings)
    spec = getattr(env, "spec", None) if hasattr(env, "step") and not isinstance(env, type) else None
    if spec is not None and not spec.additional_wrappers:  # one that was made by name can be made again by it
        return config, {"env_config": dict(spec.kwargs), **settings, "env": spec.id}
    return config, {**settings, "env": env}


@answers_attributes(
    **dict.fromkeys(
        ("api_stack", "build", "build_algo", "env_runners", "environment", "rollouts", "training"), _BUILDER
    ),
    framework=_DEVICE,
    resources=_DEVICE,
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class AlgorithmConfig:
    """The settings common to all algorithms."""

    old_names: ClassVar[Mapping[str, str]] = OLD_NAMES

    env: Any = setting(None, "the environment: a Gymnasium id, a registered name, a class, or a function of env_config")
    env_config: Mapping[str, Any] = setting({}, "keyword arguments of the environment")
    seed: int | None = setting(None, "makes a run reproducible; None draws one", at_least=0)
    workers: int = setting(0, "rollout worker processes; 0 samples in the calling process", at_least=0)
    envs_per_worker: int = setting(8, "environments that a worker steps together", at_least=1)
    fragment_steps: int = setting(128, "steps of each environment in one fragment", at_least=1)
    cpus_per_worker: float | None = setting(None, "CPUs set aside for a worker; None shares what is free", at_least=0)
    episode_limit: int | None = setting(None, "truncate episodes after so many steps", at_least=1)
    reward_scale: float = setting(1.0, "rewards are multiplied by this before learning", above=0)
    reward_clip: float | None = setting(None, "rewards are clipped to ± this before learning", above=0)
    hidden: tuple[int, ...] = setting((64, 64), "units of the hidden layers", at_least=1)
    activation: str = setting("tanh", "of the hidden layers", one_of=("tanh", "relu", "elu", "silu"))
    convolutions: tuple[tuple[int, ...], ...] = setting(
        ((32, 8, 4), (64, 4, 2), (64, 3, 1)), "layers over images: (filters, size, stride) each"
    )
    image_features: int = setting(512, "units of the dense layer after the convolutions", at_least=1)
    network: Any = setting(
        None, "your own network: a Flax module (linen, NNX) or JAX functions (init, apply); None builds one of `hidden`"
    )
    make_loss: Any = setting(None, "your own loss, in the place of the function `make_loss` of the algorithm's file")
    gamma: float = setting(0.99, "discount of a step", at_least=0, at_most=1)
    learning_rate: float = setting(3e-4, "of the optimiser", above=0)
    sample_timeout_s: float = setting(
        300.0, "how long a fragment may take before its worker counts as hung", above=0, at_most=1e8
    )
    on_environment_error: str = setting(
        "raise",
        "what an error of an environment does: end the run, or make the environment anew",
        one_of=("raise", "restart"),
    )
    check_bounds: bool = setting(True, "observations far outside their space's bounds are an error")
    tensorboard: str | None = setting(None, "folder for event files of TensorBoard, one scalar per metric")
    metrics_window: int = setting(100, "episodes over which the reward mean is taken", at_least=1)
    evaluation_interval: int = setting(0, "evaluate every so many iterations; 0 never", at_least=0)
    evaluation_workers: int = setting(
        0, "worker processes that evaluate while training goes on; 0 lets training wait for evaluations", at_least=0
    )
    evaluation_episodes: int = setting(10, "episodes of an evaluation", at_least=1)

    def __post_init__(self) -> None:
        check_settings(self)
        for layer in self.convolutions:
            if len(layer) != 3 or min(layer) < 1:
                raise SettingError(
                    f"{type(self).__name__}: convolutions must be (filters, size, stride) each, of 1 or more, "
                    f"but got {layer!r}"
                )
        self.check()

    def check_devices(self, devices: int, environments: int, minibatch: int | None = None) -> None:
        """Raise SettingError where a batch cannot be shared out evenly among the learner's devices."""
        for name, size in (("environments", environments), ("minibatch", minibatch)):
            if size is not None and size % devices:
                raise SettingError(
                    f"{type(self).__name__}: {name} must be a multiple of devices={devices}, but is {size}"
                )

    def check(self) -> None:
        """Raise SettingError where fields do not fit each other; algorithms add to it."""

    @classmethod
    def of(cls, given: Self | Mapping[str, Any] | None, overrides: Mapping[str, Any]) -> Self:
        """From a config or a dictionary, with some settings replaced."""
        if isinstance(given, AlgorithmConfig):
            if not isinstance(given, cls):
                raise SettingError(f"a {cls.__name__} is needed, but got a {type(given).__name__}")
            given = {field.name: getattr(given, field.name) for field in dataclasses.fields(given)}
        elif given is not None and not isinstance(given, Mapping):
            raise SettingError(
                f"a {cls.__name__} or a dictionary of settings is needed, but got {given!r}; an environment is named "
                "with env="
            )
        parts = [current_names(cls, part, cls.old_names, INSTEAD) for part in (given or {}, overrides)]
        return cls(**{**parts[0], **parts[1]})

    def loss_maker(self, own: Any) -> Any:
        """The algorithm's own `make_loss`, or the user's in its place."""
        return own if self.make_loss is None else named(self.make_loss, "make_loss")

    def to_json(self) -> dict[str, Any]:
        """Plain values. A class or a function is named `module:name`, or said to be one that nobody can import."""
        plain: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            try:
                json.dumps(value)
            except TypeError:
                value = importable_name(value) or UNNAMED
            plain[field.name] = value
        return plain
