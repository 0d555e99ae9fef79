"""The fixture that makes groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from group_members import Members


@pytest.fixture
def members(shared_weft_session: Any) -> Iterator[Callable[..., Members]]:
    made: list[Members] = []

    def make(size: int, slot_bytes: int | None = None, **options: Any) -> Members:
        made.append(Members(size, slot_bytes, options))
        return made[-1]

    yield make
    for group in made:
        group.end()
