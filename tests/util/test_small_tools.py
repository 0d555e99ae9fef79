"""Progress bars, actor groups, joblib, the state of the cluster, and things said once."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import weft
from weft.util import log_once, progress
from weft.util.accelerators import NVIDIA_A100, NVIDIA_TESLA_A100
from weft.util.actor_group import ActorGroup
from weft.util.annotations import Deprecated, DeveloperAPI, PublicAPI, WeftDeprecationWarning
from weft.util.debug import reset_log_once
from weft.util.state import get_node, list_nodes, list_workers

pytestmark = pytest.mark.usefixtures("shared_weft_session")


@weft.remote
def double(x: int) -> int:
    return 2 * x


@weft.remote
def count(n: int) -> Iterator[int]:
    yield from range(n)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


# ---- progress --------------------------------------------------------------------------------------


def test_progress_gives_values_in_order_or_as_they_come() -> None:
    refs = [double.remote(i) for i in range(20)]
    assert list(progress(refs)) == [2 * i for i in range(20)]
    assert sorted(progress(refs, ordered=False)) == [2 * i for i in range(20)]
    assert list(progress(count.remote(3), total=3)) == [0, 1, 2]
    assert list(progress([])) == []


@pytest.mark.parametrize("ordered", [True, False])
def test_progress_shows_a_bar_on_a_terminal_only(ordered: bool) -> None:
    refs = [double.remote(i) for i in range(5)]
    quiet, shown, forced = io.StringIO(), Terminal(), io.StringIO()
    list(progress(refs, ordered=ordered, file=quiet))
    list(progress(refs, ordered=ordered, file=shown, label="doubles"))
    list(progress(refs, ordered=ordered, file=forced, force=True))
    assert quiet.getvalue() == ""
    last = shown.getvalue().split("\r")[-1]
    assert last.startswith("doubles: 100%|") and "| 5/5 [00:00<00:00" in last and last.endswith("\n")
    assert "5/5" in forced.getvalue()


def test_progress_raises_what_a_task_raised_and_ends_its_line() -> None:
    shown = Terminal()
    with pytest.raises(TypeError):
        list(progress([double.remote(None)], file=shown))
    assert shown.getvalue().endswith("\n")


# ---- actor groups ----------------------------------------------------------------------------------


class Member:
    def __init__(self, name: str = "") -> None:
        self.name = name

    def echo(self, value: int) -> int:
        return value

    def get_actor_metadata(self) -> str:
        return self.name


def test_a_group_calls_all_its_actors() -> None:
    group = ActorGroup(Member, num_actors=2, num_cpus_per_actor=0, init_args=("me",))
    assert len(group) == 2
    assert weft.get(group.echo.remote(1)) == [1, 1]
    assert group.actor_metadata == ["me", "me"]
    with pytest.raises(TypeError, match="remote"):
        group.echo(1)
    with pytest.raises(AttributeError):
        group.nothing.remote()
    with pytest.raises(RuntimeError, match="already"):
        group.start()
    group.remove_actors([0])
    group.add_actors(2)
    assert weft.get(group.echo.remote(2)) == [2, 2, 2]
    group.shutdown()
    with pytest.raises(RuntimeError, match="no actors"):
        group.echo.remote(1)
    group.start()
    assert weft.get(group[0].echo.remote(3)) == 3
    group.shutdown(0)


def test_a_group_refuses_bad_numbers() -> None:
    for wrong in ({"num_actors": 0}, {"num_cpus_per_actor": -1}, {"num_gpus_per_actor": -1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            ActorGroup(Member, **wrong)  # type: ignore[arg-type]


# ---- joblib ----------------------------------------------------------------------------------------


def test_joblib_runs_on_tasks() -> None:
    joblib = pytest.importorskip("joblib")
    numpy = pytest.importorskip("numpy")
    from weft.util.joblib import register_ray, register_weft

    register_weft()
    register_ray()
    with joblib.parallel_config(backend="weft", n_jobs=2):
        assert joblib.Parallel()(joblib.delayed(pow)(i, 2) for i in range(50)) == [i * i for i in range(50)]
        assert os.getpid() not in joblib.Parallel()(joblib.delayed(os.getpid)() for _ in range(4))
        data = numpy.ones(100_000)
        assert joblib.Parallel()(joblib.delayed(numpy.sum)(data) for _ in range(4)) == [100_000.0] * 4
        with pytest.raises(ZeroDivisionError):
            joblib.Parallel()(joblib.delayed(divmod)(1, i) for i in range(3))
        stream = joblib.Parallel(return_as="generator")(joblib.delayed(abs)(-i) for i in range(5))
        assert list(stream) == [0, 1, 2, 3, 4]
    with joblib.parallel_config(backend="ray", ray_remote_args={"num_cpus": 2}):
        held = joblib.delayed(lambda: weft.get_runtime_context().get_assigned_resources())
        assert joblib.Parallel(n_jobs=2)([held(), held()]) == [{"CPU": 2.0}] * 2


# ---- the rest --------------------------------------------------------------------------------------


def test_the_state_of_the_cluster_can_be_asked() -> None:
    (node,) = list_nodes(filters=[("state", "=", "alive")])
    assert node.state == "ALIVE" and node["node_id"] == node.node_id
    assert get_node(node.node_id) == node
    assert get_node("nothing") is None
    assert list_nodes(filters=[("state", "!=", "ALIVE")]) == []
    weft.get(double.remote(1))
    assert all(worker.pid > 0 for worker in list_workers())
    with pytest.raises(ValueError, match="compares"):
        list_nodes(filters=[("state", "<", 3)])
    with pytest.raises(AttributeError, match="nothing"):
        _ = node.nothing


def test_a_thing_is_said_once() -> None:
    assert log_once("spoken") and not log_once("spoken")
    reset_log_once("spoken")
    assert log_once("spoken")


def test_annotations_leave_the_function_as_it_is() -> None:
    @PublicAPI
    def public() -> int:
        return 1

    @DeveloperAPI
    def inner() -> int:
        return 2

    @Deprecated(message="Use public().", warning=True)
    def old() -> int:
        return 3

    @Deprecated(message="Use public().", warning=True)
    class Old:
        def __init__(self, value: int) -> None:
            self.value = value

    assert (public(), inner()) == (1, 2)
    with pytest.warns(WeftDeprecationWarning, match="Old is deprecated. Use public"):
        assert Old(3).value == 3
    assert "PublicAPI (stable)" in (public.__doc__ or "")
    with pytest.warns(WeftDeprecationWarning, match="Use public"):
        assert old() == 3


def test_accelerators_have_names() -> None:
    assert NVIDIA_A100 == NVIDIA_TESLA_A100 == "A100"


def test_importing_util_loads_none_of_its_tools() -> None:
    program = "import sys, weft.util; print([m for m in sys.modules if m.startswith('weft.')])"
    loaded: Any = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "['weft._lazy', 'weft.util']"
