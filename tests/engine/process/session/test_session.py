"""init and shutdown, and programs of all kinds that use them."""

from __future__ import annotations

import os
from typing import Any

import psutil
import pytest

import weft
from programs import run
from waiting import wait_until


@pytest.fixture
def no_session() -> Any:
    yield
    weft.shutdown()


def test_a_session_begins_and_ends(no_session: None) -> None:
    assert not weft.is_initialized()
    context = weft.init(num_cpus=1)
    assert weft.is_initialized()
    assert context["node_id"] == weft.get_runtime_context().get_node_id()
    assert "session_dir" in context
    assert "nonsense" not in context
    assert context.get("nonsense") is None
    with pytest.raises(KeyError):
        context["nonsense"]
    context.disconnect()
    assert not weft.is_initialized()
    weft.shutdown()


def test_a_context_ends_its_session(no_session: None) -> None:
    with weft.init(num_cpus=1):
        assert weft.is_initialized()
    assert not weft.is_initialized()


def test_init_twice_is_an_error_unless_it_is_expected(no_session: None) -> None:
    first = weft.init(num_cpus=1)
    with pytest.raises(RuntimeError, match=r"called weft\.init twice"):
        weft.init(num_cpus=1)
    again = weft.init(ignore_reinit_error=True)
    assert again["address"] == first["address"]


def test_the_first_call_begins_a_session(no_session: None) -> None:
    @weft.remote
    def f() -> int:
        return 1

    assert weft.get(f.remote()) == 1
    assert weft.is_initialized()


def test_a_function_can_be_used_in_the_next_session(no_session: None) -> None:
    @weft.remote
    def f() -> int:
        return 1

    for _ in range(3):
        weft.init(num_cpus=1)
        assert weft.get(f.remote()) == 1
        weft.shutdown()


def test_an_old_ref_says_that_its_session_is_over(no_session: None) -> None:
    weft.init(num_cpus=1)
    ref = weft.put(1)
    weft.shutdown()
    weft.init(num_cpus=1)
    with pytest.raises(RuntimeError, match=r"earlier weft\.init"):
        weft.get(ref)


def test_resources_are_what_was_asked_for(no_session: None) -> None:
    weft.init(num_cpus=3, num_gpus=1, resources={"wheel": 4})
    resources = weft.cluster_resources()
    assert (resources["CPU"], resources["GPU"], resources["wheel"]) == (3.0, 1.0, 4.0)
    assert weft.available_resources()["CPU"] == 3.0
    [node] = weft.nodes()
    assert node["Alive"]
    assert node["NodeID"] == weft.get_runtime_context().get_node_id()
    assert node["Resources"]["CPU"] == 3.0


def test_a_gpu_is_shown_to_who_asked_for_it(no_session: None) -> None:
    weft.init(num_cpus=2, num_gpus=2)

    @weft.remote
    def devices() -> Any:
        return weft.get_gpu_ids(), os.environ["CUDA_VISIBLE_DEVICES"]

    assert weft.get(devices.remote()) == ([], "")
    ids, shown = weft.get(devices.options(num_gpus=1).remote())
    assert len(ids) == 1
    assert shown == str(ids[0])


def test_a_worker_lets_go_of_its_gpu_also_while_its_driver_is_busy_with_other_things(no_session: None) -> None:
    weft.init(num_cpus=1, num_gpus=1)
    pid = weft.get(weft.remote(num_gpus=1)(os.getpid).remote())
    wait_until(lambda: not psutil.pid_exists(pid))  # this process asks nothing of the engine meanwhile


def test_a_device_that_is_named_by_uuid_is_shown_by_its_name(no_session: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1a2b, GPU-3c4d")
    weft.init(num_cpus=2)

    @weft.remote(num_gpus=1)
    class Holder:
        def devices(self) -> Any:
            return weft.get_gpu_ids(), os.environ["CUDA_VISIBLE_DEVICES"]

    holders = [Holder.remote(), Holder.options(runtime_env={"env_vars": {"NAME": "second"}}).remote()]
    shown = sorted(weft.get([holder.devices.remote() for holder in holders]))
    assert shown == [(["GPU-1a2b"], "GPU-1a2b"), (["GPU-3c4d"], "GPU-3c4d")]


def test_a_second_driver_joins_by_address(no_session: None) -> None:
    address = weft.init(num_cpus=2)["address"]
    program = """
        import sys, weft
        weft.init(address=sys.argv[1] if len(sys.argv) > 1 else None)
        print(weft.get(weft.remote(lambda x: x + 1).remote(1)), weft.get_runtime_context().get_node_id())
    """
    done = run(program, env={"WEFT_ADDRESS": address})
    assert done.stdout.split() == ["2", weft.get_runtime_context().get_node_id()], done.stderr


def test_no_node_at_an_address_is_a_clear_error() -> None:
    with pytest.raises(ConnectionError):
        weft.init(address="no-such-node")
    assert not weft.is_initialized()


@pytest.mark.parametrize("stdin", [False, True])
def test_functions_and_classes_of_main_work(stdin: bool) -> None:
    program = """
        import weft

        class Point:
            def __init__(self, x): self.x = x
            def __eq__(self, other): return type(other) is Point and other.x == self.x

        OFFSET = 3

        @weft.remote
        def shift(point):
            assert isinstance(point, Point)
            return Point(point.x + OFFSET)

        @weft.remote
        class Keeper:
            def __init__(self): self.last = None
            def keep(self, point): self.last, before = point, self.last; return before

        keeper = Keeper.remote()
        weft.get(keeper.keep.remote(Point(1)))
        assert weft.get(keeper.keep.remote(Point(2))) == Point(1)
        assert weft.get(shift.remote(Point(1))) == Point(4)
        print("fine")
    """
    done = run(program, stdin=stdin)
    assert done.stdout.strip() == "fine", done.stderr


def test_a_program_that_ends_without_shutdown_leaves_quietly() -> None:
    done = run("import weft; weft.init(num_cpus=1); weft.get(weft.remote(lambda: 1).remote()); print('end')")
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_a_program_that_fails_shows_its_own_error() -> None:
    done = run(
        """
        import weft
        @weft.remote
        def fail():
            raise ValueError("from the task")
        weft.get(fail.remote())
        """
    )
    assert done.returncode == 1
    assert "TaskError(ValueError)" in done.stderr
    assert "from the task" in done.stderr


def test_a_forked_child_is_not_attached(no_session: None) -> None:
    weft.init(num_cpus=1)
    ref = weft.put(1)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if not weft.is_initialized() else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert weft.get(ref) == 1


def test_importing_weft_is_cheap() -> None:
    heavy = ["numpy", "asyncio", "cloudpickle", "msgspec", "inspect", "concurrent.futures", "weft._native"]
    done = run(
        "import sys; before = set(sys.modules); import weft; "  # an editable install's hook may have imported some
        f"print([name for name in {heavy} if name in sys.modules and name not in before])"
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_a_driver_imports_what_it_needs_while_its_node_comes_up() -> None:
    later = [
        "weft.engine.process.session.host",
        "weft.values.serialize",
        "weft.engine.process.calls.errors",
        "cloudpickle",
    ]
    done = run(
        "import subprocess, sys, weft\n"
        "start = subprocess.Popen.__init__\n"
        "def watch(*args, **kwargs):\n"
        f"    print([name for name in {later} if name in sys.modules])\n"
        "    start(*args, **kwargs)\n"
        "subprocess.Popen.__init__ = watch\n"
        "weft.init(num_cpus=1)\n"
        f"print([name for name in {later} if name not in sys.modules])"
    )
    assert done.stdout.split("\n")[:2] == ["[]", "[]"], done.stderr


def test_every_public_name_is_there() -> None:
    for name in weft.__all__:
        assert getattr(weft, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = weft.nonsense  # type: ignore[attr-defined]
