"""Every option: who may have it, which values it takes, what the message says."""

from __future__ import annotations

from typing import Any

import pytest

from weft.engine.process.options import call_options
from weft.engine.process.options.init_options import InitOptions


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"num_cpus": "2"}, TypeError, "num_cpus"),
        ({"num_cpus": -1}, ValueError, "cannot be negative, but got -1"),
        ({"num_gpus": 0.0000001}, ValueError, "precision of the fractional quantity of resource num_gpus"),
        ({"num_gpus": 1.5}, ValueError, "whole number"),
        ({"max_retries": 0.5}, TypeError, r"must be \(<class 'int'>, <class 'NoneType'>\), but received type"),
        ({"max_retries": -2}, ValueError, "-1 represents infinity"),
        ({"max_calls": -1}, ValueError, "only accepts None, 0 or a positive integer"),
        ({"num_returns": -1}, ValueError, "'streaming' \\(for generators\\)"),
        ({"num_returns": "many"}, ValueError, "but got 'many'"),
        ({"resources": {"CPU": 1}}, ValueError, "num_cpus"),
        ({"resources": {"tpu": "1"}}, ValueError, "must be a number, but got '1'"),
        ({"retry_exceptions": [3]}, ValueError, "list of exceptions"),
        ({"max_restarts": 1}, ValueError, "Invalid option keyword max_restarts for remote functions"),
        ({"nonsense": 1}, ValueError, "Invalid option keyword nonsense"),
        ({"_generator_backpressure_num_objects": 0}, ValueError, "above 0"),
        ({"label_selector": {"a": "in(b,, c)"}}, ValueError, "label value"),
        ({"label_selector": {"??": "b"}}, ValueError, "label key"),
    ],
)
def test_a_wrong_task_option_is_refused_by_name(given: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call_options.validate(given, "tasks")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_restarts": -2}, "-1 represents infinity"),
        ({"lifetime": "for ever"}, "'detached', 'non_detached'"),
        ({"max_concurrency": -1}, "must not be negative, but got -1"),
        ({"concurrency_groups": {"io": 0}}, "positive numbers of calls"),
        ({"max_retries": 1}, "Invalid option keyword max_retries for actors"),
    ],
)
def test_a_wrong_actor_option_is_refused_by_name(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call_options.validate(given, "actors")


def test_memory_of_the_store_for_an_actor_has_no_effect_and_says_so() -> None:
    with pytest.warns(DeprecationWarning, match="'object_store_memory' for actors is deprecated"):
        call_options.validate({"object_store_memory": 1}, "actors")


def test_what_only_the_decorator_takes_is_refused_in_options() -> None:
    with pytest.raises(ValueError, match=r"'max_calls' is not supported in '\.options"):
        call_options.validate({"max_calls": 1}, "tasks", in_options=True)
    with pytest.raises(ValueError, match="'concurrency_groups' is not supported"):
        call_options.validate({"concurrency_groups": {}}, "actors", in_options=True)


def test_what_moves_tensors_needs_no_word_and_takes_rays() -> None:
    for transport in ("nccl", "gloo", "nixl", "object_store"):
        call_options.validate({"tensor_transport": transport}, "methods")
    call_options.validate({"enable_tensor_transport": True}, "actors")
    with pytest.raises(
        ValueError, match=r"'tensor_transport' must be one of object_store, nccl, gloo, .*but got 'mine'"
    ):
        call_options.validate({"tensor_transport": "mine"}, "methods")


def test_other_labels_will_do_where_no_node_has_the_first() -> None:
    given = {"label_selector": {"zone": "a"}, "fallback_strategy": [{"label_selector": {"zone": "b"}}]}
    call_options.validate(given, "tasks")
    assert call_options.task_options(given).strategy == {"labels": '{"zone": "a"}', "fallbacks": '[{"zone": "b"}]'}
    call_options.validate({"fallback_strategy": None}, "actors")
    for wrong in ([{"zone": "b"}], ["b"], [{"label_selector": "b"}], [{"label_selector": {"zone": "b c"}}]):
        with pytest.raises(ValueError, match="fallback_strategy"):
            call_options.validate({"fallback_strategy": wrong}, "tasks")


def test_a_task_needs_one_cpu_unless_it_says_otherwise() -> None:
    assert call_options.task_options({}).resources == {"CPU": 1.0}
    assert call_options.task_options({"num_cpus": 0}).resources == {}
    assert call_options.task_options({"num_gpus": 0.5, "memory": 100, "resources": {"x": 2}}).resources == {
        "CPU": 1.0,
        "GPU": 0.5,
        "memory": 100.0,
        "x": 2.0,
    }


def test_an_actor_needs_a_cpu_to_be_placed_and_holds_none() -> None:
    chosen = call_options.actor_options({})
    assert (chosen.placement_resources, chosen.resources) == ({"CPU": 1.0}, {})
    chosen = call_options.actor_options({"num_cpus": 2})
    assert chosen.placement_resources == chosen.resources == {"CPU": 2.0}
    assert call_options.actor_options({"num_cpus": 0}).placement_resources == {}


def test_defaults_are_rays() -> None:
    task, actor = call_options.task_options({}), call_options.actor_options({})
    assert (task.max_retries, task.num_returns, task.retry_exceptions) == (3, 1, False)
    assert (actor.max_restarts, actor.max_task_retries, actor.max_pending_calls) == (0, 0, -1)


def test_retry_exceptions_takes_classes() -> None:
    chosen = call_options.task_options({"retry_exceptions": [ValueError, KeyError]})
    assert chosen.retry_exceptions
    assert chosen.retry_types == (ValueError, KeyError)


def test_get_if_exists_wants_a_name() -> None:
    with pytest.raises(ValueError, match="name must be specified"):
        call_options.actor_options({"get_if_exists": True})


def test_later_options_win_and_metadata_is_joined() -> None:
    merged = call_options.merge({"num_cpus": 1, "_metadata": {"a": 1}}, {"num_cpus": 2, "_metadata": {"b": 2}})
    assert merged == {"num_cpus": 2, "_metadata": {"a": 1, "b": 2}}


def test_a_strategy_is_a_word_or_an_object() -> None:
    from weft.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    assert call_options.strategy_of({}) == {}
    assert call_options.strategy_of({"scheduling_strategy": "SPREAD"}) == {"kind": "spread"}
    wire = call_options.strategy_of({"scheduling_strategy": NodeAffinitySchedulingStrategy("ab", soft=False)})
    assert (wire["kind"], wire["node_id"], wire["soft"]) == ("node_affinity", "ab", False)
    with pytest.raises(ValueError, match="but got 'FAST'"):
        call_options.strategy_of({"scheduling_strategy": "FAST"})
    with pytest.raises(TypeError, match="scheduling_strategy"):
        call_options.strategy_of({"scheduling_strategy": 3})


def test_equal_environments_have_equal_text() -> None:
    one = call_options.canonical_env({"env_vars": {"A": "1"}, "pip": ["x"]})
    assert one == call_options.canonical_env({"pip": ["x"], "env_vars": {"A": "1"}})
    with pytest.raises(TypeError, match="JSON"):
        call_options.canonical_env({"hook": object()})


def test_init_refuses_an_unknown_keyword() -> None:
    with pytest.raises(RuntimeError, match=r"Unknown keyword argument.*logginglevel"):
        InitOptions.of("local", {"logginglevel": "info"})


def test_init_ignores_rays_private_keywords() -> None:
    InitOptions.of("local", {"_system_config": {}, "include_dashboard": False, "enable_object_reconstruction": True})


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"num_cpus": "two"}, TypeError),
        ({"num_cpus": -1}, ValueError),
        ({"resources": {"GPU": 1}}, ValueError),
        ({"object_store_memory": 0}, ValueError),
        ({"object_store_memory": 10}, ValueError),
        ({"object_store_memory": (1 << 20) - 1}, ValueError),
        ({"object_store_memory": float("nan")}, ValueError),
        ({"namespace": 3}, TypeError),
    ],
)
def test_init_refuses_a_wrong_value(given: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        InitOptions.of("local", given)


def test_an_existing_nodes_resources_can_not_be_chosen() -> None:
    with pytest.raises(ValueError, match="existing node"):
        InitOptions.of("somewhere", {"num_cpus": 1})


def test_the_address_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "over-there")
    assert InitOptions.of(None, {}).address == "over-there"
    assert InitOptions.of("local", {}).address == ""
    monkeypatch.setenv("WEFT_ADDRESS", "here")
    assert InitOptions.of(None, {}).address == "here"
