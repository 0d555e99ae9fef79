"""Where the ranks of a training stand when none of them says anything any more. Runs in the driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft
from weft.train.errors import HangError

__all__ = ["described_hang"]

ANSWER_S = 2.0
"""How long a rank may take to say where it is."""
_COLLECTIVE = ("/weft/train/group.py", "/torch/distributed/", "/jax/")


def described_hang(silent_s: float, members: Sequence[tuple[Any, str]]) -> HangError:
    """Of (actor, where it is) by rank. Suspects are those that cannot answer, or that are in no collective operation
    while others wait in one."""
    asked = [actor.stacks.remote() for actor, _ in members]
    weft.wait(asked, num_returns=len(asked), timeout=ANSWER_S)
    stacks = [_answer(ref) for ref in asked]
    waiting = {rank for rank, stack in enumerate(stacks) if stack is not None and _is_collective(stack)}
    suspects = tuple(rank for rank in range(len(members)) if waiting and rank not in waiting)
    suspects = suspects or tuple(rank for rank, stack in enumerate(stacks) if stack is None)
    blame = f"{_named(suspects)} not where the others wait" if suspects else "all of them are alike"
    lines = [f"no rank has reported for {silent_s:g} s; {blame}. Their loops stand here:"]
    for rank, ((_, place), stack) in enumerate(zip(members, stacks, strict=True)):
        said = f":\n{stack.rstrip()}" if stack is not None else f" did not answer within {ANSWER_S:g} s: {_MUTE}"
        lines.append(f"rank {rank} ({place}){said}")
    return HangError("\n".join(lines), suspects)


_MUTE = "its process is stopped, or native code holds the GIL"


def _named(ranks: Sequence[int]) -> str:
    listed = ", ".join(map(str, ranks))
    return f"rank {listed} is" if len(ranks) == 1 else f"ranks {listed} are"


def _answer(ref: Any) -> str | None:
    try:
        return str(weft.get(ref, timeout=0))
    except weft.exceptions.WeftError:
        return None


def _is_collective(stack: str) -> bool:
    return any(one in stack for one in _COLLECTIVE)
