"""kill -9 of one process of a run, any one, at any moment: the run ends and nothing of it remains.

WEFT_KILL_ROUNDS: how many runs; WEFT_KILL_SEED: the first one's seed, to see a failure again.
"""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import pytest
from marked_run import MarkedRun
from workloads import WORKLOADS

ROUNDS = int(os.environ.get("WEFT_KILL_ROUNDS", "10"))
SEED = int(os.environ.get("WEFT_KILL_SEED") or random.SystemRandom().randrange(1 << 30))
WORK_S = 1.0
"""How long a run works when nothing disturbs it."""
ROLES = ("driver", "daemon", "zygote", "worker")
PROGRAM = Path(__file__).parent / "workloads.py"


@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_run_ends_and_leaves_nothing_whatever_is_killed(number: int, tmp_path: Path) -> None:
    seed = SEED + number
    rng = random.Random(seed)
    name, role = rng.choice(sorted(WORKLOADS)), rng.choice(ROLES)
    print(f"WEFT_KILL_SEED={seed}: {name}, kill -9 of the {role}")
    with MarkedRun(PROGRAM, tmp_path, name, str(seed), str(WORK_S)) as run:
        if rng.random() < 0.8:
            run.line()  # else the kill may come while it starts
        threading.Event().wait(rng.uniform(0, WORK_S))
        victims = run.pids(role) or list(run.processes())
        victim = rng.choice(sorted(victims)) if victims else 0
        role = run.processes().get(victim, "nobody")
        if victim:
            run.kill(victim)
        status = run.end()
        print(f"killed the {role}: exit status {status}")
        run.assert_nothing_remains()
        assert status in allowed_ends(role), f"exit status {status} after the {role} was killed:\n{run.story()}"


def allowed_ends(role: str) -> tuple[int, ...]:
    """0: every value came, and was right. 3: a named error. 1: it could not be started."""
    return {"driver": (-9, 0), "starting": (0, 1, 3), "daemon": (0, 1, 3)}.get(role, (0, 3))
