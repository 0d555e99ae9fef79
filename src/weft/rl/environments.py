"""Making environments from what a user names: a Gymnasium id, a registered name, a class, or a function."""

from __future__ import annotations

import contextlib
import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv

from weft._lazy import nearest
from weft.rl.names import UNNAMED, UnknownEnvironment
from weft.rl.pools import PREFIX, make_pool

_registered: dict[str, Callable[..., Any]] = {}


def register_env(name: str, creator: Callable[..., Any]) -> None:
    """Let `env=name` mean what `creator` makes, in this process and in the workers of algorithms made here.

    The creator gets env_config as keyword arguments, or whole if it takes one argument and none of those names.

    >>> import gymnasium
    >>> register_env("short_pole", lambda steps=50: gymnasium.make("CartPole-v1", max_episode_steps=steps))
    >>> from weft.rl import PPOConfig
    >>> config = PPOConfig(env="short_pole", env_config={"steps": 20})
    """
    _registered[name] = creator


def resolve(source: Any) -> Any:
    """What workers need to make the environment: names registered here mean nothing in another process."""
    if source is None:
        raise UnknownEnvironment('no environment is given: pass env="CartPole-v1", a class, or a function')
    if source == UNNAMED:
        raise UnknownEnvironment(
            "the checkpoint does not hold its environment, which was defined in a program, not in a module that can be "
            "imported: pass it again with env=. To act without one: weft.rl.Policy.from_checkpoint(folder)"
        )
    if isinstance(source, str) and source in _registered:
        return _registered[source]
    if isinstance(source, str) and source.startswith(PREFIX):
        return source
    if isinstance(source, str) and ":" in source and source.split(":")[1].isidentifier():
        module, _, name = source.partition(":")
        found = getattr(importlib.import_module(module), name, None)
        if callable(found):
            return found
    if isinstance(source, str):
        _check_id(source)
    elif not callable(source):
        raise UnknownEnvironment(
            f"an environment is a name, a class or a function, since each worker makes its own, but got {source!r}; "
            f"pass what makes it: env={type(source).__name__}, or env=lambda: {type(source).__name__}(...)"
        )
    return source


def describe(source: Any) -> str:
    """A short name for messages."""
    return source if isinstance(source, str) else str(getattr(source, "__qualname__", source))


def make(source: Any, env_config: Mapping[str, Any], episode_limit: int | None = None, count: int = 1) -> Any:
    """One environment, or a vector environment if that is what the class or function makes.

    `count` is how many are wanted in all: what EnvPool needs to know.
    """
    source = resolve(source)
    if isinstance(source, str) and source.startswith(PREFIX):
        return make_pool(source, env_config, count, episode_limit)
    if isinstance(source, str):
        limit = {} if episode_limit is None else {"max_episode_steps": episode_limit}
        return gymnasium.make(source, disable_env_checker=True, **limit, **env_config)
    made = _create(source, env_config)
    if isinstance(made, gymnasium.Env) and episode_limit is not None:
        return gymnasium.wrappers.TimeLimit(made, episode_limit)
    if not isinstance(made, gymnasium.Env | VectorEnv) and not hasattr(made, "step"):
        raise UnknownEnvironment(f"{describe(source)} made a {type(made).__name__}, which has no step()")
    return made


def _create(creator: Callable[..., Any], env_config: Mapping[str, Any]) -> Any:
    try:
        signature = inspect.signature(creator)
        signature.bind(**env_config)
    except ValueError:
        return creator(**env_config)  # of a built-in nothing is known
    except TypeError:
        with contextlib.suppress(TypeError):
            signature.bind(env_config)
            return creator(env_config)
    return creator(**env_config)


def _check_id(name: str) -> None:
    try:
        gymnasium.spec(name)
    except gymnasium.error.Error as error:
        known = [*gymnasium.registry, *_registered]
        near = nearest(name, known)
        hint = f"did you mean {near!r}? " if near else ""
        if name.startswith("ALE/"):
            hint = f"Atari's games are in another package: pip install ale-py, then env='ale_py:{name}'. "
        raise UnknownEnvironment(
            f"no environment is called {name!r}: {hint}Register your own with weft.rl.register_env(name, creator)."
        ) from error
