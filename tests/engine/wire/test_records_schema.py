"""One table says what the records are; what C++ and Python know of them is made of it."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest

from weft.engine.wire import kinds

SCHEMA = Path(__file__).resolve().parents[3] / "native" / "schema"


@pytest.fixture
def schema(monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(SCHEMA))
    return SCHEMA


def test_what_is_checked_in_is_what_the_table_says() -> None:
    done = subprocess.run(
        [sys.executable, SCHEMA / "generate.py", "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_no_two_kinds_share_a_number(schema: Path) -> None:
    from records import CONSTANTS, RECORDS

    numbers = [one.number for one in RECORDS.values()]
    events = [value for value, holder, _ in CONSTANTS.values() if holder == "uint16_t"]
    assert len(set(numbers + events)) == len(numbers + events)


def test_a_body_in_which_c_would_leave_a_gap_is_refused(schema: Path) -> None:
    from generate import body

    assert body("GOOD", "one u32, _ pad, two u64").size == 16
    with pytest.raises(ValueError, match="two begins at byte 4, no multiple of 8: add a pad"):
        body("BAD", "one u32, two u64")
    with pytest.raises(ValueError, match="12 bytes are no multiple of its largest field's alignment"):
        body("BAD", "one u64, two u32")


def test_python_packs_as_many_bytes_as_the_table_says(schema: Path) -> None:
    from generate import BODY, SHARED

    packers = {name.removesuffix("_BODY"): one for name, one in vars(kinds).items() if isinstance(one, struct.Struct)}
    table = {one.name: one for one in (*SHARED.values(), *BODY.values())}
    assert len(packers) > 20 and {name: one.size for name, one in packers.items()} == {
        name: table[name].size for name in packers
    }
