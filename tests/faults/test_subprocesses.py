"""Processes that tasks and actors start by themselves end with their session, or are found."""

from __future__ import annotations

import os
import signal
import subprocess

import psutil

import weft
from waiting import wait_until
from weft.cli import doctor
from weft.machine import strays


@weft.remote
def start_sleeper() -> int:
    """In a session of its own, as a daemon does it."""
    return subprocess.Popen(["sleep", "600"], start_new_session=True).pid


@weft.remote
class Starter:
    def start(self) -> tuple[int, int]:
        return os.getpid(), subprocess.Popen(["sh", "-c", "sleep 600 & sleep 600"]).pid


def test_what_tasks_have_started_ends_with_the_session() -> None:
    weft.init(num_cpus=2)
    sleeper = psutil.Process(weft.get(start_sleeper.remote()))
    starter = Starter.remote()
    worker, pid = weft.get(starter.start.remote())
    shell = psutil.Process(pid)
    wait_until(lambda: len(shell.children()) == 2)
    below = shell.children()
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: not psutil.pid_exists(worker))
    assert all(one.is_running() for one in (sleeper, shell, *below))
    weft.shutdown()
    assert not any(one.is_running() for one in (sleeper, shell, *below))


def test_what_the_tasks_of_a_killed_node_have_started_is_found() -> None:
    weft.init(num_cpus=1)
    sleeper = psutil.Process(weft.get(start_sleeper.remote()))
    try:
        wait_until(lambda: strays.VARIABLE in sleeper.environ())  # the kernel shows it a moment after the start
        variable = sleeper.environ()[strays.VARIABLE]
        assert sleeper.pid not in strays.find()
        os.kill(int(variable.partition("-")[0]), signal.SIGKILL)
        wait_until(lambda: sleeper.pid in strays.find())
        verdict = doctor.leftovers(strays.find())
        assert verdict.level == doctor.WARNING and f"{sleeper.pid} (sleep)" in verdict.finding
    finally:
        sleeper.kill()
        weft.shutdown()
    wait_until(lambda: sleeper.ppid() == os.getpid())  # its worker has ended, too; this process adopts orphans
    os.waitpid(sleeper.pid, 0)
    assert sleeper.pid not in strays.find()
