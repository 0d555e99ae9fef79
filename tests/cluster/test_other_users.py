"""Other users of the machine: what they connect to, fill up or take the name of keeps nobody out and runs nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from weft.cluster_utils import Cluster
from weft.engine.cluster import tokens
from weft.engine.cluster.client import Client
from weft.engine.node import launch
from weft.engine.node import storage as node_storage
from weft.environments import env_folders
from weft.jobs.job_runner import Runner, RunOrder
from weft.jobs.log_files import LogWriter
from weft.library.storage import Storage
from weft.machine import own_folders
from weft.net import unix_table
from weft.net.credentials import connect_to_own
from weft.store.embedded import EmbeddedStorage
from weft.tune.host import journals_of

NOBODY = 65534
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")
_DROP = f"import os; os.setgroups([]); os.setresgid(*[{NOBODY}] * 3); os.setresuid(*[{NOBODY}] * 3)\n"


@contextlib.contextmanager
def another_user(code: str, *arguments: str) -> Iterator[None]:
    """Runs as another user, who has said that he is ready."""
    command = [sys.executable, "-S", "-c", f"import socket, sys\n{_DROP}{code}\nprint('ready', flush=True); input()"]
    with subprocess.Popen([*command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as stranger:
        assert stranger.stdout is not None and stranger.stdin is not None
        assert stranger.stdout.readline() == "ready\n"
        yield
        stranger.stdin.close()


FILL = """
held = []
while True:
    held.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK))
    try:
        held[-1].connect("\\0" + sys.argv[1][1:])
    except BlockingIOError:
        break
"""


@as_root
def test_a_line_that_another_user_has_filled_is_waited_for(cluster: Cluster) -> None:
    assert cluster.head_node is not None
    address = cluster.head_node.local_address
    answers: list[object] = []
    os.kill(cluster.head_node.pid, signal.SIGSTOP)
    try:
        with another_user(FILL, address):
            asking = threading.Thread(target=lambda: answers.append(Client(address).ask("status", timeout_s=60)))
            asking.start()
            with pytest.raises(TimeoutError, match="has let nobody in"):
                connect_to_own(address, socket.SOCK_SEQPACKET, 0.1)
            os.kill(cluster.head_node.pid, signal.SIGCONT)
            asking.join()
            assert address in launch.find_nodes()
    finally:
        os.kill(cluster.head_node.pid, signal.SIGCONT)
    assert answers and answers[0]


SQUAT = """
held = []
for name in sys.argv[1:]:
    held.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    held[-1].bind("\\0" + name)
    held[-1].listen(1)
"""


@as_root
def test_sockets_of_another_user_under_names_like_ours_are_no_nodes(cluster: Cluster) -> None:
    assert cluster.head_node is not None
    names = [f"weft-{os.getuid()}-{number:017x}+{cluster.address}+hl" for number in range(20)]
    with another_user(SQUAT, *names):
        assert not {f"@{name}" for name in names} & set(launch.find_nodes())
        with pytest.raises(ConnectionError, match="belongs to user"):
            launch.join_node(f"@{names[0]}")
        assert Client(cluster.address).ask("status", timeout_s=30)


CROWD = (
    SQUAT
    + """
for one in list(held):
    for _ in range(3):
        held.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK))
        try:
            held[-1].connect(one.getsockname())
        except BlockingIOError:
            pass
"""
)


@as_root
def test_nobody_waits_in_line_at_sockets_of_another_user(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cluster.head_node is not None
    names = [f"weft-{os.getuid()}-{number:017x}+{cluster.address}+hl" for number in range(20)]
    with another_user(CROWD, *names):
        monkeypatch.setattr(launch, "is_own_node", lambda name: pytest.fail(f"{name} was asked whose it is"))
        assert cluster.head_node.local_address in launch.find_nodes()
        monkeypatch.undo()
        monkeypatch.setattr(unix_table, "_told_by_the_kernel", Mock(side_effect=OSError))
        assert unix_table.listening(f"@{names[0]}") == {f"@{names[0]}": None}
        assert not {f"@{name}" for name in names} & set(launch.find_nodes())


@as_root
def test_another_user_reads_nothing_of_a_nodes_processes(cluster: Cluster) -> None:
    assert cluster.head_node is not None
    code = """
for name in ("environ", "mem", "maps", "fd"):
    try:
        (os.listdir if name == "fd" else open)(f"/proc/{sys.argv[1]}/{name}")
    except PermissionError:
        continue
    sys.exit(name)
"""
    with another_user(code, str(cluster.head_node.pid)):
        pass


@as_root
def test_a_folder_that_another_user_has_made_first_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    elsewhere = Storage.__new__(Storage)
    made = tmp_path / f"weft-tune-{os.getuid()}"
    assert Path(journals_of(elsewhere, "x").root).parent == made
    made.chmod(0o777)
    with pytest.raises(PermissionError, match="not a folder of this user alone"):
        journals_of(elsewhere, "x")
    made.chmod(0o700)
    os.chown(made, NOBODY, NOBODY)
    with pytest.raises(PermissionError, match="not a folder of this user alone"):
        journals_of(elsewhere, "x")
    ours, link = tmp_path / "ours", tmp_path / "cache"
    ours.mkdir()
    link.symlink_to(ours)
    env_folders.make(str(link))
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    with pytest.raises(PermissionError, match="belongs to another user"):
        env_folders.make(str(link))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert tokens.folder() == tmp_path / "state" / "weft"
    os.chown(tmp_path / "state" / "weft", NOBODY, NOBODY)
    with pytest.raises(PermissionError, match="set XDG_STATE_HOME"):
        tokens.folder()


@as_root
def test_a_link_of_another_user_leads_no_node_to_remove_folders_elsewhere(tmp_path: Path) -> None:
    precious = tmp_path / "home" / "project"
    precious.mkdir(parents=True)
    (precious / ".lock").touch()
    link = tmp_path / f"weft-storage-{os.getuid()}"
    link.symlink_to(tmp_path / "home")
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    storage = node_storage.Storage(Mock(), Mock(), str(tmp_path))
    with pytest.raises(PermissionError, match="belongs to another user"):
        storage.folder()
    assert precious.exists()


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
@pytest.mark.parametrize(
    "make",
    [
        lambda path: own_folders.make(str(path), ""),
        lambda path: EmbeddedStorage(path).close(),
        lambda path: LogWriter(str(path)).close(),
        lambda path: Runner(Mock(), lambda: str(path), lambda: "").keep_package("x.zip", 0, b""),
        lambda path: Runner(Mock(), lambda: str(path), lambda: "")._order(RunOrder("job", "true")),
    ],
    ids=["the user's", "the control store's", "a job's log", "a job's archive", "a job's"],
)
def test_a_folder_and_those_above_it_are_the_users_alone(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "a" / "b")
    folders_made = [path for path in tmp_path.rglob("*") if path.is_dir()]
    assert len(folders_made) >= 2
    assert {path.stat().st_mode & 0o777 for path in folders_made} == {0o700}
