"""What a trial needs: one bundle for the trial itself, more for the workers that it starts.

>>> as_resources({"cpu": 2, "gpu": 0.5})
PlacementGroupFactory([{'CPU': 2.0, 'GPU': 0.5}], strategy='PACK')
>>> PlacementGroupFactory([{"CPU": 1}, {"CPU": 1}, {"CPU": 1}])      # a trial with two workers
PlacementGroupFactory([{'CPU': 1.0}, {'CPU': 1.0}, {'CPU': 1.0}], strategy='PACK')
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft.tune.errors import TuneError

__all__ = ["PlacementGroupFactory", "as_resources", "with_parameters", "with_resources"]

RESOURCES_ATTRIBUTE = "_weft_tune_resources"
_NAMES = {"cpu": "CPU", "gpu": "GPU", "num_cpus": "CPU", "num_gpus": "GPU"}


class PlacementGroupFactory:
    """The resources of each trial. The first bundle is the trial's own process; with others it is a placement group.

    >>> needs = PlacementGroupFactory([{"CPU": 1}, {"CPU": 1, "GPU": 1}])
    """

    def __init__(self, bundles: Sequence[Mapping[str, float]], strategy: str = "PACK") -> None:
        if not bundles:
            raise TuneError("a trial needs at least one bundle of resources, but got none")
        self.bundles = tuple(tuple(sorted(_named(bundle).items())) for bundle in bundles)
        self.strategy = strategy

    @property
    def head(self) -> dict[str, float]:
        """What the trial's own process needs."""
        return dict(self.bundles[0])

    @functools.cached_property
    def total(self) -> dict[str, float]:
        total: dict[str, float] = {}
        for bundle in self.bundles:
            for name, amount in bundle:
                total[name] = total.get(name, 0.0) + amount
        return total

    def __eq__(self, other: object) -> bool:
        same_type = isinstance(other, PlacementGroupFactory)
        return same_type and (self.bundles, self.strategy) == (other.bundles, other.strategy)  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash((self.bundles, self.strategy))

    def __repr__(self) -> str:
        return f"PlacementGroupFactory({[dict(bundle) for bundle in self.bundles]}, strategy={self.strategy!r})"


def _named(bundle: Mapping[str, float]) -> dict[str, float]:
    named: dict[str, float] = {}
    for name, amount in bundle.items():
        if isinstance(amount, bool) or not isinstance(amount, int | float) or amount < 0:
            raise TuneError(f"resource {name!r} must be a number that is not negative, but got {amount!r}")
        key = _NAMES.get(name, name)
        named[key] = named.get(key, 0.0) + float(amount)
    return named


def as_resources(wanted: Any) -> PlacementGroupFactory:
    """From whatever a user wrote: a dictionary of 2018 (with extra_cpu and extra_gpu too), of today, or a factory."""
    if wanted is None:
        return PlacementGroupFactory([{"CPU": 1}])
    if isinstance(wanted, PlacementGroupFactory):
        return wanted
    if not isinstance(wanted, Mapping):
        raise TuneError(f"resources must be a dictionary or a PlacementGroupFactory, but got {wanted!r}")
    wanted = dict(wanted)
    extra = {"CPU": wanted.pop("extra_cpu", 0), "GPU": wanted.pop("extra_gpu", 0)}
    custom = wanted.pop("custom_resources", {})
    bundles = [{"CPU": 1, **_named(wanted), **custom} if not _mentions_cpu(wanted) else {**_named(wanted), **custom}]
    if any(extra.values()):
        bundles.append(extra)
    return PlacementGroupFactory(bundles)


def _mentions_cpu(wanted: Mapping[str, Any]) -> bool:
    return any(_NAMES.get(name, name) == "CPU" for name in wanted)


def with_resources(trainable: Any, resources: Any) -> Any:
    """The trainable, with what each of its trials needs; a function of the configuration is asked for each trial.

    >>> from weft import tune
    >>> trainable = with_resources(lambda config: {"score": 1}, {"CPU": 2})
    >>> len(tune.Tuner(trainable, run_config=tune.RunConfig(verbose=0)).fit())
    1
    """
    if not callable(resources):
        resources = as_resources(resources)
    if isinstance(trainable, type):
        return type(trainable.__name__, (trainable,), {RESOURCES_ATTRIBUTE: staticmethod(_constant(resources))})

    @functools.wraps(trainable)
    def function(*args: Any, **kwargs: Any) -> Any:
        return trainable(*args, **kwargs)

    setattr(function, RESOURCES_ATTRIBUTE, _constant(resources))
    return function


def _constant(resources: Any) -> Callable[[Mapping[str, Any]], PlacementGroupFactory]:
    def of(config: Mapping[str, Any]) -> PlacementGroupFactory:
        return as_resources(resources(config) if callable(resources) else resources)

    return of


def with_parameters(trainable: Any, **parameters: Any) -> Any:
    """The trainable, with large objects that are stored once and shared by all trials.

    >>> def train(config, data):
    ...     return {"mean": sum(data) / len(data)}
    >>> trainable = with_parameters(train, data=[1, 2, 3])
    """
    import weft

    refs = {name: weft.put(value) for name, value in parameters.items()}
    if isinstance(trainable, type):

        class WithParameters(trainable):  # type: ignore[misc]
            def setup(self, config: dict[str, Any]) -> None:
                super().setup(config, **{name: weft.get(ref) for name, ref in refs.items()})

        WithParameters.__name__ = trainable.__name__
        return WithParameters

    def function(config: dict[str, Any]) -> Any:
        return trainable(config, **{name: weft.get(ref) for name, ref in refs.items()})

    function.__name__ = getattr(trainable, "__name__", "train")
    wanted = getattr(trainable, RESOURCES_ATTRIBUTE, None)
    if wanted is not None:
        setattr(function, RESOURCES_ATTRIBUTE, wanted)
    return function
