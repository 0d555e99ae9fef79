"""A borrower that its object's owner never talked to: its death counts all the same."""

from __future__ import annotations

import os
import signal
import threading
from types import ModuleType
from typing import Any

import numpy as np

import weft
from weft.engine.process.session import rpc


def used_bytes() -> int:
    return int(rpc.request("statistics")["used_bytes"])


@weft.remote(num_cpus=0)
class Keeper:
    """Never asks the owner for the value."""

    def keep(self, refs: list[Any]) -> int:
        self.kept = refs
        return os.getpid()


@weft.remote(num_cpus=0)
class Lender:
    def lend(self, refs: list[Any]) -> int:
        """To an actor that the owner never hears of; its pid."""
        self.third = Keeper.remote()
        return int(weft.get(self.third.keep.remote(refs)))


def test_a_borrower_that_dies_unknown_to_the_owner_gives_back_what_it_kept(weft_session: ModuleType) -> None:
    lender = Lender.remote()
    ref = weft.put(np.ones(4 << 20, dtype=np.uint8))
    pid = weft.get(lender.lend.remote([ref]))
    del ref
    os.kill(pid, signal.SIGKILL)
    tick = threading.Event()
    for _ in range(100):
        if used_bytes() == 0:
            break
        tick.wait(0.05)
    assert used_bytes() == 0
