"""No call waits for a node daemon that is dead, whatever it was about to be told."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import weft
from waiting import HANG_S, comes_true, wait_until
from weft import _native
from weft.engine.process.session import rpc
from weft.util import list_named_actors, state
from weft.util.placement_group import (
    get_placement_group,
    placement_group,
    placement_group_table,
)

MEMORY_BYTES = 80 << 20
HALF = bytes(48 << 20)
LOST = (weft.exceptions.NodeDiedError, weft.exceptions.LocalNodeDiedError, ConnectionError)


@weft.remote
class Counter:
    def add(self) -> int:
        return 1


@weft.remote
def one() -> int:
    return 1


@weft.remote
def block() -> None:
    threading.Event().wait()


@weft.remote(num_cpus=0)
def items() -> Iterator[int]:
    yield 1
    threading.Event().wait()


async def _awaited(ref: Any) -> Any:
    return await ref


class Prepared:
    """What the calls need, made while the daemon lives."""

    def __init__(self, context: Any) -> None:
        self.context = context
        self.actor = Counter.options(name="counter", num_cpus=0).remote()
        weft.get(self.actor.add.remote())
        self.placed = placement_group([{"CPU": 1}])
        assert self.placed.wait(60)
        self.pending = placement_group([{"CPU": 2}])  # behind the one that holds a CPU
        self.running = block.remote()
        self.items = items.remote()
        assert weft.get(next(self.items)) == 1
        self.spilled = weft.put(HALF)
        self.large = weft.put(HALF)  # which sends the one before to disk


CALLS: dict[str, Callable[[Prepared], Any]] = {
    "ready of a group": lambda it: weft.get(it.pending.ready()),
    "wait for a group": lambda it: it.pending.wait(10_000),
    "a new group": lambda it: weft.get(placement_group([{"CPU": 1}]).ready()),
    "a new group's wait": lambda it: placement_group([{"CPU": 1}]).wait(10_000),
    "a named group": lambda it: placement_group([{"CPU": 1}], name="named").wait(10_000),
    "a group by its name": lambda it: get_placement_group("nobody's"),
    "the table of groups": lambda it: placement_group_table(),
    "an actor by its name": lambda it: weft.get_actor("counter"),
    "a new actor's name": lambda it: Counter.options(name="other").remote(),
    "a new actor": lambda it: weft.get(Counter.remote().add.remote()),
    "a task": lambda it: weft.get(one.options(num_cpus=0.5).remote()),
    "wait for a task": lambda it: weft.get(weft.wait([one.remote()], num_returns=1)[0]),
    "a task under way": lambda it: weft.get(it.running),
    "an awaited task": lambda it: asyncio.run(_awaited(it.running)),
    "a future of a task": lambda it: it.running.future().result(),
    "a generator's next item": lambda it: weft.get(next(it.items)),
    "a placed group's readiness": lambda it: weft.get(it.placed.ready()),
    "a placed group's wait": lambda it: it.placed.wait(10_000),
    "a cancelled task": lambda it: (weft.cancel(it.running, force=True), weft.get(it.running)),
    "named actors": lambda it: list_named_actors(),
    "nodes": lambda it: weft.nodes(),
    "resources": lambda it: weft.cluster_resources(),
    "free resources": lambda it: weft.available_resources(),
    "actors": lambda it: state.list_actors(),
    "tasks": lambda it: state.list_tasks(),
    "objects": lambda it: state.list_objects(),
    "workers": lambda it: state.list_workers(),
    "jobs": lambda it: state.list_jobs(),
    "groups": lambda it: state.list_placement_groups(),
    "a value for a full store": lambda it: weft.put(HALF),
    "a value on disk": lambda it: weft.get(it.spilled),
    "waiting for a value on disk": lambda it: weft.get(weft.wait([it.spilled], num_returns=1)[0]),
    "a key": lambda it: rpc.request("kv_get", key="key", namespace=""),
    "a lasting value": lambda it: weft.put(1, durable=True),
    "the dashboard": lambda it: it.context.dashboard_url,
    "why": lambda it: weft.explain(it.running),
    "a timeline": lambda it: weft.timeline(),
}


@pytest.fixture
def prepared() -> Any:
    context = weft.init(num_cpus=2, object_store_memory=MEMORY_BYTES)
    try:
        yield Prepared(context)
    finally:
        weft.shutdown()


def _outcome(call: Callable[[Prepared], Any], prepared: Prepared, into: list[Any]) -> None:
    try:
        into.append(call(prepared))
    except BaseException as error:
        into.append(error)


def _sleeps(thread: threading.Thread) -> bool:
    """Whether it waits for something, or is over."""
    try:
        text = Path(f"/proc/self/task/{thread.native_id}/stat").read_text()
    except FileNotFoundError:
        return True
    return text.rpartition(")")[2].split()[0] == "S"


ANSWERED_ALL_THE_SAME = {
    "a placed group's readiness": 1,
    "a placed group's wait": 1,
    "a generator's next item": 1,
    "a cancelled task": 2,
    "why": 2,
}
"""How many of the two calls need no daemon: it was known already, or it is about what happened."""


@pytest.mark.parametrize("name", CALLS)
def test_a_call_ends_when_the_daemon_dies_and_each_later_one_too(name: str, prepared: Prepared) -> None:
    daemon = int(rpc.request("statistics")["daemon_pid"])
    found: list[Any] = []
    os.kill(daemon, signal.SIGSTOP)
    during = threading.Thread(target=_outcome, args=(CALLS[name], prepared, found), daemon=True)
    during.start()
    assert comes_true(lambda: _sleeps(during))
    os.kill(daemon, signal.SIGKILL)
    during.join(HANG_S / 2)  # a request gives up by itself after a minute, which is no answer
    assert not during.is_alive(), f"{name}: does not answer though the daemon is dead"
    wait_until(_native.is_lost)
    after = threading.Thread(target=_outcome, args=(CALLS[name], prepared, found), daemon=True)
    after.start()
    after.join(HANG_S / 2)
    assert not after.is_alive(), f"{name}: does not answer after the daemon's death"
    told = [isinstance(one, LOST) for one in found]
    assert told.count(False) <= ANSWERED_ALL_THE_SAME.get(name, 0), found
