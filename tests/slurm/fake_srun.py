"""`srun` as far as its tasks can tell: the same program several times, with Slurm's variables, on one machine.

    python fake_srun.py TASKS TASKS_PER_NODE COMMAND...

Its exit status is the highest of its tasks'. The machines are 127.0.0.1, 127.0.0.2, ...
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys


def main() -> int:
    tasks, per_node = int(sys.argv[1]), int(sys.argv[2])
    hosts = [f"127.0.0.{number + 1}" for number in range((tasks + per_node - 1) // per_node)]
    running = []
    for rank in range(tasks):
        variables = {
            "SLURM_JOB_ID": os.environ.get("FAKE_JOB_ID", str(os.getpid())),
            "SLURM_STEP_ID": "0",
            "SLURM_PROCID": str(rank),
            "SLURM_LOCALID": str(rank % per_node),
            "SLURM_NODEID": str(rank // per_node),
            "SLURM_NTASKS": str(tasks),
            "SLURM_STEP_NUM_TASKS": str(tasks),
            "SLURM_JOB_NODELIST": ",".join(hosts),
            "SLURM_STEP_NODELIST": ",".join(hosts),
            "SLURM_CPUS_ON_NODE": "2",
            "SLURMD_NODENAME": hosts[rank // per_node],
        }
        running.append(subprocess.Popen(sys.argv[3:], env={**os.environ, **variables}))
    signal.signal(signal.SIGTERM, lambda *_: [task.kill() for task in running])
    return max(abs(task.wait()) for task in running)


if __name__ == "__main__":
    sys.exit(main())
