"""How many objects a node pulls at once, so that what is on its way always has memory set aside for it.

Pure. Memory is claimed before the first byte is asked for. What finds none waits in line until another pull ends; when
none is under way, only others could make room, and whoever knows of none lets it fail.

>>> sizes, room = {"a": 60, "b": 60, "c": 40}, [100]
>>> def claim(key):
...     fits = sizes[key] <= room[0]
...     room[0] -= sizes[key] if fits else 0
...     return fits
>>> admission = Admission()
>>> [admission.asked(key, claim) for key in sizes]
[['a'], [], []]
>>> room[0] += 60
>>> admission.ended("a", claim)
['b', 'c']
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

MOST_AT_ONCE = 16
Key = TypeVar("Key")


class Admission(Generic[Key]):
    """The line of pulls in front of a node's memory, in order.

    `claim` sets memory aside for one; False when there is no room now."""

    def __init__(self) -> None:
        self._waiting: deque[Key] = deque()
        self._active: set[Key] = set()

    def asked(self, key: Key, claim: Callable[[Key], bool]) -> list[Key]:
        """What may begin now."""
        self._waiting.append(key)
        return self._admit(claim)

    def ended(self, key: Key, claim: Callable[[Key], bool]) -> list[Key]:
        """A pull is over, or is wanted no more. What may begin now."""
        self._active.discard(key)
        if key in self._waiting:
            self._waiting.remove(key)
        return self._admit(claim)

    def tried_again(self, claim: Callable[[Key], bool]) -> list[Key]:
        """There may be room now. What may begin."""
        return self._admit(claim)

    @property
    def is_stuck(self) -> bool:
        """Whether something waits though nothing is under way that could make room."""
        return bool(self._waiting) and not self._active

    def take_hopeless(self) -> Key | None:
        """What waits first though nothing is under way that could make room; it waits no longer. Then say `ended`."""
        return self._waiting.popleft() if self.is_stuck else None

    def _admit(self, claim: Callable[[Key], bool]) -> list[Key]:
        begun: list[Key] = []
        while self._waiting and len(self._active) < MOST_AT_ONCE and claim(self._waiting[0]):
            key = self._waiting.popleft()
            self._active.add(key)
            begun.append(key)
        return begun
