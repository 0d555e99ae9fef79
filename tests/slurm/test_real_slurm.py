"""The same with Slurm itself: its daemons and two of its nodes, on loopback.

Needs root and the Debian packages slurmctld, slurmd, slurm-client and munge; skipped without.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

NEEDED = ("munged", "slurmctld", "slurmd", "srun", "sinfo")
MISSING = [name for name in NEEDED if shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin") is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING) or os.getuid() != 0, reason=f"needs root and Slurm; missing: {MISSING}"),
]

CONFIGURATION = """
ClusterName=weft
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldPort={ports[0]}
ReturnToService=2
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs={cpus}
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs={cpus}
PartitionName=all Nodes=n1,n2 Default=YES State=UP OverSubscribe=FORCE
"""
PROGRAM = """
import os, time, weft
weft.init(num_cpus=1)

@weft.remote(scheduling_strategy="SPREAD")
def where():
    time.sleep(0.2)
    return weft.get_runtime_context().get_node_id()

print("task", os.environ["SLURM_PROCID"], "of", len(weft.nodes()), "nodes:",
      len(set(weft.get([where.remote() for _ in range(6)]))))
"""


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment in which `srun` finds it."""
    folder = tmp_path_factory.mktemp("slurm")
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    for name in ("state", "spool-n1", "spool-n2"):
        (folder / name).mkdir()
    host = socket.gethostname().partition(".")[0]
    text = CONFIGURATION.format(host=host, folder=folder, ports=free_ports(3), cpus=os.cpu_count())
    (folder / "slurm.conf").write_text(text)
    found = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "WEFT_"))}
    environment = {**found, "PATH": f"{os.environ['PATH']}:/usr/sbin", "SLURM_CONF": str(folder / "slurm.conf")}
    commands = [
        ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/munge.sock"]
        + [f"--{name}-file={folder}/munge.{name}" for name in ("pid", "log", "seed")],
        ["slurmctld", "-D"],
        ["slurmd", "-D", "-N", "n1"],
        ["slurmd", "-D", "-N", "n2"],
    ]
    running: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            with open(folder / f"{command[0]}-{command[-1]}.out".replace("/", "_"), "wb") as log:
                running.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
        _await_idle(environment, folder)
        yield {**environment, "WEFT_SHARED_DIR": str(folder)}
    finally:
        for one in reversed(running):
            one.terminate()
            one.wait(20)


def _await_idle(environment: dict[str, str], folder: Path) -> None:
    deadline = time.monotonic() + 40
    while True:
        shown = subprocess.run(["sinfo", "-h", "-o", "%T %D"], env=environment, capture_output=True, text=True)
        if shown.stdout.strip() == "idle 2":
            return
        if time.monotonic() > deadline:
            logs = {path.name: path.read_text()[-500:] for path in folder.glob("*.out")}
            pytest.fail(f"Slurm does not come up: {shown.stdout} {shown.stderr} {logs}")
        time.sleep(0.2)


@pytest.mark.parametrize("per_node", [1, 2])
def test_srun_forms_a_cluster(slurm: dict[str, str], tmp_path: Path, per_node: int) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    shape = ["-N2", f"-n{2 * per_node}", f"--ntasks-per-node={per_node}", "--overcommit", "-Q"]
    done = subprocess.run(
        ["srun", *shape, sys.executable, str(program)], env=slurm, capture_output=True, text=True, timeout=280
    )
    assert (done.returncode, done.stdout) == (0, "task 0 of 2 nodes: 2\n"), done.stderr
