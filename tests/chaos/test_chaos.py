"""The short form of `make chaos`: every program ends with the right answers while things are killed around it.

WEFT_CHAOS_SECONDS: how long; WEFT_CHAOS_SEED: to see a failure again.
"""

from __future__ import annotations

import os
import random

from harm import Chaos

SHORT = ["map_reduce", "spilling", "parameter_server", "rl_loop", "tuning"]
"""What a short run has time for; `make chaos` runs all."""
SECONDS = float(os.environ.get("WEFT_CHAOS_SECONDS", "12"))
SEED = int(os.environ.get("WEFT_CHAOS_SEED") or random.SystemRandom().randrange(1 << 30))


def test_programs_end_with_the_right_answers_whatever_is_killed() -> None:
    print(f"WEFT_CHAOS_SEED={SEED}")
    report = Chaos(SEED, SECONDS, SHORT, every_s=1.0).run()
    print(report)
    assert not report.losses, f"WEFT_CHAOS_SEED={SEED}\n{report}"
    assert report.faults, "nothing was harmed"
    assert set(report.rounds) == set(SHORT)
