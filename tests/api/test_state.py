"""`weft.util.state`: what there is, as the node daemon and its processes tell it."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import numpy as np
import pytest

import weft
from weft.util import placement_group, remove_placement_group
from weft.util.state import (
    get_actor,
    get_node,
    get_objects,
    get_placement_group,
    get_task,
    list_actors,
    list_cluster_events,
    list_jobs,
    list_nodes,
    list_placement_groups,
    list_tasks,
    list_workers,
    summarize_actors,
    summarize_objects,
    summarize_tasks,
)

pytestmark = pytest.mark.usefixtures("shared_weft_session")


@weft.remote(num_cpus=0)
class Gate:
    def __init__(self) -> None:
        self.opened = asyncio.Event()

    async def enter(self) -> None:
        await self.opened.wait()

    async def open(self) -> None:
        self.opened.set()


@weft.remote
def inner(gate: Any) -> None:
    weft.get(gate.enter.remote())


@weft.remote
def outer(gate: Any) -> Any:
    return weft.get(inner.remote(gate))


def test_tasks_are_listed_whoever_has_submitted_them() -> None:
    gate = Gate.remote()
    ref = outer.remote(gate)
    waiting = inner.options(name="behind").remote(ref)

    def states() -> dict[str, str]:
        return {row.name: row.state for row in list_tasks(limit=1000) if row.state != "FINISHED"}

    while states().get("Gate.enter") != "RUNNING":
        weft.wait([ref], timeout=0.01)
    found = states()
    assert found["outer"] == found["inner"] == "RUNNING"
    assert found["behind"] == "PENDING_ARGS_AVAIL"
    (row,) = list_tasks(filters=[("name", "=", "inner"), ("state", "=", "RUNNING")])
    assert row.worker_pid not in (None, os.getpid()) and row.owner_type == "WORKER" and row.type == "NORMAL_TASK"
    again = get_task(row.task_id)
    assert again is not None and again.name == "inner"
    assert summarize_tasks()["behind"] == {"PENDING_ARGS_AVAIL": 1}
    weft.get(gate.open.remote())
    weft.get(ref)
    weft.cancel(waiting)


def test_actors_are_listed_with_their_state_and_death() -> None:
    @weft.remote
    class Listed:
        def ping(self) -> int:
            return os.getpid()

    actor = Listed.options(name="listed").remote()
    pid = weft.get(actor.ping.remote())
    row = get_actor(actor._actor_id.hex())
    while row is not None and row.state == "PENDING_CREATION":  # its worker's word comes by another ring than the reply
        row = get_actor(actor._actor_id.hex())
    assert row is not None
    assert (row.state, row.class_name, row.name, row.pid) == ("ALIVE", "Listed", "listed", pid)
    weft.kill(actor)
    dead: list[Any] = []
    while not dead:  # kill() does not wait
        dead = list_actors(filters=[("class_name", "=", "Listed"), ("state", "=", "DEAD")])
    assert "kill" in dead[0].death_cause
    assert summarize_actors()["Listed"] == {"DEAD": 1}


def test_nodes_workers_and_drivers_are_listed() -> None:
    (node,) = list_nodes()
    assert node.is_head_node and node.state == "ALIVE" and node.resources_total["CPU"] == 2
    assert get_node(node.node_id) == node
    (driver,) = list_workers(filters=[("worker_type", "=", "DRIVER")])
    assert driver.pid == os.getpid() and driver.node_id == node.node_id
    pid = weft.get(weft.remote(os.getpid).remote())
    assert pid in [row.pid for row in list_workers() if row.worker_type == "WORKER"]
    assert driver.worker_id == weft.get_runtime_context().get_worker_id()
    worker = weft.get(weft.remote(lambda: (os.getpid(), weft.get_runtime_context().get_worker_id())).remote())
    assert worker in [(row.pid, row.worker_id) for row in list_workers()]
    assert [row.pid for row in list_jobs()] == [os.getpid()]


def test_objects_are_listed_by_their_owners() -> None:
    ref = weft.put(np.zeros(1 << 20))
    (row,) = get_objects(ref.hex())
    assert row.object_size >= 8 << 20 and row.is_in_shared_memory and row.pid == os.getpid()
    assert summarize_objects()[str(os.getpid())]["bytes"] >= 8 << 20
    assert get_objects("ff") == []


def test_placement_groups_are_listed() -> None:
    group = placement_group([{"CPU": 1}], name="shown")
    group.wait()
    row = get_placement_group(group.id.hex())
    assert row is not None
    assert (row.name, row.state) == ("shown", "CREATED") and row.bundles[0]["resources"] == {"CPU": 1.0}
    remove_placement_group(group)
    assert list_placement_groups(filters=[("name", "=", "shown")])[0].state == "REMOVED"


def test_long_listings_are_read_in_pages() -> None:
    actors = [Gate.remote() for _ in range(5)]
    weft.get([actor.open.remote() for actor in actors])
    everything = [row.actor_id for row in list_actors(limit=1000)]
    pages = [row.actor_id for start in range(0, len(everything), 2) for row in list_actors(limit=2, offset=start)]
    assert pages == everything
    assert len(list_actors(limit=3)) == 3


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"limit": -1}, ValueError, "limit must not be negative, but got -1"),
        ({"limit": "5"}, TypeError, "limit must be an int, but got '5'"),
        ({"limit": 10**9}, ValueError, "limit must be at most 10000"),
        ({"filters": [("state", ">", 1)]}, ValueError, "compares with '=' or '!=', but got '>'"),
        ({"filters": ["state"]}, ValueError, "a filter is"),
        ({"filters": [("colour", "=", 1)]}, ValueError, "no 'colour' to filter by, only node_id"),
    ],
)
def test_wrong_questions_are_refused(options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        list_nodes(**options)


def test_what_nobody_asked_for_is_in_the_chronicle() -> None:
    @weft.remote
    class Falling:
        def pid(self) -> int:
            return os.getpid()

        def fall(self) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

    def told_of(actor: Any) -> list[tuple[str, str]]:
        rows = list_cluster_events(filters=[("subject_id", "=", actor._actor_id.hex())])
        return [(row.severity, row.message) for row in rows]

    mortal, restarting, asked_to_end = Falling.remote(), Falling.options(max_restarts=1).remote(), Falling.remote()
    weft.get([actor.pid.remote() for actor in (mortal, restarting, asked_to_end)])
    weft.kill(asked_to_end)
    with pytest.raises(weft.exceptions.ActorDiedError):
        weft.get(mortal.fall.remote())
    with pytest.raises(weft.exceptions.ActorUnavailableError):
        weft.get(restarting.fall.remote())
    [(severity, message)] = told_of(mortal)
    assert severity == "ERROR" and "Falling" in message and "max_restarts=0" in message
    [(severity, message)] = told_of(restarting)
    assert severity == "WARNING" and "is restarting (1 of 1)" in message
    assert not told_of(asked_to_end)
    assert "the driver of job 1 attached" in list_cluster_events()[-1].message
