"""The generated parts of the pages of weft.rl's algorithms."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

pytest.importorskip("gymnasium", reason="weft.rl is not installed")

ROOT = Path(__file__).parent.parent.parent


def test_pages_of_algorithms_have_todays_settings_and_curves() -> None:
    script = runpy.run_path(str(ROOT / "benchmarks" / "rl" / "pages.py"))
    pages = script["generated"]()
    assert len(pages) > 15
    for path, lines in pages.items():
        page = path.read_text()
        assert script["filled"](page, lines) == page, f"{path.name} is old: python benchmarks/rl/pages.py"
