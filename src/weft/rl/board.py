"""A training run on the dashboard's page: reward and throughput over steps."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from weft.library.board import Board, Curve


class RunBoard:
    """Publishes now and then, and only where there is a session."""

    def __init__(self, algorithm: str, environment: Any) -> None:
        self._algorithm = algorithm
        self._environment = environment if isinstance(environment, str) else getattr(environment, "__name__", "?")
        self._rewards, self._throughput = Curve(), Curve()
        self._board = Board("rl", f"{algorithm} on {self._environment} (pid {os.getpid()})")

    def add(self, result: Mapping[str, Any]) -> None:
        """One result of `train()`."""
        steps = float(result["timesteps_total"])
        rate = float(result["timesteps_this_iter"]) / max(float(result["time_this_iter_s"]), 1e-9)
        self._rewards.add(steps, float(result["episode_reward_mean"]))
        self._throughput.add(steps, rate)
        if not self._board.is_due():
            return
        shown = {
            "algorithm": self._algorithm,
            "environment": self._environment,
            "steps": int(steps),
            "steps_per_second": rate,
            "rewards": self._rewards.points,
            "throughput": self._throughput.points,
        }
        self._board.show(shown)
