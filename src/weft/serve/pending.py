"""Why a deployment is not healthy yet, in words for whoever waits for it. Runs on the controller's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import weft
from weft.serve.running import Running
from weft.serve.state import DeploymentState, ReplicaState

ASK_S = 2.0
_NAMES = {"num_cpus": "CPU", "num_gpus": "GPU"}


async def why_not_healthy(running: Running) -> str:
    state = running.state
    said = counted(state)
    if state.message:
        said += f"; the last that ended: {state.message}"
    if state.starting and running.actors:
        missing = await lacking(running)
        said += f"; {missing}" if missing else "; constructors or reconfigure() are under way"
    return said


def counted(state: DeploymentState) -> str:
    """
    >>> counted(DeploymentState("shop:Model", target=2))
    'deployment shop:Model has 0 of 2 replicas ready'
    """
    ready = sum(state.is_up_to_date(record) for record in state.replicas.values() if record.version == state.version)
    said = f"deployment {state.key} has {ready} of {state.target} replicas ready"
    for stage in (ReplicaState.STARTING, ReplicaState.DRAINING):
        count = sum(record.state is stage for record in state.replicas.values())
        if count:
            said += f", {count} {stage.value.lower()}"
    return said


async def lacking(running: Running) -> str:
    """What replicas need that no node has free, if that is what they wait for."""
    config = running.state.config
    needed = summed(config.placement_group_bundles) or needs(config.actor_options)
    if not needed:
        return ""
    try:
        free, total = await asyncio.wait_for(asyncio.to_thread(_resources), ASK_S)
    except Exception:  # a busy node: then this is not known now
        return ""
    return shortage(needed, free, total)


def _resources() -> tuple[Mapping[str, float], Mapping[str, float]]:
    return weft.available_resources(), weft.cluster_resources()


def needs(options: Mapping[str, Any]) -> dict[str, float]:
    """
    >>> needs({"num_cpus": 2, "resources": {"big": 1}, "max_restarts": 0})
    {'CPU': 2, 'big': 1}
    """
    found = {_NAMES[name]: count for name, count in options.items() if name in _NAMES and count}
    return {**found, **(options.get("resources") or {})}


def summed(bundles: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """
    >>> summed([{"CPU": 1}, {"CPU": 1, "GPU": 1}])
    {'CPU': 2, 'GPU': 1}
    """
    found: dict[str, float] = {}
    for name, amount in (pair for one in bundles for pair in one.items()):
        found[name] = found.get(name, 0) + amount
    return found


def shortage(needed: Mapping[str, float], free: Mapping[str, float], total: Mapping[str, float]) -> str:
    """
    >>> shortage({"CPU": 2}, {"CPU": 1}, {"CPU": 4})
    'a replica needs 2 CPU, but 1 of 4 is free'
    >>> shortage({"big": 1}, {}, {"CPU": 4})
    'a replica needs 1 big, but no node has any'
    """
    for name, count in needed.items():
        if name not in total:
            return f"a replica needs {count:g} {name}, but no node has any"
        if free.get(name, 0.0) < count:
            return f"a replica needs {count:g} {name}, but {free.get(name, 0.0):g} of {total[name]:g} is free"
    return ""
