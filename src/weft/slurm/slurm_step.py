"""What Slurm says of the step that this process is a task of. Pure: variables in, a description out.

>>> expand_hosts("gpu[01-03,7],login")
['gpu01', 'gpu02', 'gpu03', 'gpu7', 'login']
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_PART = re.compile(r"((?:[^,\[\]]|\[[^\[\]]*\])+)")


@dataclass(frozen=True)
class Step:
    """One `srun`, as one of its tasks sees it."""

    rank: int
    tasks: int
    hosts: tuple[str, ...]
    """Of the machines, the first one's task 0 first."""
    local_rank: int
    """Among the tasks of this machine: the first of them is the machine's node."""
    name: str
    """Of the step, the same for all its tasks and for no other step of the user."""
    cpus: float | None
    """That the step has on this machine, where Slurm says so."""

    @property
    def is_head(self) -> bool:
        return self.rank == 0


def read_step(variables: Mapping[str, str]) -> Step | None:
    """None where this is no task of a step with more than one."""
    hosts = variables.get("SLURM_STEP_NODELIST", "")
    tasks = variables.get("SLURM_STEP_NUM_TASKS") or variables.get("SLURM_NTASKS", "")
    rank = variables.get("SLURM_PROCID", "")
    if not (hosts and tasks.isdigit() and rank.isdigit() and int(tasks) > 1):
        return None
    parts = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")
    cpus = variables.get("SLURM_CPUS_ON_NODE", "")
    return Step(
        int(rank),
        int(tasks),
        tuple(expand_hosts(hosts)),
        int(variables.get("SLURM_LOCALID", "0") or 0),
        "slurm-" + "-".join(variables.get(part) or "0" for part in parts),
        float(cpus) if cpus.isdigit() else None,
    )


def expand_hosts(text: str) -> list[str]:
    """Slurm's short form of a list of hosts, in full. ValueError when it is none."""
    return [host for part in _PART.findall(text) for host in _expand(part)]


def _expand(part: str) -> Iterator[str]:
    before, bracket, rest = part.partition("[")
    if not bracket:
        yield part
        return
    inside, closing, after = rest.partition("]")
    if not closing:
        raise ValueError(f"{part!r} is no list of hosts: it lacks a ']'")
    for piece in inside.split(","):
        first, _, last = piece.partition("-")
        if not first.isdigit() or not (last or first).isdigit():
            raise ValueError(f"{part!r} is no list of hosts: {piece!r} is no number and no range of numbers")
        for number in range(int(first), int(last or first) + 1):
            for end in _expand(after) if after else [""]:
                yield f"{before}{number:0{len(first)}d}{end}"
