"""What the fuzzer has found worth keeping is read again by every reader."""

from __future__ import annotations

from pathlib import Path

import inputs
import pytest

CORPUS = sorted(Path(__file__).with_name("corpus").iterdir())


def test_there_is_a_corpus() -> None:
    assert len(CORPUS) >= 20


@pytest.mark.parametrize("reader", inputs.READERS, ids=lambda reader: reader.__name__)
def test_every_reader_takes_or_refuses_what_was_found(reader) -> None:  # type: ignore[no-untyped-def]
    try:
        for path in CORPUS:
            data = path.read_bytes()
            for cut in {0, 3, data[1] if len(data) > 1 else 0}:
                reader(data[2:], cut)
    finally:
        inputs.forget_records()
