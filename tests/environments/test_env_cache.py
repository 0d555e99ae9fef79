"""What lies in the cache, who holds it, and when it goes."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from waiting import comes_true
from weft.environments import env_folders, installed


def entry(home: Path, name: str, size: int, used: int) -> None:
    (home / name).mkdir(parents=True)
    (home / f"{name}.json").write_text(json.dumps({"bytes": size}))
    os.utime(home / f"{name}.json", (used, used))


def names(home: Path) -> list[str]:
    return sorted(path.stem for path in home.glob("*.json"))


def test_what_was_used_longest_ago_goes_first_and_what_is_in_use_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_RUNTIME_ENV_CACHE_BYTES", "250")
    for number, name in enumerate(["a", "b", "c", "d"]):
        entry(tmp_path, name, 100, 1000 + number)
    fd = os.open(tmp_path / "a.lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
        installed.prune(str(tmp_path))
    finally:
        os.close(fd)
    assert names(tmp_path) == ["a", "d"]
    assert not (tmp_path / "b").exists()


def someone_waits_for(path: Path) -> bool:
    """/proc/locks marks those that wait for a lock with an arrow."""
    inodes = {str(file.stat().st_ino) for file in path.glob("*")}
    with open("/proc/locks") as file:
        return any("->" in line and line.split()[6].rpartition(":")[2] in inodes for line in file)


@contextlib.contextmanager
def closing_what_is_held(folder: Path) -> Iterator[None]:
    """The process that asks for packages holds them until it ends."""
    try:
        yield
    finally:
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/self/fd/{name}").startswith(str(folder)):
                    os.close(int(name))


def test_two_that_need_the_same_packages_at_once_both_get_them(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def make(environment: installed.Installed, *_: object) -> None:
        made.append(environment.folder)
        assert comes_true(lambda: someone_waits_for(cache / "installed")), "the second one never waited"
        Path(f"{environment.folder}.json").write_text('{"bytes": 1}')

    exists = os.path.exists
    both_look = threading.Barrier(2)
    looked: list[str] = []

    def exists_and_wait(path: str) -> bool:
        answer = exists(path)
        if str(path).endswith("name.json"):
            looked.append(path)
            if len(looked) <= 2:
                both_look.wait(timeout=30)
        return answer

    monkeypatch.setattr(installed, "_make", make)
    monkeypatch.setattr(os.path, "exists", exists_and_wait)
    env = {"pip": {"packages": ["a-package"]}}
    monkeypatch.setattr(installed, "key_of", lambda _: "name")
    with ThreadPoolExecutor(2) as pool, closing_what_is_held(cache):
        calls = [pool.submit(installed.ensure, env, {}, "/") for _ in range(2)]
        both = [call.result(timeout=60) for call in calls]
        assert both == [installed.Installed(made[0])] * 2
        assert len(made) == 1


def test_a_jobs_folder_goes_when_nobody_holds_it(cache: Path) -> None:
    folder = Path(env_folders.job_folder("one"))
    copy = folder / "copy"
    copy.mkdir()
    fd = os.open(folder / ".lock", os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_SH)
    env_folders.release()
    assert copy.exists()
    os.close(fd)
    env_folders.sweep()
    assert os.listdir(cache / "jobs") == []
    with pytest.raises(FileNotFoundError):
        env_folders.hold(str(copy))


def test_nothing_is_made_where_nothing_is_asked_for(cache: Path) -> None:
    env_folders.sweep()
    env_folders.release()
    assert not cache.exists()


def test_a_driver_that_is_killed_leaves_no_copies(cache: Path, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "data.txt").write_text("x")
    script = textwrap.dedent(
        f"""
        import os, signal, weft
        weft.init(num_cpus=1, runtime_env={{"working_dir": {str(code)!r}}})
        print(weft.get(weft.remote(os.getcwd).remote()), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=280)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert done.stdout.startswith(str(cache))
    # Its node, an orphan that this process has adopted, sweeps as it ends.
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            break
    assert os.listdir(cache / "jobs") == []
