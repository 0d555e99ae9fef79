"""Names for trainables, and what counts as one: a function, a Trainable, or anything with `train`, `save`,
`restore`."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from weft.tune import session
from weft.tune.errors import TuneError
from weft.tune.resources import RESOURCES_ATTRIBUTE, PlacementGroupFactory, as_resources
from weft.tune.trainable import Trainable

__all__ = ["register_env", "register_trainable", "resolve_trainable"]

_trainables: dict[str, Any] = {}


def register_trainable(name: str, trainable: Any) -> None:
    """Let experiments say `"run": name`.

    >>> from weft import tune
    >>> register_trainable("answer", lambda config: {"score": 42})
    >>> tune.Tuner("answer", run_config=tune.RunConfig(verbose=0)).fit()[0].metrics["score"]
    42
    """
    _check(trainable)
    _trainables[name] = trainable


def register_env(name: str, create: Callable[[Mapping[str, Any]], Any]) -> None:
    """Let weft.rl make an environment by name."""
    try:
        rl = importlib.import_module("weft.rl")
    except ModuleNotFoundError as error:
        raise TuneError("environments are weft.rl's, which is not installed: pip install 'weft[rl]'") from error
    rl.register_env(name, create)


def resolve_trainable(run: Any) -> tuple[str, Any]:
    """(name, a function of the configuration or a class like Trainable) from whatever `run` was."""
    if isinstance(run, str):
        return run, _adapted(_by_name(run))
    _check(run)
    return getattr(run, "__name__", type(run).__name__), _adapted(run)


def _by_name(name: str) -> Any:
    if name in _trainables:
        return _trainables[name]
    known = ", ".join(sorted(_trainables)) or "none"
    try:
        return importlib.import_module("weft.rl.registry").get_algorithm(name)
    except ModuleNotFoundError as error:
        raise TuneError(
            f"there is no trainable {name!r}. Registered with tune.register_trainable: {known}. weft.rl, which has "
            f"algorithms by name, cannot be imported: {error}. pip install 'weft[rl]'"
        ) from error
    except ValueError as error:
        raise TuneError(
            f"there is no trainable {name!r}. Registered with tune.register_trainable: {known}; of weft.rl: {error}"
        ) from error


def _check(trainable: Any) -> None:
    if isinstance(trainable, type):
        if not issubclass(trainable, Trainable) and not callable(getattr(trainable, "train", None)):
            raise TuneError(
                f"{trainable.__name__} is no trainable: it must be a tune.Trainable, or have a train method"
            )
    elif not callable(trainable):
        raise TuneError(f"a trainable must be a function, a class or a registered name, but got {trainable!r}")


def _adapted(trainable: Any) -> Any:
    if isinstance(trainable, type):
        return trainable if issubclass(trainable, Trainable) else _adapted_class(trainable)
    try:
        parameters = inspect.signature(trainable).parameters
    except (TypeError, ValueError):
        return trainable
    names = list(parameters)
    if len(names) >= 2 and names[1] == "reporter":
        return _with_reporter(trainable)
    required = [
        p for p in parameters.values() if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    takes_any = any(p.kind == p.VAR_POSITIONAL for p in parameters.values())
    if len(required) > 1 or (not names and not takes_any):
        raise TuneError(
            f"training function {getattr(trainable, '__name__', trainable)!r} must take the configuration (config), or "
            f"(config, reporter), but takes ({', '.join(names)}). For more arguments use tune.with_parameters"
        )
    return trainable


def _with_reporter(function: Any) -> Any:
    """The training functions of 2018: `def train(config, reporter)`."""

    @functools.wraps(function)
    def train(config: dict[str, Any]) -> Any:
        return function(config, session.report)

    train.__signature__ = inspect.Signature([inspect.Parameter("config", inspect.Parameter.POSITIONAL_ONLY)])  # type: ignore[attr-defined]
    return train


def _adapted_class(kind: Any) -> type[Trainable]:
    """A class of another library that trains, saves and restores by itself."""

    class Adapted(Trainable):
        def setup(self, config: dict[str, Any]) -> None:
            self.inner = kind(config)

        def step(self) -> Mapping[str, Any]:
            metrics: Mapping[str, Any] = self.inner.train()
            return metrics

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            self.inner.save(checkpoint_dir)

        def load_checkpoint(self, checkpoint: Any) -> None:
            self.inner.restore(checkpoint)

        def cleanup(self) -> None:
            stop = getattr(self.inner, "stop", None) or getattr(self.inner, "close", None)
            if stop is not None:
                stop()

        @staticmethod
        def default_resource_request(config: Mapping[str, Any]) -> PlacementGroupFactory:
            return _resources_of(kind, config)

    Adapted.__name__ = Adapted.__qualname__ = kind.__name__
    wanted = getattr(kind, RESOURCES_ATTRIBUTE, None)
    if wanted is not None:
        setattr(Adapted, RESOURCES_ATTRIBUTE, staticmethod(wanted))
    return Adapted


def _resources_of(kind: Any, config: Mapping[str, Any]) -> PlacementGroupFactory:
    """One CPU, and a bundle for each worker of a weft.rl algorithm that sets CPUs aside for its workers."""
    settings_class = getattr(kind, "config_class", None)
    if settings_class is None:
        return as_resources(None)
    settings = settings_class.of(config, {})
    needed = settings.cpus_per_worker or 0.0
    return PlacementGroupFactory([{"CPU": 1}, *({"CPU": needed} for _ in range(settings.workers if needed else 0))])
