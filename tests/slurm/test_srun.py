"""`srun python script.py` forms a cluster by itself: with a fake srun, and with Slurm where it is installed."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import psutil

FAKE = str(Path(__file__).with_name("fake_srun.py"))
PROGRAM = """
import os, sys, time, weft
os.write(1, b"before\\n")  # in one piece
weft.init(resources={"slot": 2})
print("driver", os.environ["SLURM_PROCID"], len(weft.nodes()), weft.cluster_resources()["CPU"],
      weft.cluster_resources()["slot"], flush=True)

@weft.remote(scheduling_strategy="SPREAD", resources={"slot": 1})
def where():
    time.sleep(0.2)
    return weft.get_runtime_context().get_node_id()

print("spread over", len(set(weft.get([where.remote() for _ in range(8)]))), flush=True)
"""


def environment(folder: Path, **more: str) -> dict[str, str]:
    found = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "WEFT_"))}
    return {**found, "WEFT_SHARED_DIR": str(folder), **more}


def srun(folder: Path, program: str, tasks: int = 3, per_node: int = 1, **more: str) -> tuple[int, list[str], str]:
    (folder / "program.py").write_text(program)
    command = [sys.executable, FAKE, str(tasks), str(per_node), sys.executable, str(folder / "program.py")]
    done = subprocess.run(command, env=environment(folder, **more), capture_output=True, text=True, timeout=280)
    return done.returncode, done.stdout.splitlines(), done.stderr


def test_task_0_is_the_driver_and_the_others_are_nodes(tmp_path: Path) -> None:
    code, lines, errors = srun(tmp_path, PROGRAM)
    assert (code, errors) == (0, "")
    assert lines.count("before") == 3
    assert [line for line in lines if line != "before"] == ["driver 0 3 6.0 6.0", "spread over 3"]
    assert [path.name for path in tmp_path.iterdir()] == ["program.py"], "the file with the token is gone"


def test_a_machine_with_several_tasks_is_one_node(tmp_path: Path) -> None:
    code, lines, errors = srun(tmp_path, PROGRAM, tasks=4, per_node=2)
    assert (code, errors) == (0, "")
    assert "driver 0 2 4.0 4.0" in lines


def test_without_a_shared_folder_a_common_token_will_do(tmp_path: Path) -> None:
    code, lines, errors = srun(tmp_path, PROGRAM, WEFT_TOKEN="a-common-secret", WEFT_SHARED_DIR="/nonexistent")
    assert (code, errors) == (0, "")
    assert "driver 0 3 6.0 6.0" in lines


def test_only_the_user_can_read_the_token(tmp_path: Path) -> None:
    program = """
import os, pathlib, stat, weft
weft.init()
(file,) = pathlib.Path(os.environ["WEFT_SHARED_DIR"]).glob("slurm-*.json")
print(oct(stat.S_IMODE(file.stat().st_mode)))
"""
    code, lines, errors = srun(tmp_path, program, tasks=2)
    assert (code, lines, errors) == (0, [oct(stat.S_IRUSR | stat.S_IWUSR)], "")


def test_a_child_of_the_driver_attaches_to_the_cluster(tmp_path: Path) -> None:
    program = """
import subprocess, sys, weft
weft.init()
subprocess.run([sys.executable, "-c", "import weft; weft.init(); print('child', len(weft.nodes()))"], check=True)
"""
    code, lines, errors = srun(tmp_path, program, tasks=2)
    assert (code, lines, errors) == (0, ["child 2"], "")


def test_when_the_driver_fails_the_others_end(tmp_path: Path) -> None:
    code, _, errors = srun(tmp_path, "import weft\nweft.init()\nraise SystemExit(7)", tasks=3)
    assert code == 7, errors


def test_when_the_driver_is_killed_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import os, time, weft\nweft.init()\nprint(os.getpid(), flush=True)\ntime.sleep(1000)"
    )
    command = [sys.executable, FAKE, "3", "1", sys.executable, str(tmp_path / "program.py")]
    with subprocess.Popen(command, env=environment(tmp_path), stdout=subprocess.PIPE, text=True) as step:
        assert step.stdout is not None
        driver = int(step.stdout.readline())
        below = psutil.Process(step.pid).children(recursive=True)
        os.kill(driver, signal.SIGKILL)
        assert step.wait(30) == signal.SIGKILL
    _, alive = psutil.wait_procs(below, timeout=60)
    assert not alive


def test_a_task_that_finds_no_head_says_what_to_do(tmp_path: Path) -> None:
    program = "import os, weft\nif os.environ['SLURM_PROCID'] == '1': weft.init()"
    code, _, errors = srun(tmp_path, program, tasks=2, WEFT_SLURM_TIMEOUT_S="0.5")
    assert code == 1
    assert "has not found the head within 0.5 s" in errors
    assert "WEFT_SHARED_DIR" in errors
