"""`@serve.deployment` and `.bind()`: what runs where, written down; nothing starts here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, overload

from weft.library.keywords import answers_attributes
from weft.serve.config import DeploymentConfig


@answers_attributes(
    deploy="write serve.run(deployment.bind())",
    remote="write handle = serve.run(deployment.bind()), then handle.remote(x).result()",
    run="write serve.run(deployment.bind())",
)
@dataclass(frozen=True)
class Deployment:
    """A class or a function with its settings. `bind` gives it the arguments of its constructor.

    >>> from weft import serve
    >>> @serve.deployment(num_replicas=2)
    ... class Scale:
    ...     def __init__(self, factor): self.factor = factor
    ...     def __call__(self, x): return self.factor * x
    >>> serve.run(Scale.bind(3), name="scale").remote(2).result()
    6
    >>> serve.delete("scale")
    """

    target: Callable[..., Any]
    name: str
    config: DeploymentConfig

    def bind(self, *args: Any, **kwargs: Any) -> Application:
        """An application of this deployment. Applications among the arguments become handles."""
        if not isinstance(self.target, type) and (args or kwargs):
            raise TypeError(f"{self.name} is a function: bind() takes no arguments, but got {args} {kwargs}")
        return Application(self, args, kwargs)

    def options(self, *, name: str | None = None, **changes: Any) -> Deployment:
        """The same with other settings."""
        return replace(self, name=name or self.name, config=self.config.changed(**changes))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"deployment {self.name} is not called directly: serve.run({self.name}.bind(...)) starts it")


@dataclass(frozen=True, eq=False)
class Application:
    """A bound deployment, and through its arguments those that it uses.

    >>> from weft import serve
    >>> @serve.deployment
    ... def one(_): return 1
    >>> @serve.deployment
    ... class PlusOne:
    ...     def __init__(self, one): self.one = one
    ...     async def __call__(self, x): return x + await self.one.remote(x)
    >>> application = PlusOne.bind(one.bind())
    >>> serve.run(application, name="plus_one").remote(41).result()
    42
    >>> serve.delete("plus_one")
    """

    deployment: Deployment
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@overload
def deployment(target: Callable[..., Any], /) -> Deployment: ...
@overload
def deployment(*, name: str | None = None, **options: Any) -> Callable[[Callable[..., Any]], Deployment]: ...
def deployment(
    target: Callable[..., Any] | None = None, /, *, name: str | None = None, **options: Any
) -> Deployment | Callable[[Callable[..., Any]], Deployment]:
    """Make a deployment of a class or of a function (plain, async, or a generator of either kind).

    The options are the fields of `DeploymentConfig`: num_replicas, max_ongoing_requests, autoscaling, user_config...

    >>> @deployment(num_replicas=2)
    ... class Doubler:
    ...     def __call__(self, x: int) -> int: return 2 * x
    >>> Doubler.config.num_replicas
    2
    """
    config = DeploymentConfig().changed(**options)

    def make(made: Callable[..., Any]) -> Deployment:
        if not callable(made):
            raise TypeError(f"@serve.deployment wants a class or a function, but got {made!r}")
        return Deployment(made, name or made.__name__, config)

    return make if target is None else make(target)
