"""Objects that something names which outlives all processes are there after the end of all processes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from test_started_again import Cluster, cluster  # noqa: F401  (a fixture)

import weft

LARGE = 100_000


@weft.remote(checkpoint=2, num_cpus=0, lifetime="detached")
class Shelf:
    """Holds refs in its state."""

    def __init__(self) -> None:
        self.refs: dict[str, Any] = {}

    def place(self, name: str, refs: list[Any]) -> int:
        self.refs[name] = refs[0]
        return len(self.refs)

    def make_own(self, name: str) -> None:
        self.refs[name] = added.remote(filled.remote(5), 1)

    def take(self, name: str) -> list[Any]:
        return [self.refs[name]]

    def remove(self, name: str) -> int:
        del self.refs[name]
        return len(self.refs)


@weft.remote(num_cpus=0)
def filled(number: int) -> np.ndarray:
    return np.full(LARGE, number)


@weft.remote(num_cpus=0)
def added(array: np.ndarray, number: int) -> np.ndarray:
    return array + number


def on_the_shelf(name: str) -> Any:
    (ref,) = weft.get(weft.get_actor("shelf").take.remote(name), timeout=30)
    return weft.get(ref, timeout=30)


def stored(cluster: Cluster, what: str, *options: str) -> list[dict[str, Any]]:  # noqa: F811
    told = cluster.cli("list", what, "--all", "--json", "--address", cluster.address, *options)
    assert told.returncode == 0, told.stderr
    rows: list[dict[str, Any]] = json.loads(told.stdout)
    return rows


def assert_the_store_tells(cluster: Cluster, *options: str) -> None:  # noqa: F811
    """What is kept, by what, how large it is and what makes it. In a folder every owner is dead; in a cluster that was
    started again an actor is the heir of what it holds as soon as it has its refs."""
    objects = {row["object_id"]: row for row in stored(cluster, "objects", *options)}
    tasks = {row["task_id"]: row for row in stored(cluster, "tasks", *options)}
    states = {row["owner_state"] for row in objects.values()}
    assert states == {"DEAD"} or (not options and states == {"DEAD", "ALIVE"})
    (named,) = [row for row in objects.values() if row["named_by"] == ["n/named"]]
    assert named["task_status"] == "FINISHED" and named["object_size"] > 8 * LARGE
    assert named["owner_state"] == "DEAD", "no process has a ref to it"
    (outer,) = [row for row in objects.values() if row["named_by"] == ["n/with a ref"]]
    inner = objects[outer["needs"][0]]
    maker = tasks[inner["task_id"]]
    assert (maker["name"], maker["results"], maker["required_resources"]) == ("added", [inner["object_id"]], {})
    (source,) = [objects[need] for need in maker["needs"]]
    assert tasks[source["task_id"]]["name"] == "filled"
    (shelf,) = {actor for row in objects.values() for actor in row["held_by_actors"]}
    held = [row for row in objects.values() if row["held_by_actors"] == [shelf]]
    assert len(held) >= 4  # "own" may be in a call that is to be replayed
    assert "deleted" not in str(objects)
    told = cluster.cli("list", "objects", "--all", "--address", cluster.address, *options).stdout
    assert "n/with a ref" in told and f"actor {shelf[:8]}" in told and "dead" in told


def test_refs_in_an_exact_state_are_read_or_rebuilt_after_each_of_two_full_stops(cluster: Cluster) -> None:  # noqa: F811
    try:
        cluster.start_head()
        cluster.add_node("--resources", '{"elsewhere": 1}')
        weft.init(address=cluster.address, namespace="n")
        shelf = Shelf.options(name="shelf").remote()
        weft.get(shelf.place.remote("small", [weft.put({"a": 1})]))
        weft.get(shelf.place.remote("made", [added.remote(added.remote(filled.remote(1), 2), 3)]))
        far = filled.options(resources={"elsewhere": 1}).remote(9)
        weft.get(shelf.place.remote("elsewhere", [added.remote(far, 1)]))
        weft.get(shelf.place.remote("durable", [weft.put(np.full(LARGE, 7), durable=True)]))
        weft.get(shelf.make_own.remote("own"))
        weft.put(np.full(LARGE, 8), durable=True, name="named")
        inner = added.remote(filled.remote(2), 2)
        weft.put({"inner": inner}, name="with a ref")
        weft.put(1, name="deleted")
        weft.delete_object("deleted")
        for _ in range(2):
            cluster.kill_all()
            assert_the_store_tells(cluster, "--store", str(cluster.store))
            cluster.start_head()
            assert_the_store_tells(cluster)
            weft.init(address=cluster.address, namespace="n")
            assert on_the_shelf("small") == {"a": 1}  # by a head that is alone
            cluster.add_node("--resources", '{"elsewhere": 1}')
            for _ in range(2):  # this driver is the heir, and has no ref in between
                assert on_the_shelf("small") == {"a": 1}
                assert on_the_shelf("made").tolist() == [6] * LARGE
                assert on_the_shelf("elsewhere").tolist() == [10] * LARGE
                assert on_the_shelf("durable").tolist() == [7] * LARGE
                assert on_the_shelf("own").tolist() == [6] * LARGE
                assert weft.get(weft.get_object("named"), timeout=30).tolist() == [8] * LARGE
                outer = weft.get(weft.get_object("with a ref"), timeout=30)
                assert weft.get(outer["inner"], timeout=30).tolist() == [4] * LARGE
            with pytest.raises(ValueError, match="no object has the name 'deleted'"):
                weft.get_object("deleted")
    finally:
        weft.shutdown()
        cluster.cli("stop", "--address", cluster.address)
