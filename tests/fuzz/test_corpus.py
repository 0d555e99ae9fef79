"""What the fuzzer has found worth keeping is read again by every reader."""

from __future__ import annotations

import random
import time
from pathlib import Path

import inputs
import pytest

CORPUS = sorted(Path(__file__).with_name("corpus").iterdir())
INPUTS = [path.read_bytes() for path in CORPUS]


def test_there_is_a_corpus() -> None:
    assert len(CORPUS) >= 20


CPU_S = 60 / len(inputs.READERS)
"""For each reader, so a minute for all: a short form of `make fuzz`, without its sense for new paths."""


def mutated(rng: random.Random) -> bytes:
    data = bytearray(rng.choice(INPUTS))
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0:
                data[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                del data[at : at + rng.randint(1, 16)]
            case 2:
                data[at:at] = rng.randbytes(rng.randint(1, 16))
            case 3:  # as deep as it goes
                data[at:at] = data[at : at + rng.randint(1, 8)] * rng.randrange(2000)
            case _:
                data[at : at + 4] = rng.choice([bytes(4), b"\xff" * 4, b"\x7f\xff\xff\xff", b"\0\0\0\x80"])
    return bytes(data)


@pytest.mark.parametrize("reader", inputs.READERS, ids=lambda reader: reader.__name__)
def test_every_reader_takes_or_refuses_what_is_changed_at_random(reader) -> None:  # type: ignore[no-untyped-def]
    rng = random.Random(reader.__name__)
    until_s = time.process_time() + CPU_S
    try:
        while time.process_time() < until_s:
            reader(mutated(rng), rng.randrange(20))
    finally:
        inputs.forget()


@pytest.mark.parametrize("reader", inputs.READERS, ids=lambda reader: reader.__name__)
def test_every_reader_takes_or_refuses_what_was_found(reader) -> None:  # type: ignore[no-untyped-def]
    try:
        for data in INPUTS:
            for cut in {0, 3, data[1] if len(data) > 1 else 0}:
                reader(data[2:], cut)
    finally:
        inputs.forget()
