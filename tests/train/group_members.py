"""Members: actors, each one rank of a group, that run what a test gives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
from weft import train


@weft.remote(num_cpus=0)
class MemberActor:
    def __init__(self, meeting: train.Meeting, rank: int, options: dict[str, Any]) -> None:
        self.meeting, self.rank, self.options = meeting, rank, options

    def join(self) -> None:
        self.group = self.meeting.join(self.rank, **self.options)

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(self.group, *args)

    def leave(self) -> None:
        del self.group


class Members:
    """All members of one group."""

    def __init__(self, size: int, slot_bytes: int | None, options: dict[str, Any]) -> None:
        meeting = train.Meeting(size, slot_bytes, backend=options.pop("backend", None))
        self.actors = [MemberActor.remote(meeting, rank, options) for rank in range(size)]
        weft.get([actor.join.remote() for actor in self.actors])

    def start(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        return [actor.run.remote(function, *args) for actor in self.actors]

    def run(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        return weft.get(self.start(function, *args))

    def errors(self, function: Callable[..., Any], *args: Any) -> list[Exception]:
        """What each member raised; a member that raised nothing fails the test."""
        return [error_of(ref) for ref in self.start(function, *args)]

    def end(self) -> None:
        for actor in self.actors:
            weft.kill(actor)


def error_of(ref: Any) -> Exception:
    try:
        value = weft.get(ref)
    except weft.exceptions.TaskError as error:
        if not isinstance(error.cause, Exception):
            raise
        return error.cause
    raise AssertionError(f"it returned {value!r} and raised nothing")
