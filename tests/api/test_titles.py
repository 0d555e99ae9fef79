"""What `ps` shows of a worker: the task that it runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import weft

pytestmark = pytest.mark.usefixtures("shared_weft_session")


def title(pid: int | str = "self") -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()


def test_a_worker_is_called_what_it_runs() -> None:
    @weft.remote
    def look() -> str:
        return title()

    assert weft.get([look.remote(), look.options(name="another").remote()]) == ["weft::look", "weft::another"]


def test_a_title_longer_than_its_place_is_cut() -> None:
    @weft.remote
    def look() -> tuple[str, str]:
        return title(), os.environ["PATH"]

    shown, path = weft.get(look.options(name="long" * 1000).remote())
    assert shown.startswith("weft::longlong") and len(shown) < 4006
    assert path == os.environ["PATH"]
    assert weft.get(look.remote())[0] == "weft::look"


def test_an_actor_shows_its_method_and_then_its_class() -> None:
    @weft.remote
    class Keeper:
        def look(self) -> tuple[str, int]:
            return title(), os.getpid()

    keeper = Keeper.remote()
    shown, pid = weft.get(keeper.look.remote())
    assert shown == "weft::Keeper.look"
    while (now := title(pid)) != "weft::Keeper":
        assert now == "weft::Keeper.look"
