"""Workers that are bound from their birth: what the node decides about them, and what is started for them."""

from __future__ import annotations

import sys
from pathlib import Path

from weft.engine.process.runtime_env import launch
from weft.engine.state import events as ev
from weft.engine.state import instructions as do
from weft.engine.state.node import NodeState
from weft.engine.state.workers import Place
from weft.engine.wire.messages import DefineShape, DriverHello
from weft.environments.installed import Installed, commands

DRIVER = (1, 1)
PIP = '{"pip":{"packages":["six"],"pip_check":false}}'


def node(**options: int) -> NodeState:
    """Two CPUs, one driver, shape 1 that needs a launch and shape 2 that does not."""
    state = NodeState({"CPU": 2}, **options)
    state.handle(ev.DriverJoined(DRIVER, 1, pid=7))
    state.handle(ev.DriverGreeted(DRIVER, DriverHello(7, [], "/", {}, "ns")))
    state.handle(ev.ShapeDefined(DRIVER, DefineShape(1, {"CPU": 1}, PIP)))
    state.handle(ev.ShapeDefined(DRIVER, DefineShape(2, {"CPU": 1}, '{"env_vars":{"A":"1"}}')))
    return state


def launches(instructions: list[do.Instruction]) -> list[do.ForkWorker]:
    return [one for one in instructions if isinstance(one, do.ForkWorker) and one.bind is not None]


def test_a_launched_worker_is_told_its_job_at_birth_and_not_again() -> None:
    state = node()
    (fork,) = launches(state.handle(ev.LeaseRequested(DRIVER, 1, 1)))
    assert fork.bind is not None
    assert fork.bind.runtime_env == PIP
    state.check()
    out = state.handle(ev.SlotReserved(fork.ticket, (5, 1)))
    state.check()
    assert state.workers.by_process[5, 1].place is Place.LEASED
    assert not any(isinstance(one, do.BindWorker) for one in out)


def test_one_is_asked_for_at_a_time_until_it_has_a_slot() -> None:
    state = node()
    (first,) = launches(state.handle(ev.LeaseRequested(DRIVER, 1, 2)))
    assert not launches(state.handle(ev.Ticked()))
    (second,) = launches(state.handle(ev.SlotReserved(first.ticket, (5, 1))))
    assert not launches(state.handle(ev.SlotReserved(second.ticket, (6, 1))))
    state.check()


def test_an_unbound_worker_is_not_taken_for_it_and_it_serves_nothing_else() -> None:
    state = node()
    for one in state.handle(ev.NodeStarted()):
        assert isinstance(one, do.ForkWorker)
        state.handle(ev.SlotReserved(one.ticket, (4, 1)))
    (fork,) = launches(state.handle(ev.LeaseRequested(DRIVER, 1, 1)))
    state.handle(ev.SlotReserved(fork.ticket, (5, 1)))
    state.handle(ev.LeaseReturned(DRIVER, 1))
    state.handle(ev.LeaseRequested(DRIVER, 2, 1))
    assert state.workers.by_process[4, 1].place is Place.LEASED
    assert state.workers.by_process[5, 1].place is Place.IDLE
    state.check()


def test_launches_respect_the_limit_and_the_slots() -> None:
    state = node(start_limit=1)
    (fork,) = launches(state.handle(ev.LeaseRequested(DRIVER, 1, 2)))
    assert not launches(state.handle(ev.SlotReserved(fork.ticket, (5, 1))))
    (fork,) = launches(state.handle(ev.WorkerForked((5, 1), 50)))
    state.handle(ev.SlotsExhausted(fork.ticket))
    state.check()
    assert not launches(state.handle(ev.Ticked()))
    assert len(launches(state.handle(ev.SlotReleased()))) == 1


def test_a_launched_worker_that_dies_at_its_start_is_replaced() -> None:
    state = node()
    (fork,) = launches(state.handle(ev.LeaseRequested(DRIVER, 1, 1)))
    state.handle(ev.SlotReserved(fork.ticket, (5, 1)))
    state.handle(ev.ProcessDied((5, 1), "exited with status 1", status=1))
    state.check()
    assert len(launches(state.handle(ev.LeaseRequested(DRIVER, 1, 1)))) == 1


# ---- which interpreter -----------------------------------------------------------------------------


def made(folder: Path, *modules: str) -> Installed:
    packages = Installed(str(folder))
    Path(packages.site).mkdir(parents=True)
    for name in modules:
        (Path(packages.site) / name).touch()
    return packages


def test_the_running_interpreter_will_do_unless_something_says_otherwise(tmp_path: Path) -> None:
    new = made(tmp_path / "new", "weft_test_unknown.py", "_weft_parent.pth")
    clash = made(tmp_path / "clash", "msgspec")
    assert launch.command_for({}, new) == []
    assert launch.command_for({}, clash) == [clash.python]
    assert launch.command_for({"env_vars": {"A": "1"}}, None) == []
    assert launch.command_for({"env_vars": {"LD_PRELOAD": ""}}, None) == [sys.executable]
    assert launch.command_for({"py_executable": "env A=1 'my python'"}, None) == ["env", "A=1", "my python"]


def test_the_installers_get_what_was_asked_for() -> None:
    pip = {
        "packages": ["six", "--find-links /w"],
        "pip_check": True,
        "pip_version": "==25",
        "pip_install_options": ["-q"],
    }
    lines = [" ".join(command) for command in commands("PY", {"pip": pip}, {})]
    assert lines[0].endswith("pip==25")
    assert lines[1].endswith("-q six --find-links /w")
    assert lines[2] == "PY -I -m pip check"
    uv = {"packages": ["six"], "uv_check": False, "uv_version": ">=0.4"}
    lines = [" ".join(command) for command in commands("PY", {"uv": uv}, {})]
    assert lines[0].endswith("install --disable-pip-version-check --no-input uv>=0.4")
    assert lines[1:] == ["PY -I -m uv pip install --python PY six"]
