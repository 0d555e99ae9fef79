"""Actors that have handles to themselves: their own, which does not keep them, and counted ones, which do."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import psutil
import pytest

import weft
from waiting import comes_true

pytestmark = pytest.mark.usefixtures("shared_weft_session")


@weft.remote(num_cpus=0)
class Keeper:
    """Keeps what it is given, and its own handle if it looks."""

    def __init__(self) -> None:
        self.own: Any = None
        self.given: Any = None

    def pid(self) -> int:
        return os.getpid()

    def look(self) -> None:
        self.own = weft.get_runtime_context().current_actor

    def take(self, given: Any) -> None:
        self.given = given

    def pass_on(self, other: Any) -> None:
        weft.get(other.take.remote([weft.get_runtime_context().current_actor]))

    def pid_of_given(self) -> int:
        return int(weft.get(self.given[0].pid.remote()))


def looks_first(actor: Any, other: Any) -> None:
    weft.get([actor.look.remote(), actor.take.remote([actor]), actor.take.remote(None)])


def looks_last(actor: Any, other: Any) -> None:
    weft.get([actor.take.remote([actor]), actor.look.remote(), actor.take.remote(None)])


def passes_its_own_on(actor: Any, other: Any) -> None:
    weft.get([actor.take.remote([actor]), actor.pass_on.remote(other)])
    assert weft.get(other.pid_of_given.remote()) == weft.get(actor.pid.remote())
    weft.get(actor.take.remote(None))


def passes_its_own_to_who_has_a_counted_one(actor: Any, other: Any) -> None:
    weft.get([other.take.remote([actor]), actor.pass_on.remote(other)])
    assert weft.get(other.pid_of_given.remote()) == weft.get(actor.pid.remote())


def passes_its_own_before_a_counted_one(actor: Any, other: Any) -> None:
    weft.get(actor.pass_on.remote(other))
    weft.get(other.take.remote([actor]))
    assert weft.get(other.pid_of_given.remote()) == weft.get(actor.pid.remote())
    weft.get(other.take.remote(None))


@pytest.mark.parametrize(
    "act",
    [
        looks_first,
        looks_last,
        passes_its_own_on,
        passes_its_own_to_who_has_a_counted_one,
        passes_its_own_before_a_counted_one,
    ],
)
def test_an_actor_ends_with_its_counted_handles_whatever_it_does_with_its_own(act: Callable[[Any, Any], None]) -> None:
    actor, other = Keeper.remote(), Keeper.remote()
    pid = weft.get(actor.pid.remote())
    act(actor, other)
    del actor
    assert comes_true(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE, 20)
    assert weft.get(other.pid.remote()) > 0


def test_a_counted_handle_keeps_the_actor_beside_its_own() -> None:
    actor, other = Keeper.remote(), Keeper.remote()
    pid = weft.get(actor.pid.remote())
    weft.get([actor.look.remote(), actor.pass_on.remote(other)])
    weft.get(other.take.remote([actor]))
    del actor
    for _ in range(3):
        assert weft.get(other.pid_of_given.remote()) == pid
