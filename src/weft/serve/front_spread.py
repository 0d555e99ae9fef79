"""HTTP fronts on every node: on those that come later, too, and on none that is gone. Runs on the controller's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import weft
from weft.exceptions import WeftError
from weft.util.scheduling_strategies import NodeAffinitySchedulingStrategy

LOOK_S = 1.0
START_S = 60.0
LASTING = {"num_cpus": 0, "lifetime": "detached", "max_restarts": -1, "max_task_retries": -1}
"""Options of a front's actor."""


@dataclass
class FrontSpread:
    """What is kept: how fronts are made, and which node has which."""

    options: Any
    first_node: str
    """Whose fronts were there before, and go to another node where this one dies: somebody must answer."""
    there: dict[str, list[Any]] = field(default_factory=dict)
    """Fronts by node."""

    async def keep(self, fronts: list[Any], changed: Callable[[], Any]) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                if await self.look(fronts):
                    changed()
            except (WeftError, OSError, asyncio.TimeoutError) as error:  # a node that came and went
                print(f"weft.serve: the fronts of all nodes are looked after again soon: {error!r}")

    async def look(self, fronts: list[Any]) -> bool:
        """Bring the list to what there should be; whether it has changed."""
        alive = {one["NodeID"] for one in await asyncio.to_thread(weft.nodes) if one["Alive"]} - {self.first_node}
        gone = [node for node in self.there if node not in alive]
        for node in gone:
            for front in self.there.pop(node):
                fronts.remove(front)
                weft.kill(front)
        new = sorted(alive - set(self.there))
        made = await asyncio.gather(*(self._start(node) for node in new))
        for node, its in zip(new, made, strict=True):
            self.there[node] = its
            fronts.extend(its)
        return bool(gone or new)

    async def _start(self, node: str) -> list[Any]:
        from weft.serve.http.front import HttpFront

        there = NodeAffinitySchedulingStrategy(node, soft=False)
        placed: Any = weft.remote(HttpFront).options(**LASTING, scheduling_strategy=there)
        controller = weft.get_runtime_context().current_actor
        made = [placed.remote(controller, self.options) for _ in range(self.options.workers)]
        try:
            await asyncio.wait_for(asyncio.gather(*(one.address.remote() for one in made)), START_S)
        except BaseException:
            for one in made:
                weft.kill(one)
            raise
        return made
