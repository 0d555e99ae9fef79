"""The runtime context of drivers, tasks and actors."""

from __future__ import annotations

from typing import Any

import pytest

import weft

pytestmark = pytest.mark.usefixtures("shared_weft_session")


def test_a_driver_has_a_job_and_a_node_and_no_task() -> None:
    context = weft.get_runtime_context()
    assert len(bytes.fromhex(context.get_job_id())) == 4
    assert context.get_task_id() is None
    assert context.get_task_name() is None
    assert context.get_actor_id() is None
    assert context.get_actor_name() is None
    assert context.get_assigned_resources() == {}
    found = context.get()
    assert found["node_id"].hex() == context.get_node_id()
    assert "task_id" not in found
    assert context.get_node_labels() == weft.nodes()[0]["Labels"] == {"ray.io/node-id": context.get_node_id()}
    with pytest.raises(RuntimeError, match="only available in an actor"):
        _ = context.current_actor


def test_a_task_knows_itself() -> None:
    @weft.remote
    def who() -> Any:
        context = weft.get_runtime_context()
        return {
            "task": context.get_task_id(),
            "name": context.get_task_name(),
            "actor": context.get_actor_id(),
            "job": context.get_job_id(),
            "node": context.get_node_id(),
            "namespace": context.namespace,
            "resources": context.get_assigned_resources(),
            "worker": context.get_worker_id(),
        }

    context = weft.get_runtime_context()
    ref = who.remote()
    found = weft.get(ref)
    assert found["task"] == ref.task_id().hex()
    assert (found["name"], found["actor"]) == ("who", None)
    assert (found["job"], found["node"]) == (context.get_job_id(), context.get_node_id())
    assert found["namespace"] == context.namespace
    assert found["resources"] == {"CPU": 1.0}
    assert found["worker"] != context.get_worker_id()


def test_an_actor_knows_itself() -> None:
    @weft.remote(num_cpus=1)
    class Self:
        def who(self) -> Any:
            context = weft.get_runtime_context()
            return context.get_actor_id(), context.get_task_name(), context.get_task_function_name()

        def me(self) -> Any:
            return weft.get_runtime_context().current_actor

        def resources(self) -> Any:
            return weft.get_runtime_context().get_assigned_resources()

        def restarted(self) -> bool:
            return weft.get_runtime_context().was_current_actor_reconstructed

    actor = Self.remote()
    actor_id, name, function = weft.get(actor.who.remote())
    assert actor_id == actor._actor_id.hex()
    assert name == "Self.who"
    assert function.endswith("Self.who")
    assert weft.get(actor.me.remote()) == actor
    assert weft.get(actor.resources.remote()) == {"CPU": 1.0}
    assert weft.get(actor.restarted.remote()) is False


def test_retired_names_say_what_to_use() -> None:
    context = weft.get_runtime_context()
    with pytest.warns(DeprecationWarning, match=r"Use get_node_id\(\) instead"):
        assert context.node_id.hex() == context.get_node_id()
