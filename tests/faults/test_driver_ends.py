"""However a driver ends, and when its node is taken from it: the end is what a person expects, nothing remains."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
from marked_run import MarkedRun

from waiting import comes_true

GIVE_UP_S = 10
"""When a call that should fail at once is taken to hang; requests to the daemon give up by themselves after 60 s."""
TASKS = """
    weft.init(num_cpus=2)

    @weft.remote
    def forever():
        while True:
            time.sleep(3600)

    @weft.remote
    def quick(x):
        return x

    @weft.remote
    class Actor:
        def forever(self):
            while True:
                time.sleep(3600)
        def quick(self, x):
            return x

    actor = Actor.options(num_cpus=0).remote()
    assert weft.get(actor.quick.remote(1)) == 1
    kept = weft.put(bytes(1 << 20))
    assert weft.get([quick.remote(i) for i in range(100)]) == list(range(100))
"""
WAITS = {
    "get_of_a_task": "weft.get(forever.remote())",
    "get_of_a_call": "weft.get(actor.forever.remote())",
    "get_of_many": "weft.get([quick.remote(i) for i in range(100)] + [forever.remote() for _ in range(10)])",
    "wait": "weft.wait([forever.remote(), actor.forever.remote()])",
    "busy_loop": "while True: refs = [quick.remote(i) for i in range(1000)]",
    "busy_gets": "while True: weft.get([quick.remote(i) for i in range(1000)])",
    "plain_python": "forever.remote(); time.sleep(3600)",
}
in_every_wait = pytest.mark.parametrize("wait", WAITS.values(), ids=list(WAITS))


def waiting(wait: str, folder: Path, before: str = "") -> MarkedRun:
    """A driver that has worked, and now waits for something that does not come, or is busy without end."""
    run = MarkedRun(f"{TASKS}\n    {before}\n    say('waiting')\n    {wait}\n", folder)
    assert run.line() == "waiting"
    threading.Event().wait(0.2)  # it may be anywhere in it
    return run


# ---- signals ---------------------------------------------------------------------------------------


@in_every_wait
def test_a_driver_killed_while_it_waits_leaves_nothing(wait: str, tmp_path: Path) -> None:
    with waiting(wait, tmp_path) as run:
        run.kill(run.process.pid)
        assert run.end() == -signal.SIGKILL
        run.assert_nothing_remains()


@in_every_wait
def test_ctrl_c_ends_a_driver_at_any_time(wait: str, tmp_path: Path) -> None:
    with waiting(wait, tmp_path) as run:
        run.kill(run.process.pid, signal.SIGINT)
        status = run.end()
        assert status in (-signal.SIGINT, 130, 1), run.story()
        assert "KeyboardInterrupt" in run.errors()
        run.assert_nothing_remains()


def test_ctrl_c_in_a_terminal_reaches_the_driver_alone(tmp_path: Path) -> None:
    """The terminal signals the whole foreground group: the node must not die of it before the driver does."""
    program = f"""{TASKS}
    say('waiting')
    try:
        weft.get(forever.remote())
    except KeyboardInterrupt:
        say('interrupted', weft.get(quick.remote(5)), weft.get(actor.quick.remote(6)))
    """
    with MarkedRun(program, tmp_path) as run:
        assert run.line() == "waiting"
        threading.Event().wait(0.2)
        run.note_sockets()
        os.killpg(run.process.pid, signal.SIGINT)
        assert run.line() == "interrupted 5 6"
        assert run.end() == 0
        run.assert_nothing_remains()


@in_every_wait
def test_sigterm_ends_a_driver_and_all_that_is_its(wait: str, tmp_path: Path) -> None:
    with waiting(wait, tmp_path) as run:
        run.kill(run.process.pid, signal.SIGTERM)
        assert run.end() == -signal.SIGTERM, run.story()
        run.assert_nothing_remains()


def test_a_driver_that_is_stopped_and_continued_goes_on(tmp_path: Path) -> None:
    program = f"""{TASKS}
    say('waiting')
    for _ in range(50):
        assert weft.get([quick.remote(i) for i in range(500)]) == list(range(500))
    say('done')
    """
    with MarkedRun(program, tmp_path) as run:
        assert run.line() == "waiting"
        run.kill(run.process.pid, signal.SIGSTOP)
        threading.Event().wait(0.3)
        run.kill(run.process.pid, signal.SIGCONT)
        assert run.line() == "done"
        assert run.end() == 0
        run.assert_nothing_remains()


# ---- ends of its own -------------------------------------------------------------------------------

ENDS = {
    "runs_out": ("forever.remote(); actor.forever.remote()", 0),
    "sys_exit": ("forever.remote(); sys.exit(5)", 5),
    "exception": ("forever.remote(); 1 / 0", 1),
    "exit_in_a_hurry": ("forever.remote(); os._exit(6)", 6),
    "shutdown": ("forever.remote(); weft.shutdown()", 0),
    "shutdown_twice": ("weft.shutdown(); weft.shutdown()", 0),
    "shutdown_and_init": ("weft.shutdown(); weft.init(num_cpus=1); quick.remote(1)", 0),
    "abort": ("faulthandler.disable(); os.abort()", -signal.SIGABRT),
    "exec": ("forever.remote(); os.execv(sys.executable, [sys.executable, '-c', 'pass'])", 0),
}


@pytest.mark.parametrize(("end", "status"), ENDS.values(), ids=list(ENDS))
def test_a_driver_that_ends_by_itself_leaves_nothing(end: str, status: int, tmp_path: Path) -> None:
    with MarkedRun(f"{TASKS}\n    say('working')\n    {end}\n", tmp_path) as run:
        assert run.line() == "working"
        run.note_sockets()
        assert run.end() == status, run.story()
        run.assert_nothing_remains()


def test_a_driver_whose_other_thread_waits_can_end(tmp_path: Path) -> None:
    program = f"""{TASKS}
    import threading
    threading.Thread(target=lambda: weft.get(forever.remote()), daemon=True).start()
    say('working')
    time.sleep(0.2)
    """
    with MarkedRun(program, tmp_path) as run:
        assert run.line() == "working"
        run.note_sockets()
        assert run.end() == 0, run.story()
        run.assert_nothing_remains()


def test_a_get_that_a_shutdown_interrupts_starts_no_new_session(tmp_path: Path) -> None:
    program = f"""{TASKS}
    import threading
    def wait():
        try:
            weft.get(forever.remote())
        except Exception as error:
            say(type(error).__name__)
    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.2)
    weft.shutdown()
    thread.join()
    say('initialized' if weft.is_initialized() else 'not initialized')
    """
    with MarkedRun(program, tmp_path) as run:
        run.line()
        assert run.line() == "not initialized"
        assert run.end() == 0, run.story()
        run.assert_nothing_remains()


# ---- fork ------------------------------------------------------------------------------------------


def test_a_forked_child_that_outlives_the_driver_does_not_keep_the_node_alive(tmp_path: Path) -> None:
    program = f"""{TASKS}
    if os.fork() == 0:
        time.sleep(3600)
    say('forked')
    """
    with MarkedRun(program, tmp_path) as run:
        assert run.line() == "forked"
        run.note_sockets()
        assert run.end() == 0, run.story()
        assert comes_true(lambda: len(run.processes()) == 1), run.story()
        [(child, role)] = run.processes().items()
        assert role == "starting", "the child is no process of Weft"
        run.kill(child)
        run.assert_nothing_remains()


def test_a_forked_child_that_outlives_a_killed_driver_does_not_keep_the_node_alive(tmp_path: Path) -> None:
    program = f"""{TASKS}
    if os.fork() == 0:
        time.sleep(3600)
    say('forked')
    weft.get(forever.remote())
    """
    with MarkedRun(program, tmp_path) as run:
        assert run.line() == "forked"
        run.kill(run.process.pid)
        assert run.end() == -signal.SIGKILL
        assert comes_true(lambda: len(run.processes()) == 1), run.story()
        run.kill(*run.processes())
        run.assert_nothing_remains()


def test_a_forked_child_may_have_a_node_of_its_own(tmp_path: Path) -> None:
    program = f"""{TASKS}
    child = os.fork()
    if child == 0:
        weft.init(num_cpus=1)
        assert weft.get(quick.remote(3)) == 3
        sys.exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert weft.get(quick.remote(4)) == 4
    say('done')
    """
    with MarkedRun(program, tmp_path) as run:
        assert run.line() == "done"
        assert run.end() == 0, run.story()
        run.assert_nothing_remains()


def test_a_process_that_a_worker_started_does_not_outlive_the_run_by_holding_the_node(tmp_path: Path) -> None:
    """A user's subprocess is the user's; but the node and the driver end whether or not it still runs."""
    program = f"""{TASKS}
    @weft.remote
    def start():
        import subprocess
        return subprocess.Popen(['sleep', '3600']).pid
    say(weft.get(start.remote()))
    """
    with MarkedRun(program, tmp_path) as run:
        pid = int(run.line())
        assert run.end() == 0, run.story()
        assert comes_true(lambda: set(run.processes()) <= {pid}), run.story()
        run.kill(pid)
        run.assert_nothing_remains()


# ---- the node is taken away ------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["daemon", "zygote"])
@pytest.mark.parametrize("wait", [WAITS[name] for name in WAITS if name.startswith(("get", "wait"))])
def test_a_driver_whose_node_is_killed_gets_a_named_error(wait: str, role: str, tmp_path: Path) -> None:
    program = f"""{TASKS}
    say('waiting')
    try:
        found = {wait}
        if isinstance(found, tuple):
            weft.get(found[0])
    except weft.exceptions.WeftError as error:
        say(type(error).__name__)
    """
    with MarkedRun(program, tmp_path) as run:
        assert run.line() == "waiting"
        threading.Event().wait(0.2)
        run.kill(run.pids(role)[0])
        assert run.line() in ("LocalNodeDiedError", "NodeDiedError", "ActorDiedError"), run.story()
        assert run.end() == 0, run.story()
        run.assert_nothing_remains()


USES = {
    "task": "weft.get(quick.remote(1))",
    "call": "weft.get(actor.quick.remote(1))",
    "put": "weft.get(weft.put(bytes(10 << 20)))",
    "actor": "weft.get(Actor.remote().quick.remote(1))",
    "wait": "weft.get(weft.wait([quick.remote(1)])[0])",
    "request": "weft.nodes()",
    "named_actor": "weft.get_actor('nobody')",
}


@pytest.mark.parametrize("use", [pytest.param(use, id=name) for name, use in USES.items()])
def test_what_is_asked_for_after_the_nodes_death_is_refused(use: str, tmp_path: Path) -> None:
    program = f"""{TASKS}
    say('waiting')
    try:
        weft.get(forever.remote())
    except weft.exceptions.WeftError as error:
        say('lost')
    faulthandler.dump_traceback_later({GIVE_UP_S}, exit=True)
    try:
        {use}
        say('answered')
    except (weft.exceptions.WeftError, RuntimeError, ConnectionError) as error:
        say('refused')
    weft.shutdown()
    weft.init(num_cpus=1)
    say(weft.get(quick.remote(2)))
    """
    with MarkedRun(program, tmp_path) as run:
        assert run.line() == "waiting"
        run.kill(run.pids("daemon")[0])
        assert run.line() == "lost"
        assert run.line() == "refused" or use == USES["put"], run.story()
        assert run.line() == "2"
        assert run.end() == 0, run.story()
        run.assert_nothing_remains()


def test_sigterm_to_the_daemon_is_an_end_too(tmp_path: Path) -> None:
    with waiting("weft.get(forever.remote())", tmp_path) as run:
        run.kill(run.pids("daemon")[0], signal.SIGTERM)
        assert run.end() == 1
        assert "NodeDiedError" in run.errors()
        run.assert_nothing_remains()
