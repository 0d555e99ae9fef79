"""Actors of one class that are called all at once.

>>> class Echo:
...     def say(self, word):
...         return word
>>> group = ActorGroup(Echo, num_actors=2)
>>> weft.get(group.say.remote("hello"))
['hello', 'hello']

New programs do as well with a list of handles, or with `weft.util.multiprocessing.Pool`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

import weft

__all__ = ["ActorGroup"]


class ActorGroup:
    """`num_actors` actors of a plain class. A method of the group calls that of every actor; a list of refs.

    The class must have `get_actor_metadata` where `actor_metadata` is used.

    >>> class Player:
    ...     def play(self, game): return f"plays {game}"
    >>> weft.get(ActorGroup(Player, num_actors=2).play.remote("go"))
    ['plays go', 'plays go']
    """

    def __init__(
        self,
        actor_cls: type,
        num_actors: int = 1,
        num_cpus_per_actor: float = 1,
        num_gpus_per_actor: float = 0,
        resources_per_actor: Mapping[str, float] | None = None,
        init_args: Iterable[Any] = (),
        init_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        if num_actors < 1:
            raise ValueError(f"num_actors must be at least 1, but got {num_actors}")
        if num_cpus_per_actor < 0 or num_gpus_per_actor < 0:
            raise ValueError(
                "num_cpus_per_actor and num_gpus_per_actor must not be negative, but got "
                f"{num_cpus_per_actor} and {num_gpus_per_actor}"
            )
        self._num_actors = num_actors
        self._class: Any = weft.remote(
            num_cpus=num_cpus_per_actor, num_gpus=num_gpus_per_actor, resources=dict(resources_per_actor or {})
        )(actor_cls)
        self._init_args = tuple(init_args)
        self._init_kwargs = dict(init_kwargs or {})
        self._actors: list[Any] = []
        self.start()

    def start(self) -> None:
        """Make the actors again after `shutdown`; RuntimeError while there are some."""
        if self._actors:
            raise RuntimeError("The actors have already been started. Call shutdown() first to start others.")
        self.add_actors(self._num_actors)

    def add_actors(self, num_actors: int) -> None:
        """So many more."""
        self._actors += [self._class.remote(*self._init_args, **self._init_kwargs) for _ in range(num_actors)]

    def remove_actors(self, actor_indexes: Iterable[int]) -> None:
        """Drop these actors; each ends once what it was given is done."""
        gone = set(actor_indexes)
        self._actors = [actor for index, actor in enumerate(self._actors) if index not in gone]

    def shutdown(self, patience_s: float = 5) -> None:
        """Let the actors finish what they have been given, for so long, then end them."""
        leaving = [actor.__ray_terminate__.remote() for actor in self._actors] if patience_s > 0 else []
        _, late = weft.wait(leaving, num_returns=len(leaving), timeout=patience_s) if leaving else ([], [])
        if late or patience_s <= 0:
            for actor in self._actors:
                weft.kill(actor)
        self._actors = []

    @property
    def actors(self) -> list[Any]:
        """Their handles."""
        return list(self._actors)

    @property
    def actor_metadata(self) -> list[Any]:
        """What each actor's `get_actor_metadata` returns."""
        return weft.get([actor.get_actor_metadata.remote() for actor in self._actors])

    def __len__(self) -> int:
        return len(self._actors)

    def __getitem__(self, index: int) -> Any:
        return self._actors[index]

    def __getattr__(self, name: str) -> _GroupMethod:
        if name.startswith("_"):
            raise AttributeError(name)
        if not self._actors:
            raise RuntimeError("This group has no actors: it was shut down. Call start() first.")
        for actor in self._actors:
            getattr(actor, name)  # AttributeError when the class has no such method
        return _GroupMethod(self, name)


class _GroupMethod:
    def __init__(self, group: ActorGroup, name: str) -> None:
        self._group = group
        self._name = name

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(f"A group's methods are called through .remote(): group.{self._name}.remote()")

    def remote(self, *args: Any, **kwargs: Any) -> list[Any]:
        """The refs, one per actor."""
        return [getattr(actor, self._name).remote(*args, **kwargs) for actor in self._group.actors]
