"""What lies in the cache, who holds it, and when it goes."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from weft.engine.process.runtime_env import folders, installed


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


def test_a_jobs_folder_goes_when_nobody_holds_it(cache: Path) -> None:
    folder = Path(folders.job_folder("one"))
    copy = folder / "copy"
    copy.mkdir()
    fd = os.open(folder / ".lock", os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_SH)
    folders.release()
    assert copy.exists()
    os.close(fd)
    folders.sweep()
    assert os.listdir(cache / "jobs") == []
    with pytest.raises(FileNotFoundError):
        folders.hold(str(copy))


def test_nothing_is_made_where_nothing_is_asked_for(cache: Path) -> None:
    folders.sweep()
    folders.release()
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
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert done.stdout.startswith(str(cache))
    # Its node, an orphan that this process has adopted, sweeps as it ends.
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            break
    assert os.listdir(cache / "jobs") == []
