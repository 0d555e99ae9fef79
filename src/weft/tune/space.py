"""Search spaces: what a key of `config` may be, instead of one value.

A space is a plain dictionary, nested as one likes, whose leaves are constants or domains. `Choice` may hold spaces
again, which makes the inner keys conditional. `resolve` turns a space into one configuration by asking a `draw`
function for the value of each domain that is met on the way; so the same walk serves random search and every
define-by-run algorithm. Nothing here has randomness of its own.

>>> space = {"lr": loguniform(1e-4, 1e-1), "net": choice(["linear", {"width": randint(8, 64)}])}
>>> import random
>>> config = resolve(space, lambda path, domain: domain.sample(random.Random(0)))
>>> 1e-4 <= config["lr"] <= 1e-1
True
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from weft._lazy import nearest
from weft.library.checks import above
from weft.tune.errors import SearchSpaceError

if TYPE_CHECKING:
    import random

__all__ = [
    "Choice",
    "Domain",
    "GridSearch",
    "Integer",
    "Normal",
    "Real",
    "SampleFrom",
    "choice",
    "domains_of",
    "grid_search",
    "lograndint",
    "loguniform",
    "path_name",
    "qlograndint",
    "qloguniform",
    "qrandint",
    "qrandn",
    "quniform",
    "randint",
    "randn",
    "resolve",
    "sample_from",
    "uniform",
]

Path = tuple[str | int, ...]
Draw = Callable[[Path, "Domain"], Any]


class Domain:
    """A set of values with a distribution over it."""

    def sample(self, rng: random.Random) -> Any:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Real(Domain):
    """Numbers from `lower` to `upper`; equally likely in the logarithm with `log`; multiples of `step` if given."""

    lower: float
    upper: float
    log: bool = False
    step: float | None = None

    def __post_init__(self) -> None:
        _check_bounds(self.lower, self.upper, self.log, self.step)

    def sample(self, rng: random.Random) -> float:
        if self.log:
            value = math.exp(rng.uniform(math.log(self.lower), math.log(self.upper)))
        else:
            value = rng.uniform(self.lower, self.upper)
        return self.clip(value)

    def clip(self, value: float) -> float:
        """The nearest member."""
        if self.step is not None:
            value = _round_to(value, self.step)
        return min(max(float(value), self.lower), self.upper)


@dataclass(frozen=True, slots=True)
class Integer(Domain):
    """Integers from `lower` to `upper`, both included."""

    lower: int
    upper: int
    log: bool = False
    step: int = 1

    def __post_init__(self) -> None:
        for bound in (self.lower, self.upper, self.step):
            if isinstance(bound, bool) or int(bound) != bound:
                raise SearchSpaceError(f"the bounds of an integer domain must be integers, but got {bound!r}")
        _check_bounds(self.lower, self.upper, self.log, self.step)

    def sample(self, rng: random.Random) -> int:
        if self.log:
            value = math.exp(rng.uniform(math.log(self.lower), math.log(self.upper + 1)))
            return self.clip(math.floor(value))
        return self.clip(rng.randint(self.lower, self.upper))

    def clip(self, value: float) -> int:
        if self.step != 1:
            value = _round_to(value, self.step)
        return int(min(max(round(value), self.lower), self.upper))


@dataclass(frozen=True, slots=True)
class Normal(Domain):
    """Normally distributed numbers."""

    mean: float = 0.0
    sd: float = 1.0
    step: float | None = None

    def __post_init__(self) -> None:
        above("sd", self.sd, error=SearchSpaceError)

    def sample(self, rng: random.Random) -> float:
        return self.clip(rng.gauss(self.mean, self.sd))

    def clip(self, value: float) -> float:
        return float(value) if self.step is None else _round_to(value, self.step)


@dataclass(frozen=True, slots=True)
class Choice(Domain):
    """One of some values; a value may be a space again."""

    categories: tuple[Any, ...]

    def __post_init__(self) -> None:
        if not self.categories:
            raise SearchSpaceError("choice() needs at least one value, but got none")

    def sample(self, rng: random.Random) -> Any:
        return rng.choice(self.categories)


@dataclass(frozen=True, slots=True)
class GridSearch(Domain):
    """Every one of some values, in a trial each."""

    values: tuple[Any, ...]

    def sample(self, rng: random.Random) -> Any:
        return rng.choice(self.values)


@dataclass(frozen=True, slots=True)
class SampleFrom(Domain):
    """Whatever a function of the rest of the configuration returns."""

    function: Callable[..., Any]

    def sample(self, rng: random.Random) -> Any:
        raise SearchSpaceError("sample_from needs the rest of the configuration: resolve the whole space")


# ---- what users write ------------------------------------------------------------------------------


def grid_search(values: Sequence[Any]) -> dict[str, list[Any]]:
    """Try every value. Several grids make all combinations.

    >>> grid_search([16, 32])
    {'grid_search': [16, 32]}
    """
    if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
        raise SearchSpaceError(f"grid_search needs a list of values, but got {values!r}")
    return {"grid_search": list(values)}


def choice(categories: Sequence[Any]) -> Choice:
    """One of the values, each as likely.

    >>> space = {"x": choice(["adam", "sgd"])}
    """
    if isinstance(categories, str | bytes) or not hasattr(categories, "__iter__"):
        raise SearchSpaceError(f"choice needs a list of values, but got {categories!r}")
    return Choice(tuple(categories))


def uniform(lower: float, upper: float) -> Real:
    """A number in [lower, upper].

    >>> space = {"x": uniform(0, 1)}
    """
    return Real(lower, upper)


def quniform(lower: float, upper: float, q: float) -> Real:
    """A multiple of `q` in [lower, upper]."""
    return Real(lower, upper, step=q)


def loguniform(lower: float, upper: float, base: float = 10) -> Real:
    """A positive number whose logarithm is uniform; the base changes nothing and is there for old programs.

    >>> space = {"x": loguniform(1e-4, 1e-1)}
    """
    return Real(lower, upper, log=True)


def qloguniform(lower: float, upper: float, q: float, base: float = 10) -> Real:
    """A multiple of `q` whose logarithm is about uniform."""
    return Real(lower, upper, log=True, step=q)


def randint(lower: int, upper: int) -> Integer:
    """An integer with lower <= value < upper.

    >>> space = {"x": randint(1, 10)}
    """
    return Integer(lower, _inclusive(lower, upper))


def lograndint(lower: int, upper: int, base: float = 10) -> Integer:
    """An integer with lower <= value < upper whose logarithm is about uniform."""
    return Integer(lower, _inclusive(lower, upper), log=True)


def qrandint(lower: int, upper: int, q: int = 1) -> Integer:
    """A multiple of `q` with lower <= value <= upper."""
    return Integer(lower, upper, step=q)


def qlograndint(lower: int, upper: int, q: int, base: float = 10) -> Integer:
    """A multiple of `q` with lower <= value <= upper whose logarithm is about uniform."""
    return Integer(lower, upper, log=True, step=q)


def randn(mean: float = 0.0, sd: float = 1.0) -> Normal:
    """A normally distributed number."""
    return Normal(mean, sd)


def qrandn(mean: float, sd: float, q: float) -> Normal:
    """A normally distributed multiple of `q`."""
    return Normal(mean, sd, q)


def sample_from(function: Callable[..., Any]) -> SampleFrom:
    """What the function returns, given the rest: `lambda spec: spec.config.alpha * 2`, or `lambda c: c["alpha"] *
    2`.

    >>> space = {"layers": randint(1, 4), "width": sample_from(lambda config: 64 * config["layers"])}
    """
    if not callable(function):
        raise SearchSpaceError(f"sample_from needs a function, but got {function!r}")
    return SampleFrom(function)


_MAKERS = (
    grid_search,
    choice,
    uniform,
    quniform,
    loguniform,
    qloguniform,
    randint,
    lograndint,
    qrandint,
    qlograndint,
    randn,
    qrandn,
    sample_from,
)


# ---- walking ---------------------------------------------------------------------------------------


def as_domain(space: Any) -> Domain | None:
    """The domain that a node of a space is, if it is one."""
    if isinstance(space, Domain):
        return space
    if isinstance(space, Mapping) and len(space) == 1 and "grid_search" in space:
        values = space["grid_search"]
        if not isinstance(values, list | tuple) or not values:
            raise SearchSpaceError(f"grid_search needs a list with at least one value, but got {values!r}")
        return GridSearch(tuple(values))
    return None


def domains_of(space: Any, at: Path = ()) -> Iterator[tuple[Path, Domain]]:
    """Every domain with its path; those inside a choice follow it, with the index of their category in the path."""
    domain = as_domain(space)
    if domain is not None:
        yield at, domain
        members: Sequence[Any] = ()
        if isinstance(domain, Choice):
            members = domain.categories
        elif isinstance(domain, GridSearch):
            members = domain.values
        for index, member in enumerate(members):
            yield from domains_of(member, (*at, index))
    elif isinstance(space, Mapping):
        for key, value in space.items():
            yield from domains_of(value, (*at, key))
    elif isinstance(space, list | tuple):
        for index, value in enumerate(space):
            yield from domains_of(value, (*at, index))


def path_name(path: Path) -> str:
    return "/".join(str(part) for part in path)


def resolve(space: Mapping[str, Any], draw: Draw) -> dict[str, Any]:
    """One configuration. `draw(path, domain)` gives each domain's value, sample_from excepted, which runs last."""
    config = _resolve(space, draw, ())
    functions = dict(_functions_in(config))
    if functions:
        _FunctionCalls(config, functions, draw).run()
    return cast("dict[str, Any]", config)


def _resolve(space: Any, draw: Draw, at: Path) -> Any:
    domain = as_domain(space)
    if isinstance(domain, SampleFrom):
        return domain
    if domain is not None:
        value = draw(at, domain)
        members = domain.categories if isinstance(domain, Choice) else getattr(domain, "values", ())
        index = next((i for i, member in enumerate(members) if member is value), 0)
        return _resolve(value, draw, (*at, index)) if isinstance(value, Mapping | list | tuple | Domain) else value
    if isinstance(space, Mapping):
        return {key: _resolve(value, draw, (*at, key)) for key, value in space.items()}
    if type(space) in (list, tuple):
        return type(space)(_resolve(value, draw, (*at, index)) for index, value in enumerate(space))
    return space


def _functions_in(config: Any, at: Path = ()) -> Iterator[tuple[Path, SampleFrom]]:
    if isinstance(config, SampleFrom):
        yield at, config
    elif isinstance(config, dict):
        for key, value in config.items():
            yield from _functions_in(value, (*at, key))
    elif isinstance(config, list):
        for index, value in enumerate(config):
            yield from _functions_in(value, (*at, index))


class _FunctionCalls:
    """Calls the functions of a configuration, those that another one looks at before it."""

    def __init__(self, config: Any, functions: dict[Path, SampleFrom], draw: Draw) -> None:
        self.config = config
        self._waiting = functions
        self._draw = draw
        self._calling: list[Path] = []

    def run(self) -> None:
        while self._waiting:
            self.settle(next(iter(self._waiting)))

    def settle(self, path: Path) -> Any:
        if path in self._calling:
            names = " -> ".join(path_name(each) for each in (*self._calling, path))
            raise SearchSpaceError(f"sample_from functions need each other's values: {names}")
        self._calling.append(path)
        try:
            value = self._waiting[path].function(_SpecView(self, self.config, ()))
        except SearchSpaceError:
            raise
        except Exception as error:
            raise SearchSpaceError(f"sample_from of key {path_name(path)!r} failed: {error!r}") from error
        finally:
            self._calling.pop()
        del self._waiting[path]
        value = _resolve(value, self._draw, path)
        holder = self.config
        for part in path[:-1]:
            holder = holder[part]
        holder[path[-1]] = value
        return value


class _SpecView:
    """The configuration as a sample_from function sees it: items or attributes, and `.config` is the whole."""

    def __init__(self, calls: _FunctionCalls, value: Any, at: Path) -> None:
        self._calls, self._value, self._at = calls, value, at

    def __getitem__(self, key: Any) -> Any:
        if key == "config" and not self._at and "config" not in self._value:
            return self
        if isinstance(self._value, Mapping) and key not in self._value:
            known = ", ".join(map(str, self._value))
            raise SearchSpaceError(f"sample_from asked for key {path_name((*self._at, key))!r}; there are: {known}")
        value = self._value[key]
        path = (*self._at, key)
        if isinstance(value, SampleFrom):
            value = self._calls.settle(path)
        return _SpecView(self._calls, value, path) if isinstance(value, dict | list) else value

    def __getattr__(self, key: str) -> Any:
        if key.startswith("__"):
            raise AttributeError(key)
        return self[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._value)

    def __len__(self) -> int:
        return len(self._value)

    def get(self, key: Any, default: Any = None) -> Any:
        return self[key] if key in self._value else default


def check_space(space: Any) -> None:
    """Raise for what cannot be meant, naming the key."""
    if not isinstance(space, Mapping):
        raise SearchSpaceError(f"a search space must be a dictionary, but got {type(space).__name__}")
    _check_leaves(space, ())
    for path, domain in domains_of(space):
        if isinstance(domain, SampleFrom) and len(inspect.signature(domain.function).parameters) != 1:
            raise SearchSpaceError(f"sample_from of key {path_name(path)!r} must take one argument, the configuration")


def _check_leaves(space: Any, at: Path) -> None:
    """What is no domain but was meant to be one."""
    if inspect.isfunction(space) and space in _MAKERS:
        name = f"tune.{space.__name__}"
        raise SearchSpaceError(
            f"key {path_name(at)!r} is the function {name} itself: call it, {name}{inspect.signature(space)}"
        )
    if isinstance(space, Mapping):
        if len(space) == 1 and as_domain(space) is None:
            (only,) = space
            if nearest(str(only), ["grid_search"], cutoff=0.8):
                raise SearchSpaceError(f"key {path_name(at)!r} has {only!r} in it; did you mean 'grid_search'?")
        for key, value in space.items():
            _check_leaves(value, (*at, key))
    elif isinstance(space, list | tuple | Choice):
        for index, value in enumerate(space.categories if isinstance(space, Choice) else space):
            _check_leaves(value, (*at, index))


def _check_bounds(lower: float, upper: float, log: bool, step: float | None) -> None:
    for name, bound in (("lower", lower), ("upper", upper)):
        if isinstance(bound, bool) or not isinstance(bound, int | float) or not math.isfinite(bound):
            raise SearchSpaceError(f"{name} must be a finite number, but got {bound!r}")
    if not lower <= upper:
        raise SearchSpaceError(f"lower must be at most upper, but got {lower!r} and {upper!r}")
    if log and not lower > 0:
        raise SearchSpaceError(f"lower must be positive for a logarithmic domain, but got {lower!r}")
    if step is not None:
        above("q", step, error=SearchSpaceError)


def _inclusive(lower: int, upper: int) -> int:
    if not lower < upper:
        raise SearchSpaceError(
            f"upper must be more than lower, which it does not include, but got {lower!r}, {upper!r}"
        )
    return upper - 1


def _round_to(value: float, step: float) -> float:
    rounded = round(value / step) * step
    digits = max(0, 12 - math.floor(math.log10(abs(step))) - 1)
    return round(rounded, digits)
