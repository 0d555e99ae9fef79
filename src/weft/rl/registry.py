"""Algorithms by name, for configurations that name them: Tune's `"run": "PPO"`, the command line, checkpoints."""

from __future__ import annotations

import importlib
import os
from typing import Any

from weft._lazy import nearest
from weft.library.settings import SettingError
from weft.rl.policy import Policy

_NAMES = "A2C A3C ARS ApexDDPG ApexDQN BC DDPG DQN ES IMPALA MultiAgentPPO PG PPO Rainbow RecurrentPPO SAC TD3".split()
# Names of the classic library.
_OLD_NAMES = {"apex": "ApexDQN"}
_registered: dict[str, type[Any]] = {}


class UnknownAlgorithm(ValueError):
    """No algorithm has this name; the message names the nearest."""


def register_algorithm(name: str, algorithm: type[Any]) -> None:
    """Let `get_algorithm(name)` find a class of your own."""
    _registered[name] = algorithm


def get_algorithm(name: str) -> type[Any]:
    """The class of an algorithm; names are compared without regard to case and dashes.

    >>> get_algorithm("apex-dqn").__name__
    'ApexDQN'
    """
    if name in _registered:
        return _registered[name]
    normal = {_normal(known): known for known in _NAMES}
    known = normal.get(_normal(_OLD_NAMES.get(name.lower(), name)))
    if known is None:
        near = nearest(_normal(name), normal)
        hint = f"did you mean {normal[near]!r}?" if near else f"there are {', '.join(algorithm_names())}"
        raise UnknownAlgorithm(f"no algorithm is called {name!r}; {hint}")
    found: type[Any] = getattr(importlib.import_module("weft.rl"), "Impala" if known == "IMPALA" else known)
    return found


def get_trainable(name: str) -> type[Any] | None:
    """The class of an algorithm, or None: what Tune asks for `"run": name`."""
    try:
        return get_algorithm(name)
    except UnknownAlgorithm:
        return None


def algorithm_names() -> list[str]:
    return sorted({*_NAMES, *_registered})


def load(path: str | os.PathLike[str], **settings: Any) -> Any:
    """The algorithm, of whatever kind, that a checkpoint's folder was saved from; of a file, the policy in it.

    >>> from weft.rl import PPO
    >>> with PPO(env="CartPole-v1", fragment_steps=8) as algorithm:
    ...     folder = algorithm.save("checkpoint")
    >>> with load(folder) as again:
    ...     type(again).__name__
    'PPO'
    """
    if os.path.isfile(path):
        if settings:
            raise SettingError(f"{os.fspath(path)} is a policy, which takes no settings, but got {', '.join(settings)}")
        return Policy.load(path)
    from weft.rl.checkpoint import read_state

    return get_algorithm(read_state(path)["algorithm"]).from_checkpoint(path, **settings)


def _normal(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
