"""What Slurm's variables mean."""

from __future__ import annotations

import pytest

from weft.slurm.slurm_step import expand_hosts, read_step

STEP = {
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_ID": "1",
    "SLURM_CPUS_ON_NODE": "8",
}


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("alone", ["alone"]),
        ("a,b", ["a", "b"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[008-011]", ["n008", "n009", "n010", "n011"]),
        ("n[1,4-5]x,m", ["n1x", "n4x", "n5x", "m"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("", []),
    ],
)
def test_a_list_of_hosts_is_expanded(text: str, hosts: list[str]) -> None:
    assert expand_hosts(text) == hosts


@pytest.mark.parametrize("text", ["n[a-b]", "n[]"])
def test_what_is_no_list_of_hosts_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no list of hosts"):
        expand_hosts(text)


def test_a_task_knows_its_step() -> None:
    step = read_step(STEP)
    assert step is not None
    assert (step.rank, step.tasks, step.hosts, step.local_rank) == (3, 4, ("n1", "n2"), 1)
    assert (step.name, step.cpus, step.is_head) == ("slurm-77-1-0", 8.0, False)


@pytest.mark.parametrize("missing", ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST"])
def test_a_batch_script_or_a_shell_is_no_step(missing: str) -> None:
    assert read_step({name: value for name, value in STEP.items() if name != missing}) is None


def test_a_step_of_one_task_forms_no_cluster() -> None:
    assert read_step({**STEP, "SLURM_STEP_NUM_TASKS": "1"}) is None
