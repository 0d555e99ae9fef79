"""The short form of `make soak-serve`."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import ModuleType

from weft import serve

SOAK = Path(__file__).resolve().parents[2] / "benchmarks" / "serve_soak.py"


def test_no_answer_is_lost_by_kills_updates_and_scaling(shared_weft_session: ModuleType) -> None:
    made, _ = runpy.run_path(str(SOAK))["soak"](seconds=9, clients=2)
    serve.shutdown()
    assert not made.tally.wrong, made.tally.wrong[:5]
    assert made.tally.answered > 0 and made.kills > 0 and made.updates > 0
