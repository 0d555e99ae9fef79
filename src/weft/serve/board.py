"""What is served, on the dashboard's page: applications, their deployments and replicas, queues and latencies.

Runs on the controller's loop; asks each replica once in `PUBLISH_S`. A busy node only makes the page older.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import weft
from weft.library.board import PUBLISH_S, Board, Curve
from weft.serve.latencies import Figures
from weft.serve.running import Running

ANSWER_S = 1.0
MOST_POINTS = 150
Described = dict[str, tuple[str | None, dict[str, Running]]]
"""By application: its route, and its deployments by name."""


class _Past:
    """Of one deployment: what was known at the last look, and the lines since."""

    def __init__(self) -> None:
        self.served: dict[str, int] = {}
        self.looked_s: float | None = None
        self.rate, self.p95 = Curve(MOST_POINTS), Curve(MOST_POINTS)

    def rate_of(self, figures: dict[str, Figures], now_s: float) -> float | None:
        """Requests a second since the last look; None at the first, which knows no time to divide by."""
        done = sum(max(0, one.served - self.served.get(replica, 0)) for replica, one in figures.items())
        rate = None if self.looked_s is None else done / max(now_s - self.looked_s, 1e-9)
        self.served, self.looked_s = {replica: one.served for replica, one in figures.items()}, now_s
        return rate


class ServeBoard:
    """`describe` tells what runs now."""

    def __init__(self, describe: Callable[[], Described]) -> None:
        self._describe = describe
        self._past: dict[str, _Past] = {}
        self._board = Board("serve", "applications")
        self._is_shown = False

    async def run(self) -> None:
        while True:
            await asyncio.sleep(PUBLISH_S)
            try:
                await self.publish()
            except (weft.exceptions.WeftError, OSError):
                continue  # a busy node: the next one comes soon

    async def publish(self) -> None:
        described = self._describe()
        if not described:
            if self._is_shown:
                self._is_shown = False
                await asyncio.to_thread(self._board.withdraw)
            return
        rows = [await self._application(name, *one) for name, one in described.items()]
        await asyncio.to_thread(self._board.show, {"applications": rows})
        self._is_shown = True

    async def _application(self, name: str, route: str | None, deployments: dict[str, Running]) -> dict[str, Any]:
        rows = [await self._deployment(f"{name}:{one}", one, running) for one, running in deployments.items()]
        return {"name": name, "route_prefix": route, "deployments": rows}

    async def _deployment(self, key: str, name: str, running: Running) -> dict[str, Any]:
        figures = await ask(running)
        past = self._past.setdefault(key, _Past())
        rate = past.rate_of(figures, time.monotonic())
        worst = [one.p95_s for one in figures.values() if one.p95_s is not None]
        if rate is not None:
            past.rate.add(time.time(), rate)
        if worst:
            past.p95.add(time.time(), max(worst))
        state = running.state
        replicas = [
            {"id": replica, "state": record.state.value, "ongoing": record.ongoing}
            | (figures[replica].row() if replica in figures else {})
            for replica, record in state.replicas.items()
        ]
        return {
            "name": name,
            "status": state.status.value,
            "message": state.message,
            "target": state.target,
            "waiting": state.waiting,
            "ongoing": state.ongoing,
            "limit": state.config.max_ongoing_requests,
            "requests_per_s": rate or 0.0,
            "replicas": replicas,
            "rate": past.rate.points,
            "p95": past.p95.points,
        }


async def ask(running: Running) -> dict[str, Figures]:
    """Of the replicas that answer soon."""
    asked = {name: running.actors[name] for name in running.state.routed if name in running.actors}
    answers = await asyncio.gather(
        *(asyncio.wait_for(actor.figures.remote(), ANSWER_S) for actor in asked.values()), return_exceptions=True
    )
    return {name: answer for name, answer in zip(asked, answers, strict=True) if isinstance(answer, Figures)}
