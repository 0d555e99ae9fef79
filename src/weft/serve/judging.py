"""Looks at a canary until there is a verdict. Runs on the controller's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from weft.serve.board import ask
from weft.serve.canaries import JUDGE_S, Trial, Verdict
from weft.serve.overview import CANARY
from weft.serve.running import CanaryApplication, Running


async def judged(
    deployments: Mapping[str, Running], app: str, canary: CanaryApplication, is_wanted: Callable[[], bool]
) -> Verdict | None:
    """By its rule; None when it is not wanted any more."""
    assert canary.rule is not None
    trial = Trial(canary.rule)
    while True:
        await asyncio.sleep(JUDGE_S)
        if not is_wanted():
            return None
        looks = []
        for one in canary.built:
            old, new = deployments.get(f"{app}:{one.name}"), deployments.get(f"{app}:{one.name}{CANARY}")
            if old is not None and new is not None:
                looks.append((await ask(old), await ask(new)))
        if (verdict := trial.looked(looks)) is not None:
            return verdict
