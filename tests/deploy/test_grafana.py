"""The Grafana dashboard asks only for metrics that a node has."""

from __future__ import annotations

import json
import re
from pathlib import Path

from weft.dashboard import prometheus

FILE = Path(__file__).resolve().parents[2] / "deploy" / "grafana" / "weft.json"


def test_every_metric_that_a_panel_asks_for_exists() -> None:
    known = {name for name, _, _ in (*prometheus._COUNTERS.values(), *prometheus._MACHINE.values())}
    known |= {"weft_resource_total", "weft_resource_available", "weft_workers", "weft_actors", "weft_demands"}
    panels = json.loads(FILE.read_text())["panels"]
    asked = {
        name for panel in panels for target in panel["targets"] for name in re.findall(r"weft_\w+", target["expr"])
    }
    assert asked and asked <= known, asked - known
    assert len({panel["id"] for panel in panels}) == len(panels)
