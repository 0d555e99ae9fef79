"""Objects with names, and refs in the state of actors with exact state: they stay as long as something names them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import psutil
import pytest

import weft
from waiting import wait_until
from weft import _native
from weft.engine.process.session import rpc
from weft.exceptions import WeftError

LARGE = 50_000


@pytest.fixture(scope="module", autouse=True)
def session() -> Iterator[None]:
    weft.init(num_cpus=2)
    yield
    weft.shutdown()


@weft.remote(checkpoint=1, num_cpus=0, max_restarts=-1, max_task_retries=-1)
class Shelf:
    def __init__(self) -> None:
        self.refs: dict[str, Any] = {}

    def place(self, name: str, refs: list[Any]) -> int:
        self.refs[name] = refs[0]
        return len(self.refs)

    def take(self, name: str) -> list[Any]:
        return [self.refs[name]]

    def remove(self, name: str) -> int:
        del self.refs[name]
        return len(self.refs)

    def pid(self) -> int:
        return os.getpid()


@weft.remote(num_cpus=0)
def name_it(name: str) -> int:
    weft.put(np.arange(LARGE), name=name)
    return os.getpid()


def kept(identity: bytes) -> bool:
    return bool(rpc.request("find_kept", ids=[identity], wait=False))


def test_what_only_a_dead_actors_log_names_is_there_for_its_next_incarnation() -> None:
    shelf = Shelf.remote()
    weft.get(shelf.place.remote("put", [weft.put(np.full(LARGE, 3))]))
    weft.get(shelf.place.remote("small", [weft.put("x")]))
    os.kill(weft.get(shelf.pid.remote()), signal.SIGKILL)
    assert weft.get(weft.get(shelf.take.remote("put"))[0]).sum() == 3 * LARGE
    assert weft.get(weft.get(shelf.take.remote("small"))[0]) == "x"


def test_an_object_goes_when_the_log_names_it_no_more() -> None:
    shelf = Shelf.remote()
    ref = weft.put(np.full(LARGE, 3))
    weft.get(shelf.place.remote("a", [ref]))
    identity = ref.binary()
    assert kept(identity)
    del ref
    assert weft.get(shelf.remove.remote("a")) == 0
    wait_until(lambda: not kept(identity))


def test_an_object_goes_with_the_last_actor_that_names_it() -> None:
    first, second = Shelf.remote(), Shelf.remote()
    ref = weft.put(np.full(LARGE, 3))
    identity = ref.binary()
    weft.get([first.place.remote("a", [ref]), second.place.remote("a", [ref])])
    del ref
    weft.kill(first)
    assert weft.get(weft.get(second.take.remote("a"))[0]).sum() == 3 * LARGE
    assert kept(identity)
    weft.kill(second)
    wait_until(lambda: not kept(identity))


@weft.remote(checkpoint=1, num_cpus=0, max_restarts=0)
class Mayfly:
    def pid(self) -> int:
        return os.getpid()

    def die_asking(self, what: str, refs: list[Any]) -> None:
        """Owners have been asked to hold the objects, and the call that names them is not written down."""
        real = rpc.request

        def request(method: str, /, **params: Any) -> Any:
            if method == what:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(method, **params)

        rpc.request = request
        self.refs = refs


@weft.remote(num_cpus=0)
class Owner:
    def put(self) -> list[Any]:
        return [weft.put("owned")]

    def pid(self) -> int:
        return os.getpid()

    def objects(self) -> int:
        return _native.statistics()["objects_owned"]


def test_what_an_actor_did_not_live_to_write_is_not_held_for_it() -> None:
    owner, actor = Owner.remote(), Mayfly.remote()
    before = weft.get(owner.objects.remote())
    [ref] = weft.get(owner.put.remote())
    identity = ref.binary()
    with pytest.raises(WeftError):
        weft.get(actor.die_asking.remote("actor_log_append", [ref]), timeout=60)
    del ref
    wait_until(lambda: not kept(identity))
    wait_until(lambda: weft.get(owner.objects.remote()) == before)


def test_an_owner_that_hears_of_it_when_the_actor_is_dead_does_not_hold_it() -> None:
    owner, actor = Owner.remote(), Mayfly.remote()
    before = weft.get(owner.objects.remote())
    [ref] = weft.get(owner.put.remote())
    identity = ref.binary()
    pid = weft.get(owner.pid.remote())
    weft.get(actor.pid.remote())
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(WeftError):
            weft.get(actor.die_asking.remote("find_kept", [ref]), timeout=60)
    finally:
        os.kill(pid, signal.SIGCONT)
    del ref
    wait_until(lambda: weft.get(owner.objects.remote()) == before)
    assert not kept(identity)


def test_a_value_whose_name_is_taken_is_not_held() -> None:
    weft.put(1, name="taken")
    before = _native.statistics()["objects_owned"]
    for _ in range(3):
        with pytest.raises(ValueError, match="already taken"):
            weft.put(2, name="taken")
    wait_until(lambda: _native.statistics()["objects_owned"] <= before)
    weft.delete_object("taken")


def test_a_named_object_is_found_until_its_name_is_deleted() -> None:
    weft.put([1, 2], name="numbers")
    assert weft.get(weft.get_object("numbers")) == [1, 2]
    with pytest.raises(ValueError, match="already taken"):
        weft.put([3], name="numbers")
    held = weft.get_object("numbers")
    weft.delete_object("numbers")
    with pytest.raises(ValueError, match="no object has the name 'numbers'"):
        weft.get_object("numbers")
    with pytest.raises(ValueError, match="no object has the name"):
        weft.delete_object("numbers")
    assert weft.get(held) == [1, 2]
    weft.put([3], name="numbers")
    assert weft.get(weft.get_object("numbers")) == [3]
    weft.delete_object("numbers")


def test_a_worker_that_has_named_an_object_is_kept_for_it() -> None:
    weft.get(name_it.remote("of a worker"))
    assert weft.get(weft.get_object("of a worker")).sum() == LARGE * (LARGE - 1) // 2
    weft.delete_object("of a worker")


@pytest.mark.parametrize("is_held", [True, False])
def test_a_named_object_whose_owner_died_passes_to_its_next_reader(is_held: bool) -> None:
    name = f"of the dead, {is_held}"
    pid = weft.get(name_it.remote(name))
    held = weft.get_object(name) if is_held else None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not psutil.pid_exists(pid))
    assert weft.get(held or weft.get_object(name), timeout=60).sum() == LARGE * (LARGE - 1) // 2
    weft.delete_object(name)


@weft.remote(num_cpus=0)
class Reader:
    def sum_of(self, refs: list[Any]) -> int:
        return int(weft.get(refs[0]).sum())


@pytest.mark.parametrize("heir_lives", [True, False])
def test_an_heir_without_a_ref_holds_what_has_a_name(heir_lives: bool) -> None:
    """Who had asked for the name passes the ref on unread, and whoever reads it first is the heir."""
    name, total = f"of an heir, {heir_lives}", LARGE * (LARGE - 1) // 2
    pid = weft.get(name_it.remote(name))
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not psutil.pid_exists(pid))
    heir, other = Reader.remote(), Reader.remote()
    ref = weft.get_object(name)
    identity = ref.binary()
    assert weft.get(heir.sum_of.remote([ref]), timeout=60) == total
    del ref
    if not heir_lives:
        weft.kill(heir)
    for _ in range(3):
        assert weft.get(other.sum_of.remote([weft.get_object(name)]), timeout=60) == total
    weft.delete_object(name)
    wait_until(lambda: not kept(identity))


def test_a_name_is_read_in_the_moment_in_which_its_owners_death_is_settled() -> None:
    for number in range(10):
        pid = weft.get(name_it.remote(f"moment {number}"))
        os.kill(pid, signal.SIGKILL)
        while psutil.pid_exists(pid):
            pass  # the node hears of it now
        assert weft.get(weft.get_object(f"moment {number}"), timeout=60).sum() == LARGE * (LARGE - 1) // 2
        weft.delete_object(f"moment {number}")


@pytest.mark.parametrize("name", ["", "  ", 3])
def test_a_name_that_is_none_is_refused(name: Any) -> None:
    with pytest.raises(ValueError, match="an object's name"):
        weft.put(1, name=name)
    with pytest.raises((ValueError, WeftError)):
        weft.get_object(name)
