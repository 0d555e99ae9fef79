"""Evaluation beside training: workers of their own play whole episodes while training goes on.

One evaluation runs at a time, with the weights of the moment it was asked for. A worker that dies is replaced, and its
share is played again.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

import weft
from weft.exceptions import ActorDiedError
from weft.rl.rollout import Blueprint, RolloutWorker
from weft.rl.stepping import Episode
from weft.rl.workers import WORKER_ENVIRONMENT

MOST_DEATHS = 5


@dataclasses.dataclass
class _Share:
    """What one worker plays."""

    worker: int
    episodes: int
    seed: int
    ref: Any


class EvaluationWorkers:
    """Some workers that evaluate; they take what the cores have left."""

    def __init__(self, blueprint: Blueprint, count: int) -> None:
        self._blueprint = weft.put(blueprint)
        self._actors = [self._start(index) for index in range(count)]
        self._shares: list[_Share] = []
        self._weights: Any = None
        self._iteration = 0
        self._deaths = 0

    @property
    def is_busy(self) -> bool:
        return bool(self._shares)

    def begin(self, weights: NDArray[np.float32], episodes: int, seed: int, iteration: int) -> None:
        """Start an evaluation of these weights."""
        self._weights, self._iteration, self._deaths = weft.put(weights), iteration, 0
        count = len(self._actors)
        for worker in range(count):
            share = len(range(worker, episodes, count))
            if share:
                self._shares.append(_Share(worker, share, seed + worker, self._ask(worker, share, seed + worker)))

    def finished(self, wait: bool = False) -> tuple[int, list[Episode]] | None:
        """(iteration of the weights, episodes) of an evaluation that has come to its end; else None."""
        if not self._shares:
            return None
        refs = [share.ref for share in self._shares]
        ready, _ = weft.wait(refs, num_returns=len(refs), timeout=None if wait else 0)
        if len(ready) < len(refs):
            return None
        episodes: list[Episode] = []
        for share in self._shares:
            episodes += self._result(share)
        self._shares = []
        return self._iteration, episodes

    def pids(self) -> list[int]:
        return [statistics["pid"] for statistics in weft.get([actor.statistics.remote() for actor in self._actors])]

    def close(self) -> None:
        for actor in self._actors:
            weft.kill(actor)
        self._actors, self._shares = [], []

    def _result(self, share: _Share) -> list[Episode]:
        while True:
            try:
                return list(weft.get(share.ref))
            except ActorDiedError:
                self._deaths += 1
                if self._deaths >= MOST_DEATHS:
                    raise
                self._actors[share.worker] = self._start(share.worker)
                share.ref = self._ask(share.worker, share.episodes, share.seed)

    def _ask(self, worker: int, episodes: int, seed: int) -> Any:
        return self._actors[worker].evaluate.remote(self._weights, episodes, seed)

    def _start(self, index: int) -> Any:
        actor_class: Any = weft.remote(RolloutWorker)
        return actor_class.options(num_cpus=0, runtime_env=WORKER_ENVIRONMENT).remote(self._blueprint, index)
