"""The command line as a person uses it, with a state folder of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import Head, Run, runner

import weft


@pytest.fixture
def cli(tmp_path: Path) -> Run:
    return runner(tmp_path)


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    head = Head(tmp_path_factory.mktemp("state"))
    try:
        weft.init(address=head.address)  # a session that is shared: its workers come and go
        yield head
    finally:
        weft.shutdown()
        head.stop()
