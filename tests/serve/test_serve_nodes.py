"""Deployments on several nodes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import weft
from waiting import wait_until
from weft import serve
from weft.serve.controller import NAME, NAMESPACE
from weft.serve.vault import NAME as VAULT
from weft.testing import Cluster
from weft.util.placement_group import get_current_placement_group
from weft.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from weft.util.state import list_workers

DEADLINE_S = 60
CLIENTS = 4


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        weft.init(address=made.address)
        yield made
        serve.shutdown()
    finally:
        weft.shutdown()
        made.shutdown()


@serve.deployment(num_replicas=2, actor_options={"num_cpus": 1}, retry_on_death=True)
class Where:
    async def __call__(self, x: int) -> tuple[int, str]:
        return x, weft.get_runtime_context().get_node_id()


def test_a_node_that_dies_under_load_loses_no_request(cluster: Cluster) -> None:
    far = cluster.add_node(num_cpus=1)
    handle = serve.run(Where.bind())
    seen: dict[str, int] = {}
    problems: list[Any] = []
    counted = threading.Condition()
    is_over = threading.Event()

    def ask(first: int) -> None:
        number = first
        while not is_over.is_set():
            responses = [handle.remote(number + i) for i in range(8)]
            for i, response in enumerate(responses):
                try:
                    x, node = response.result(DEADLINE_S)
                    assert x == number + i
                except Exception as error:
                    problems.append(error)
                    return
                with counted:
                    seen[node] = seen.get(node, 0) + 1
                    counted.notify_all()
            number += 8

    clients = [threading.Thread(target=ask, args=(1_000_000 * i,)) for i in range(CLIENTS)]
    for client in clients:
        client.start()
    try:
        with counted:
            assert counted.wait_for(lambda: len(seen) == 2 or problems, DEADLINE_S), seen
        cluster.remove_node(far, allow_graceful=False)
        cluster.add_node(num_cpus=1)
        with counted:
            assert counted.wait_for(lambda: len(seen) == 3 or problems, DEADLINE_S), seen
    finally:
        is_over.set()
        for client in clients:
            client.join()
    assert not problems, problems[:3]


def test_the_vault_is_on_another_node_than_the_controller_and_outlives_that(cluster: Cluster) -> None:
    far = cluster.add_node(num_cpus=1)
    handle = serve.run(Where.options(num_replicas=1).bind())
    vault = weft.get_actor(VAULT, namespace=NAMESPACE)
    before = weft.get(vault.pid.remote())
    places = {one["pid"]: one["node_id"] for one in list_workers()}
    assert places[before] == far.node_id
    cluster.remove_node(far, allow_graceful=False)
    assert weft.get(vault.pid.remote(), timeout=DEADLINE_S) != before
    updated = Where.options(num_replicas=1, max_ongoing_requests=5)  # which must make room for itself
    assert serve.run(updated.bind(), timeout_s=DEADLINE_S).remote(3).result(DEADLINE_S)[0] == 3
    assert handle.remote(4).result(DEADLINE_S)[0] == 4


def test_the_replica_of_this_node_is_asked_first(cluster: Cluster) -> None:
    cluster.add_node(num_cpus=1)
    handle = serve.run(Where.bind())
    own = weft.get_runtime_context().get_node_id()
    assert {handle.remote(0).result(DEADLINE_S)[1] for _ in range(20)} == {own}


def test_fronts_are_where_they_were_asked_for_and_all_addresses_are_told(cluster: Cluster) -> None:
    far = cluster.add_node(num_cpus=1)
    own = weft.get_runtime_context().get_node_id()
    for location, expected in (("here", [own, own]), ("every_node", sorted([own, far.node_id] * 2))):
        address = serve.start(serve.HTTPOptions(port=0, workers=2, location=location))
        fronts = weft.get(weft.get_actor(NAME, namespace=NAMESPACE).fronts.remote("http"))
        places = {one["pid"]: one["node_id"] for one in list_workers()}
        assert sorted(places[pid] for pid in weft.get([front.pid.remote() for front in fronts])) == expected
        assert serve.http_addresses()[0] == address, "on one machine both nodes have the same"
        if location == "every_node":
            later = cluster.add_node(num_cpus=1)
            wait_until(lambda node=later.node_id: node in nodes_of_fronts())  # type: ignore[misc]
            cluster.remove_node(later, allow_graceful=False)
            assert serve.http_addresses() == [address]
            wait_until(lambda wanted=expected: sorted(nodes_of_fronts()) == wanted)  # type: ignore[misc]
        serve.shutdown()


def nodes_of_fronts() -> list[str]:
    fronts = weft.get(weft.get_actor(NAME, namespace=NAMESPACE).fronts.remote("http"))
    places = {one["pid"]: one["node_id"] for one in list_workers()}
    try:
        return [places.get(pid, "") for pid in weft.get([front.pid.remote() for front in fronts], timeout=1)]
    except (weft.exceptions.ActorError, weft.exceptions.ActorUnschedulableError, weft.exceptions.GetTimeoutError):
        return []  # of a node that is gone, which is not known yet


def test_no_node_has_more_replicas_than_it_may(cluster: Cluster) -> None:
    cluster.add_node(num_cpus=1)
    limited = Where.options(num_replicas=3, actor_options={}, max_replicas_per_node=1)
    with pytest.raises(TimeoutError, match="every node has 1 of its replicas"):
        serve.run(limited.bind(), timeout_s=6)
    assert serve.status()["default"].deployments["Where"].replicas == {"RUNNING": 2, "STARTING": 1}
    cluster.add_node(num_cpus=1)
    handle = serve.run(limited.bind(), timeout_s=DEADLINE_S)
    ids = [handle.options(session_id=str(number)).remote(0).result(DEADLINE_S)[1] for number in range(30)]
    assert len(set(ids)) == 3
    serve.run(limited.options(max_ongoing_requests=7).bind(), timeout_s=DEADLINE_S)  # new ones get the places of old


@serve.deployment(placement_group_bundles=[{"CPU": 1}, {"CPU": 1}], placement_group_strategy="STRICT_SPREAD")
class Spanning:
    """Has a part on another node, as a model over several GPUs has."""

    def __call__(self) -> set[str]:
        def node() -> str:
            return weft.get_runtime_context().get_node_id()

        part = weft.remote(node).options(
            num_cpus=1,
            scheduling_strategy=PlacementGroupSchedulingStrategy(
                get_current_placement_group(), placement_group_bundle_index=1
            ),
        )
        return {node(), weft.get(part.remote())}


def test_a_replica_can_span_a_placement_group_which_ends_with_it(cluster: Cluster) -> None:
    cluster.add_node(num_cpus=1)
    handle = serve.run(Spanning.bind(), timeout_s=DEADLINE_S)
    assert len(handle.remote().result(DEADLINE_S)) == 2
    assert weft.available_resources().get("CPU", 0) == 0
    serve.run(Spanning.options(max_ongoing_requests=5).bind(), timeout_s=DEADLINE_S)  # which needs the same CPUs
    serve.delete()
    wait_until(lambda: weft.available_resources().get("CPU") == 2)
