"""How often the state of an actor that must not lose it is kept: `checkpoint=` of `@weft.remote`. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

EVERY_CALLS = 100
EVERY_BYTES = 64 << 20


@dataclass(frozen=True)
class CheckpointPolicy:
    """A checkpoint after so many calls, or once the recorded calls take so many bytes, whichever comes first.

    Often: each costs a pickle of the state. Seldom: a restart runs the calls since the last one again.

    >>> weft.actor.CheckpointPolicy(every_calls=10).every_calls
    10
    """

    every_calls: int = EVERY_CALLS
    every_bytes: int = EVERY_BYTES

    def __post_init__(self) -> None:
        for name, value in (("every_calls", self.every_calls), ("every_bytes", self.every_bytes)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a positive integer, but got {value!r}")


def policy_of(given: Any) -> CheckpointPolicy | None:
    """From the option: a number of calls, a policy, or None."""
    return given if given is None or isinstance(given, CheckpointPolicy) else CheckpointPolicy(every_calls=given)
