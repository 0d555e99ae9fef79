"""A training run on the dashboard's page: reward and throughput over steps."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from typing import Any

import weft
from weft.util import board

PUBLISH_S = 2.0


class RunBoard:
    """Publishes at most once in `PUBLISH_S`, and only where there is a session."""

    def __init__(self, algorithm: str, environment: Any) -> None:
        self._algorithm = algorithm
        self._environment = environment if isinstance(environment, str) else getattr(environment, "__name__", "?")
        self._rewards, self._throughput = board.Curve(), board.Curve()
        self._published_s = 0.0

    def add(self, result: Mapping[str, Any]) -> None:
        """One result of `train()`."""
        steps = float(result["timesteps_total"])
        rate = float(result["timesteps_this_iter"]) / max(float(result["time_this_iter_s"]), 1e-9)
        self._rewards.add(steps, float(result["episode_reward_mean"]))
        self._throughput.add(steps, rate)
        if time.monotonic() - self._published_s < PUBLISH_S or not weft.is_initialized():
            return
        self._published_s = time.monotonic()
        shown = {
            "algorithm": self._algorithm,
            "environment": self._environment,
            "steps": int(steps),
            "steps_per_second": rate,
            "rewards": self._rewards.points,
            "throughput": self._throughput.points,
        }
        with contextlib.suppress(weft.exceptions.RpcError):  # a busy node: the next one comes soon
            board.publish("rl", f"{self._algorithm} on {self._environment} (pid {os.getpid()})", shown)
