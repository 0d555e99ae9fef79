"""Ray's words where `import ray` finds Weft. Run by `test_ray_words.py`, with `python -m weft.compat`."""

from __future__ import annotations

import collections
import copy
import logging
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import ray
import ray.util.collective as collective
from ray.dag import InputNode, MultiOutputNode
from ray.exceptions import ActorDiedError, RayTaskError, TaskCancelledError
from ray.util.collective.types import ReduceOp

from waiting import comes_true


@pytest.fixture(scope="module", autouse=True)
def session() -> Iterator[Any]:
    with ray.init(num_cpus=2, dashboard_port=0, dashboard_host="127.0.0.2", labels={"zone": "here"}) as context:
        yield context


@ray.remote
def add(x: int, y: int = 0) -> int:
    return x + y


@ray.remote
class Counter:
    def __init__(self, start: int = 0) -> None:
        self.value = start

    def inc(self, amount: int) -> int:
        self.value += amount
        return self.value

    def get(self) -> int:
        return self.value

    @ray.method(num_returns=2)
    def both(self) -> tuple[int, int]:
        return self.value, -self.value


def is_dead(counter: Any) -> bool:
    try:
        ray.get(counter.get.remote())
    except ray.exceptions.RayActorError:
        return True
    return False


def test_the_dashboard_listens_where_init_says(session: Any) -> None:
    assert session["webui_url"].startswith("http://127.0.0.2:")


def test_functions_actors_and_methods_are_submitted_with_their_options_at_once() -> None:
    assert ray.get(add._remote(args=[1], kwargs={"y": 2}, num_cpus=1, name=None)) == 3
    first, second = add._remote((1,), num_returns=1), add._remote([5])
    assert ray.get([first, second]) == [1, 5]
    counter = Counter._remote(args=[7], num_cpus=0, name="of-remote")
    assert ray.get(counter.inc._remote(args=(3,))) == 10
    assert ray.get(ray.get_actor("of-remote").get._remote()) == 10
    one, other = counter.both._remote(num_returns=2)
    assert ray.get([one, other]) == [10, -10]


def test_a_cancelled_task_is_caught_as_a_failed_one() -> None:
    @ray.remote
    def forever() -> None:
        import threading

        threading.Event().wait()

    @ray.remote
    def gets(refs: list[Any]) -> str:
        try:
            ray.get(refs[0])
        except RayTaskError as error:
            return f"caught {isinstance(error, TaskCancelledError)}"
        return "nothing"

    ref = forever.remote()
    ray.cancel(ref)
    with pytest.raises(RayTaskError) as caught:
        ray.get(ref)
    assert isinstance(caught.value, TaskCancelledError) and "cancelled" in str(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is TaskCancelledError and str(again) == str(caught.value)
    assert ray.get(gets.remote([ref])) == "caught True"


def test_errors_are_told_in_the_words_of_ray() -> None:
    @ray.remote
    def fails() -> None:
        raise ValueError("inner")

    @ray.remote
    def gets() -> None:
        ray.get(fails.remote())

    with pytest.raises(ValueError, match="inner") as caught:
        ray.get(gets.remote())
    assert "ray.exceptions.RayTaskError(ValueError): ray::fails()" in str(caught.value)
    made = RayTaskError("f", "text", KeyError("k")).make_dual_exception_instance()
    assert isinstance(pickle.loads(pickle.dumps(made)), KeyError)
    assert "Failed to deserialize exception" in str(ray.exceptions.UnserializableException("text"))


def test_an_actors_end_is_told_in_the_words_of_ray() -> None:
    killed, dead, owner = (Counter.remote() for _ in range(3))
    owned = ray.get(owner.__ray_call__.remote(lambda self: [Counter.remote()]))[0]
    ray.get([dead.get.remote(), owned.get.remote()])
    ray.kill(killed)
    ray.kill(owner)
    ends = {
        killed: "it was killed by `ray.kill`",
        dead: "its worker process has died",
        owned: "its owner has died",
    }
    with pytest.raises(ActorDiedError, match="its worker process has died"):
        ray.get(dead.__ray_call__.remote(lambda self: os._exit(1)))
    for actor, words in ends.items():
        assert comes_true(lambda actor=actor: is_dead(actor))  # kill() is a request
        with pytest.raises(ActorDiedError, match=f"The actor is dead because {words}"):
            ray.get(actor.get.remote())


def test_other_labels_will_do_where_the_first_are_not_found() -> None:
    (node,) = ray.nodes()
    others = [{"label_selector": {"zone": "nowhere"}}, {"label_selector": {"ray.io/node-id": node["NodeID"]}}]
    chosen = add.options(label_selector={"zone": "there"}, fallback_strategy=others)
    assert node["Labels"] == {"zone": "here", "ray.io/node-id": node["NodeID"]}
    assert ray.get(chosen.remote(1)) == 1


def test_the_types_of_refs_are_found_where_annotations_name_them() -> None:
    from ray._raylet import ObjectRef, ObjectRefGenerator

    @ray.remote
    def count() -> Iterator[int]:
        yield from range(3)

    assert isinstance(ray.put(1), ObjectRef)
    stream = count.remote()
    assert isinstance(stream, ObjectRefGenerator)
    assert [ray.get(ref) for ref in stream] == [0, 1, 2]


def test_the_logger_has_the_name_of_ray() -> None:
    assert ray.logger is logging.getLogger("ray")


def test_progress_is_counted_in_the_driver_and_printed_by_workers(capfd: pytest.CaptureFixture[str]) -> None:
    from ray.experimental import tqdm_ray

    assert list(tqdm_ray.tqdm(range(3), desc="here")) == [0, 1, 2]

    @ray.remote
    def work() -> int:
        bar = tqdm_ray.tqdm(total=4, desc="there", flush_interval_s=1000)
        for _ in range(4):
            bar.update()
        bar.close()
        return bar.n

    assert ray.get(work.remote()) == 4


def test_the_private_parts_that_packages_use_are_there() -> None:
    from ray._private import services
    from ray._private.internal_api import memory_summary
    from ray._private.worker import global_worker

    (node,) = ray.nodes()
    assert ray._private.state.available_resources_per_node()[node["NodeID"]]["CPU"] <= 2
    assert ray._private.state.total_resources_per_node()[node["NodeID"]]["CPU"] == 2
    group = ray.util.placement_group([{"CPU": 1}])
    ray.get(group.ready())
    assert ray._private.state.state.placement_group_table(group.id)["state"] == "CREATED"
    ray.util.remove_placement_group(group)
    assert services.get_node_ip_address() == node["NodeManagerAddress"]
    assert global_worker.connected and global_worker.mode == ray.SCRIPT_MODE
    assert global_worker.current_node_id.hex() == node["NodeID"]
    assert "of the object store in use" in memory_summary()

    @ray.remote
    def mode() -> Any:
        from ray._private.worker import global_worker

        return global_worker.mode

    assert ray.get(mode.remote()) == ray.WORKER_MODE


# ---- lazy graphs -----------------------------------------------------------------------------------


def test_a_graph_runs_when_it_is_executed_and_each_node_once() -> None:
    counter = Counter.remote()
    once = counter.inc.bind(1)
    graph = add.bind(once, once)
    assert ray.get(counter.get.remote()) == 0
    assert ray.get(graph.execute()) == 2
    assert ray.get(graph.execute()) == 4
    assert ray.get(add.options(num_cpus=1).bind(1, y=2).execute()) == 3


def test_the_input_of_a_graph_is_what_execute_is_given() -> None:
    with InputNode() as given:
        graph = add.bind(given, given)
        by_number = add.bind(given[0], given[1])
        by_name = add.bind(given.x, y=given["y"])
    assert ray.get([graph.execute(3), graph.execute(4)]) == [6, 8]
    assert ray.get(by_number.execute(1, 2)) == 3
    assert ray.get(by_name.execute(x=5, y=6)) == 11
    assert ray.get(add.bind(given.real, 1).execute(7)) == 8
    with pytest.raises(ValueError, match="give execute\\(\\) its input"):
        graph.execute()


def test_an_actor_of_a_graph_is_made_anew_and_its_calls_keep_their_order() -> None:
    first = Counter.bind(10)
    assert ray.get(first.get.bind().execute()) == 10
    second = Counter.options(num_cpus=0).bind(10)
    first.inc.bind(2)
    first.inc.bind(4)
    second.inc.bind(6)
    graph = add.bind(first.get.bind(), second.get.bind())
    assert [ray.get(graph.execute()), ray.get(graph.execute())] == [32, 32]
    assert ray.get(ray.get_runtime_context and Counter.bind(3).execute().get.remote()) == 3


def test_several_results_and_nodes_inside_of_containers() -> None:
    counter = Counter.remote(5)

    @ray.remote
    def total(values: list[Any]) -> int:
        return sum(ray.get(values))

    with InputNode() as given:
        one, other = counter.both.bind()
        graph = MultiOutputNode([add.bind(given, 1), one, other, total.bind([add.bind(given), add.bind(2)])])
    assert ray.get(graph.execute(1)) == [2, 5, -5, 3]


def test_a_long_chain_of_calls_needs_no_deep_stack() -> None:
    node: Any = 0
    for _ in range(3000):
        node = add.bind(node, 1)
    assert ray.get(node.execute()) == 3000


def test_a_compiled_graph_gives_what_the_graph_gives_until_it_is_torn_down() -> None:
    counter = Counter.remote()
    with InputNode() as given:
        compiled = counter.inc.bind(given).experimental_compile()
    assert [ray.get(compiled.execute(2)), ray.get(compiled.execute(3))] == [2, 5]
    compiled.teardown(kill_actors=True)
    with pytest.raises(RuntimeError, match="torn down"):
        compiled.execute(1)
    assert comes_true(lambda: is_dead(counter))


def test_what_no_node_can_hold_waits() -> None:
    ready, waiting = ray.wait(
        [add.options(num_gpus=3).remote(1), Counter.options(num_cpus=50).remote().get.remote()], timeout=0.1
    )
    assert not ready and len(waiting) == 2


def reciprocal(number: int) -> float:
    return 1 / number


def test_a_pools_imap_gives_exceptions_in_their_places() -> None:
    from ray.util.multiprocessing import Pool

    with Pool(2) as pool:
        results = list(pool.imap(reciprocal, [1, 0, 2], chunksize=2))
        assert [results[0], results[2]] == [1.0, 0.5] and isinstance(results[1], ZeroDivisionError)
        assert sum(isinstance(result, Exception) for result in pool.imap_unordered(reciprocal, [0, 1, 0])) == 2


def test_who_asked_for_no_gpu_sees_what_the_driver_sees() -> None:
    @ray.remote
    def seen() -> tuple[str | None, dict[str, list[str]]]:
        return os.environ.get("CUDA_VISIBLE_DEVICES"), ray.get_runtime_context().get_accelerator_ids()

    shown, devices = ray.get(seen.remote())
    assert shown == os.environ.get("CUDA_VISIBLE_DEVICES")
    assert devices["GPU"] == devices["TPU"] == devices["neuron_cores"] == []
    there = ray.get(seen.options(runtime_env={"env_vars": {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1"}}).remote())
    assert there[0] == ""


@ray.remote
def fail() -> None:
    raise KeyError("here")


def test_a_callback_is_told_the_value_or_the_error() -> None:
    told: list[Any] = []
    for ref in (ray.put(5), fail.remote()):
        ref._on_completed(told.append)
    assert comes_true(lambda: len(told) == 2)
    assert told[0] == 5 and isinstance(told[1], KeyError)


def test_memory_is_counted_in_whole_bytes_and_settings_are_the_first_nodes() -> None:
    program = """
import pytest, ray
with ray.init(num_cpus=1, _memory=2.2):
    assert ray.cluster_resources()["memory"] == 2
    fits, waits = [ray.remote(lambda: 0).options(memory=wanted).remote() for wanted in (2.9, 3.1)]
    assert ray.get(fits) == 0 and not ray.wait([waits], timeout=0.1)[0]
    with pytest.raises(ValueError, match="_system_config"):
        ray.init("auto", _system_config={"a": 1})
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr


def test_a_temporary_folder_is_an_absolute_path() -> None:
    with pytest.raises(ValueError, match="absolute"):
        ray.init(_temp_dir="here", ignore_reinit_error=True)


def test_the_client_is_a_driver_like_others() -> None:
    import ray.util.client

    assert not ray.util.client.ray.is_connected()
    assert ray.util.client.ray.get is ray.get
    assert ray.client("127.0.0.1:10001").namespace("here").address == "127.0.0.1:10001"
    with pytest.raises(RuntimeError, match="twice"):
        ray.util.connect("127.0.0.1:10001")


def hold(index: int) -> tuple[int, int]:
    return index, os.getpid()


def end_where(pid: int) -> None:
    if os.getpid() == pid:
        os.kill(pid, signal.SIGKILL)


def test_a_pools_map_gives_each_worker_as_many_calls() -> None:
    from ray.util.multiprocessing import Pool

    with Pool(2) as pool:
        for found in (pool.map(hold, range(64)), pool.starmap_async(hold, zip(range(64))).get()):
            assert [index for index, _ in found] == [*range(64)]
            assert [*collections.Counter(pid for _, pid in found).values()] == [32, 32]
        with pytest.raises(ray.exceptions.ActorDiedError):
            pool.map(end_where, [found[0][1]] * 8, chunksize=1)
        assert comes_true(lambda: len({pid for _, pid in pool.map(hold, range(8))}) == 2)


@ray.remote(num_cpus=0)
class Member:
    def join(self, size: int, rank: int) -> None:
        collective.init_collective_group(size, rank, "gloo")

    def leave(self, group: str) -> tuple[int, bool]:
        collective.destroy_collective_group(group)
        return collective.get_rank(group), collective.is_group_initialized(group)

    def all(self, group: str, array: Any) -> dict[str, Any]:
        """What each operation leaves in the arrays."""
        rank, left = collective.get_rank(group), {"size": collective.get_collective_group_size(group)}
        for name, of in (("reduce", collective.reduce), ("broadcast", collective.broadcast)):
            left[name] = copy.copy(array)
            of(left[name], 0, group)
        left["gathered"] = [copy.copy(array), copy.copy(array)]
        collective.allgather(left["gathered"], array, group)
        left["scattered"] = copy.copy(array)
        collective.reducescatter(left["scattered"], [array, array * 10], group, ReduceOp.MAX)
        left["sent"] = copy.copy(array)
        if rank == 0:
            collective.send(left["sent"], 1, group)
        else:
            collective.recv(left["sent"], 0, group)
        collective.barrier(group)
        return {key: value if key == "size" else np.asarray(value).tolist() for key, value in left.items()}

    def sum(self, group: str, number: float) -> float:
        array = np.full(3, number)
        collective.allreduce(array, group)
        return float(array[0])


def test_a_collective_group_works_in_place_and_can_be_made_again() -> None:
    members = [Member.remote() for _ in range(2)]
    for _ in range(2):
        ray.get([member.join.remote(2, rank) for rank, member in enumerate(members)])
        arrays = [np.full(2, rank + 1.0) for rank in range(2)]
        first, second = ray.get([m.all.remote("default", a.copy()) for m, a in zip(members, arrays, strict=True)])
        assert (first["size"], first["reduce"], second["reduce"]) == (2, [3, 3], [2, 2])
        assert second["broadcast"] == second["sent"] == [1, 1]
        assert first["gathered"] == second["gathered"] == [[1, 1], [2, 2]]
        assert (first["scattered"], second["scattered"]) == ([2, 2], [20, 20])
        assert ray.get([member.leave.remote("default") for member in members]) == [(-1, False)] * 2


def test_actors_that_were_declared_a_group_join_at_their_first_operation() -> None:
    members = [Member.remote() for _ in range(2)]
    collective.create_collective_group(members, 2, [1, 0], "gloo", "declared")
    assert ray.get([member.sum.remote("declared", 2.0) for member in members]) == [4, 4]
    with pytest.raises(RuntimeError, match="the collective group 'declared' is declared already: destroy it first"):
        collective.create_collective_group(members, 2, [1, 0], "gloo", "declared")
    ray.get([member.leave.remote("declared") for member in members])
    collective.destroy_collective_group("declared")
    with pytest.raises(RuntimeError, match="this process is in no collective group 'declared'"):
        ray.get(members[0].sum.remote("declared", 2.0))


def test_a_collective_group_that_cannot_be_says_why() -> None:
    assert (collective.gloo_available(), collective.nccl_available()) == (True, False)
    with pytest.raises(RuntimeError, match="the backend 'NCCL' of the collective group 'default' is not there"):
        collective.init_collective_group(2, 0)
    with pytest.raises(ValueError, match="a group of 2 has as many actors, with ranks from 0 on, but got 1"):
        collective.create_collective_group([Member.remote()], 2, [0, 2], "gloo")
    with pytest.raises(RuntimeError, match="this process is in no collective group 'no such'"):
        collective.barrier("no such")


def test_where_an_object_is_can_be_asked() -> None:
    from ray.experimental import get_local_object_locations, get_object_locations

    large, small, never = ray.put(np.zeros(1 << 20)), ray.put("small"), add.options(resources={"none": 1}).remote(1)
    here = ray.get_runtime_context().get_node_id()
    found = get_object_locations([large, small, never])
    assert found[large]["node_ids"] == found[small]["node_ids"] == [here]
    assert found[large]["object_size"] >= 8 << 20
    assert found[never]["node_ids"] == [] and found[never]["object_size"] is None
    assert get_local_object_locations([small]) == {small: found[small]}
    ray.cancel(never)


def test_an_actors_id_knows_its_job() -> None:
    job = ray.get_runtime_context().get_job_id()
    assert Counter.remote()._actor_id.job_id.hex() == job
    assert not ray.put(1).is_nil()


def test_a_group_of_actors_says_that_it_is_deprecated() -> None:
    with pytest.warns(DeprecationWarning, match=r"use ray\.util\.multiprocessing"):
        group = ray.util.ActorGroup(collections.Counter, num_actors=1)
    group.shutdown()
