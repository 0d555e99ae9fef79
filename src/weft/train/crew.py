"""The worker processes of a trainer: those that are there, and those that are wanted. Runs in the driver.

All that are wanted are asked of the engine at once. Those for which there is no room wait there, and are the workers
that a running trainer gains when room comes.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import weft
from weft.train.errors import WorkersLostError
from weft.train.worker import CONTROL, Place, TrainWorker

__all__ = ["Crew", "Member"]

PATIENCE_S = 2.0
"""How long those that could be there at once are waited for, when there are enough without them."""
LOOK_S = 0.1
_NAMES = {"cpu": "CPU", "num_cpus": "CPU", "gpu": "GPU", "num_gpus": "GPU"}


@dataclass(eq=False)
class Member:
    actor: Any
    coming: Any
    place: Place | None = None


class Crew:
    def __init__(self, most: int, least: int, resources: Mapping[str, float], start_timeout_s: float) -> None:
        self._most, self._least = most, least
        self._start_timeout_s = start_timeout_s
        named = {_NAMES.get(name, name): amount for name, amount in resources.items()}
        self._resources = named
        self._options = {
            "num_cpus": named.get("CPU", 1),
            "num_gpus": named.get("GPU", 0),
            "resources": {name: amount for name, amount in named.items() if name not in ("CPU", "GPU")},
            "max_restarts": 0,
        }
        self._members: list[Member] = []

    def assemble(self) -> list[Member]:
        """Those that are there: all, or after a while at least the fewest that are enough."""
        began = time.monotonic()
        while True:
            self._fill()
            self.notice()
            present = [member for member in self._members if member.place is not None]
            waited = time.monotonic() - began
            if len(present) == self._most or (len(present) >= self._least and waited > PATIENCE_S):
                return present
            if waited > self._start_timeout_s:
                raise WorkersLostError(
                    f"only {len(present)} of at least {self._least} workers could be started within "
                    f"{self._start_timeout_s:g} s: each needs {self._resources or {'CPU': 1}}, and the cluster has "
                    f"{weft.available_resources()} free. Ask for fewer workers or smaller ones."
                )
            coming = [member.coming for member in self._members if member.place is None]
            if coming:
                weft.wait(coming, timeout=LOOK_S)

    def _fill(self) -> None:
        worker: Any = weft.remote(concurrency_groups={CONTROL: 2})(TrainWorker).options(**self._options)
        while len(self._members) < self._most:
            actor = worker.remote()
            self._members.append(Member(actor, actor.place.remote()))

    def notice(self) -> int:
        """Look who has come; how many there are."""
        for member in [member for member in self._members if member.place is None]:
            if weft.wait([member.coming], timeout=0)[0]:
                try:
                    member.place = weft.get(member.coming)
                except weft.exceptions.ActorError:  # its process died while it started
                    self.drop(member)
        return sum(member.place is not None for member in self._members)

    def drop(self, member: Member) -> None:
        """End it with whatever runs in it."""
        if member in self._members:
            self._members.remove(member)
        with contextlib.suppress(weft.exceptions.WeftError):  # it may be dead already
            weft.kill(member.actor)

    def close(self) -> None:
        for member in list(self._members):
            self.drop(member)
