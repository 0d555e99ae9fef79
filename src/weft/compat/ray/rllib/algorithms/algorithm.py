"""`Algorithm`: one of `weft.rl` behind RLlib's methods, with results in RLlib's form; a trainable of `ray.tune`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from typing import Any, ClassVar

import weft.rl
from weft.compat.ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from weft.tune import PlacementGroupFactory, Trainable

MODULE = "default_policy"


class Algorithm(Trainable):
    """Made by `AlgorithmConfig.build_algo()`, from a configuration, or from a dictionary of RLlib's words."""

    own_class: ClassVar[Any]
    config_class: ClassVar[type[AlgorithmConfig]]

    def __init__(self, config: Any = None, env: Any = None, logdir: str | None = None, *, own: Any = None) -> None:
        given = config.to_dict() if isinstance(config, AlgorithmConfig) else dict(config or {})
        self._loaded = own
        super().__init__(given if env is None else {**given, "env": env}, logdir)

    def setup(self, config: dict[str, Any]) -> None:
        self.own: Any = self._loaded or self.own_class(settings_of(type(self), config))

    @classmethod
    def default_resource_request(cls, config: Mapping[str, Any]) -> PlacementGroupFactory:
        """One CPU, and one each for the workers that set CPUs aside."""
        settings = cls.own_class.config_class.of(settings_of(cls, config), {})
        needed = settings.cpus_per_worker or 0.0
        return PlacementGroupFactory([{"CPU": 1}, *({"CPU": needed} for _ in range(settings.workers if needed else 0))])

    # ---- a trainable's ----

    def step(self) -> dict[str, Any]:
        return in_rllibs_form(self.own.train())

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        self.own.save(checkpoint_dir)

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.own.restore(checkpoint)

    def cleanup(self) -> None:
        self.own.stop()

    # ---- RLlib's ----

    def save_to_path(self, path: str | os.PathLike[str] | None = None) -> str:
        """Save into a folder, which is made; where none is given, into a new one. Returns it."""
        return str(self.own.save(path if path is not None else tempfile.mkdtemp(prefix="rllib-checkpoint-")))

    def save(self, checkpoint_dir: str | None = None) -> str:
        return self.save_to_path(checkpoint_dir)

    def restore_from_path(self, path: str | os.PathLike[str]) -> None:
        """Go on from what `save_to_path` wrote."""
        self.own.restore(path)

    def restore(self, checkpoint_dir: Any) -> None:
        self.restore_from_path(getattr(checkpoint_dir, "path", checkpoint_dir))

    @classmethod
    def from_checkpoint(cls, path: Any, **_: Any) -> Algorithm:
        """The algorithm that was saved, whichever it is."""
        from weft.compat.ray.rllib import algorithms

        own = weft.rl.load(getattr(path, "path", path))
        kinds = [each for each in vars(algorithms).values() if isinstance(each, type) and issubclass(each, Algorithm)]
        kind = next(each for each in kinds if getattr(each, "own_class", None) is type(own))
        made = kind(own=own)
        made.iteration = own.metrics.iteration
        return made

    def evaluate(self) -> dict[str, Any]:
        """Whole episodes without exploration."""
        return {"env_runners": _episodes(self.own.evaluate())}

    def compute_single_action(self, observation: Any, explore: bool = True, **_: Any) -> Any:
        """The action for one observation."""
        return self.own.predict(observation, deterministic=not explore)[0]

    def get_module(self, module_id: str = MODULE) -> Any:
        """The policy as it is now."""
        from weft.compat.ray.rllib.core.rl_module import RLModule

        return RLModule(self.own.policy)


def settings_of(kind: type[Algorithm], config: Mapping[str, Any]) -> dict[str, Any]:
    """`weft.rl`'s, from RLlib's words."""
    return kind.config_class().update_from_dict(config).settings()


def in_rllibs_form(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result of `weft.rl` under RLlib's names, `weft.rl`'s own beside them."""
    lifetime = result["timesteps_total"]
    named = {
        **result,
        "env_runners": {
            **_episodes(result),
            "num_episodes": result["episodes_this_iter"],
            "num_episodes_lifetime": result["episodes_total"],
            "num_env_steps_sampled": result["timesteps_this_iter"],
            "num_env_steps_sampled_lifetime": lifetime,
            "sample": result["sample_time_s"],
        },
        "learners": {MODULE: dict(result["learner"]), "__all_modules__": {}},
        "num_env_steps_sampled_lifetime": lifetime,
    }
    if "evaluation" in result:
        named["evaluation"] = {"env_runners": _episodes(result["evaluation"])}
    return named


def _episodes(summary: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "episode_return_mean": summary["episode_reward_mean"],
        "episode_return_min": summary["episode_reward_min"],
        "episode_return_max": summary["episode_reward_max"],
        "episode_len_mean": summary["episode_len_mean"],
    }
