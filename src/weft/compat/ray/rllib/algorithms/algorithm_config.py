"""`AlgorithmConfig`: settings in RLlib's words, given call by call. What they mean here is in `rllib.words`."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from weft.compat.ray.rllib import words
from weft.compat.ray.rllib.env.env_context import with_context

if TYPE_CHECKING:
    from typing_extensions import Self

    from weft.compat.ray.rllib.algorithms.algorithm import Algorithm


class AlgorithmConfig:
    """Each method takes some settings and returns the configuration, so that calls can be chained.

    Words that have no counterpart are refused where they are given.
    """

    kind: ClassVar[str] = ""
    """The name of the algorithm, which is in the module beside this one that has that name."""

    def __init__(self, algo_class: Any = None) -> None:
        self._given: dict[str, Any] = {}
        self._algo_class = algo_class

    # ---- what is set, by topic ----

    def environment(self, env: Any = None, **words: Any) -> Self:
        return self._take({"env": env, **words})

    def env_runners(self, env_runner_cls: Any = None, **words: Any) -> Self:
        if env_runner_cls is not None:
            raise _unmapped("env_runner_cls", "weft.rl steps environments itself")
        return self._take(words)

    def training(self, **words: Any) -> Self:
        return self._take(words)

    def evaluation(self, **words: Any) -> Self:
        if words.get("evaluation_duration_unit", "episodes") != "episodes":
            raise _unmapped("evaluation_duration_unit", "evaluations last so many episodes")
        if words.get("evaluation_duration") == "auto":
            words.pop("evaluation_duration")
        return self._take(words)

    def rl_module(self, rl_module_spec: Any = None, **words: Any) -> Self:
        if rl_module_spec is not None:
            raise _unmapped("rl_module_spec", "give a Flax module as weft.rl's `network`")
        return self._take(words)

    def debugging(self, **words: Any) -> Self:
        return self._take(words)

    learners = reporting = fault_tolerance = resources = api_stack = checkpointing = debugging

    def framework(self, framework: str | None = None, **words: Any) -> Self:
        """Without effect: the learner is compiled by JAX."""
        return self._take({"framework": framework, **words})

    def multi_agent(self, **words: Any) -> Self:
        """Refused: several agents are `weft.rl.MultiAgentPPO`'s, with PettingZoo's environments."""
        raise _unmapped("multi_agent", "use weft.rl.MultiAgentPPO with an environment of PettingZoo's")

    def callbacks(self, *args: Any, **words: Any) -> Self:
        """Refused: `learn(callback=…)` of `weft.rl` is called with each result."""
        raise _unmapped("callbacks", "loop over train(), or give weft.rl's learn() a callback")

    def offline_data(self, **words: Any) -> Self:
        """Refused but for `input_`, a folder that `weft.rl` has recorded."""
        unknown = [word for word in words if word != "input_"]
        if unknown:
            raise _unmapped(
                unknown[0], "record episodes with weft.rl's Algorithm.record() and give the folder as input_"
            )
        self._given["input_"] = words["input_"]
        return self

    def update_from_dict(self, config: Mapping[str, Any]) -> Self:
        return self._take(config)

    # ---- what is made of it ----

    def build_algo(self, env: Any = None, **_: Any) -> Algorithm:
        made: Algorithm = self.algo_class(self.copy(), env)
        return made

    build = build_algo

    @property
    def algo_class(self) -> Any:
        """The class that it configures."""
        import importlib

        if self._algo_class is not None:
            return self._algo_class
        if not self.kind:
            raise ValueError("AlgorithmConfig alone configures no algorithm: use PPOConfig, DQNConfig, SACConfig, …")
        return getattr(importlib.import_module(type(self).__module__), self.kind)

    def settings(self) -> dict[str, Any]:
        """`weft.rl`'s settings."""
        own = self.algo_class.own_class.config_class
        fields = frozenset(field.name for field in dataclasses.fields(own))
        given = dict(self._given)
        episodes = given.pop("input_", None)
        made = words.translated(fields, given, self.kind)
        if callable(made.get("env")):
            made["env"] = with_context(made["env"])
        return made if episodes is None else {**made, "episodes": episodes}

    def copy(self, copy_frozen: bool | None = None) -> Self:
        return copy.deepcopy(self)

    def to_dict(self) -> dict[str, Any]:
        """What was given."""
        return dict(self._given)

    def freeze(self) -> None:
        """Without effect: an algorithm keeps a copy."""

    validate = freeze

    def _take(self, given: Mapping[str, Any]) -> Self:
        for word, value in given.items():
            if word != "input_":
                words.check_word(word)
            if value is not None:
                self._given[word] = value
        return self

    def __getattr__(self, name: str) -> Any:
        """What was given, as an attribute: `config.lr`."""
        if name.startswith("_") or name not in self._given:
            raise AttributeError(f"{type(self).__name__} was not given {name!r}")
        return self._given[name]

    def __getitem__(self, name: str) -> Any:
        return self._given[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self._given.get(name, default)


def _unmapped(word: str, instead: str) -> words.Unmapped:
    return words.Unmapped(f"weft.rl has nothing for RLlib's {word!r}: {instead}")
