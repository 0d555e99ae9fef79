"""What other threads, or code that runs in the midst of a call, do to that call: it gives its own values, or raises."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from types import ModuleType
from typing import Any

import pytest

import weft
from waiting import comes_true, wait_until
from weft import _native
from weft.exceptions import TaskCancelledError

refs: list[Any] = []
recycled: list[Any] = []


def clear_and_put_others(number: int) -> int:
    """The entries of what the list alone held are free, and taken by other values."""
    refs.clear()
    recycled.extend(weft.put(f"another value {i}") for i in range(20))
    return number


class Clears:
    def __reduce__(self) -> tuple[Any, ...]:
        return clear_and_put_others, (0,)


def test_get_of_a_list_that_is_cleared_meanwhile_gives_the_values_it_was_asked_for(weft_session: ModuleType) -> None:
    refs[:] = [weft.put(Clears()), *(weft.put(f"value {i}") for i in range(1, 10))]
    assert weft.get(refs) == [0, *(f"value {i}" for i in range(1, 10))]
    assert refs == []
    recycled.clear()


def test_get_of_a_list_that_another_thread_clears_while_it_waits(weft_session: ModuleType, tmp_path: Any) -> None:
    @weft.remote
    def wait_for(path: str, number: int) -> str:
        wait_until(lambda: os.path.exists(path))
        return f"value {number}"

    go = str(tmp_path / "go")
    refs[:] = [weft.put(Clears()), wait_for.remote(go, 1), weft.put("value 2")]
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(weft.get(refs)))
    thread.start()
    wait_until(lambda: _native.long_waits([])[0])
    refs.clear()
    recycled.extend(weft.put(f"another value {i}") for i in range(20))
    open(go, "w").close()
    thread.join()
    assert got == [[0, "value 1", "value 2"]]
    recycled.clear()


def test_wait_on_a_list_that_another_thread_clears_gives_the_refs_it_was_asked_for(
    weft_session: ModuleType, tmp_path: Any
) -> None:
    @weft.remote
    def wait_for(path: str) -> str:
        wait_until(lambda: os.path.exists(path))
        return "came"

    go = str(tmp_path / "go")
    refs[:] = [wait_for.remote(go), weft.put("there")]
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(weft.wait(refs, num_returns=2)))
    thread.start()
    wait_until(lambda: _native.long_waits([])[0])
    refs.clear()
    open(go, "w").close()
    thread.join()
    [(ready, rest)] = got
    assert weft.get(ready) == ["came", "there"]
    assert rest == []


class Growing(list[Any]):
    """As if another thread appended to it each time that it is looked through."""

    def __iter__(self) -> Any:
        now = iter(self[:])
        self.append(weft.put(0))
        return now


def test_wait_on_a_list_that_another_thread_appends_to_is_no_list_with_a_ref_twice(weft_session: ModuleType) -> None:
    ref = weft.put(1)
    assert weft.wait(Growing([ref]), num_returns=1)[0] == [ref]
    with pytest.raises(ValueError, match="some appear twice"):
        weft.wait([ref, ref])


def test_an_interrupt_that_ends_no_system_call_of_the_waiting_thread_ends_its_wait(weft_session: ModuleType) -> None:
    """As one that comes just before the thread sleeps: here another thread takes it."""
    ref = weft.remote(signal.pause).remote()

    def interrupt() -> None:
        wait_until(lambda: _native.long_waits([])[0])
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        weft.get(ref)
    thread.join()
    weft.cancel(ref, force=True)


# ---- a session that ends in the midst of a call --------------------------------------------------------

CALLS = {
    "put": "weft.put([Ends()])",
    "put of an array": "weft.put([Ends(), numpy.ones(1 << 20)])",
    "put of an array before": "weft.put([numpy.ones(1 << 20), Ends()])",
    "put of a ref": "weft.put([Ends(), ref])",
    "put of a ref before": "weft.put([ref, Ends()])",
    "remote": "one.remote(Ends())",
    "remote with a ref": "one.remote(ref, Ends(), ref)",
    "remote with an array": "one.remote(numpy.ones(1 << 20), Ends(), numpy.ones(1 << 20))",
    "a keyword": "one.remote(Ends(), also=numpy.ones(1 << 20))",
    "an actor's call": "actor.call.remote(Ends(), ref)",
    "an actor's creation": "Actor.remote(Ends(), ref, also=numpy.ones(1 << 20))",
}


@pytest.mark.parametrize("then", ["weft.shutdown()", "weft.shutdown(); weft.init(num_cpus=1)"])
def test_a_call_whose_session_ends_while_it_pickles_says_so(then: str) -> None:
    program = f"""
    import gc, numpy, weft

    class Ends:
        def __reduce__(self):
            {then}
            gc.collect()
            return (int, ())

    @weft.remote
    def one(*args, **kwargs):
        return 1

    @weft.remote
    class Actor:
        def __init__(self, *args, **kwargs):
            pass
        def call(self, *args):
            return 1

    weft.init(num_cpus=1)
    for call in {[*CALLS.values()]}:
        ref, actor = weft.put(1), Actor.remote()
        assert weft.get([actor.call.remote(), one.remote()]) == [1, 1]
        try:
            print(call, "gave", eval(call))
        except Exception as error:
            print(call, type(error).__name__, error)
        weft.shutdown()
        weft.init(num_cpus=1)
        assert weft.get([one.remote(), weft.put(2)]) == [1, 2]
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    told = ["weft was shut down", "belongs to an earlier weft.init()", "not initialised in this process"]
    for call, line in zip(CALLS.values(), lines, strict=True):
        assert line.startswith(call) and any(text in line for text in told), line


def test_a_get_whose_session_ends_while_it_unpickles_gives_its_values_or_says_so() -> None:
    program = """
    import gc, numpy, weft

    def end(number):
        weft.shutdown()
        gc.collect()
        return number

    class Ends:
        def __reduce__(self):
            return (end, (7,))

    for large in (False, True):
        weft.init(num_cpus=1)
        refs = [weft.put(Ends()), weft.put("text" * 1000), weft.put(numpy.ones(1 << 20) if large else 3)]
        try:
            print(weft.get(refs) == [7, "text" * 1000, 3])
        except RuntimeError as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["True", "weft was shut down while this call was running"]


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_value_that_a_session_has_read_stays_after_it(goes_on: bool) -> None:
    """Also on a node that goes on, which gives the memory to others."""
    program = f"""
    import numpy, weft
    from weft.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args=dict(num_cpus=1, object_store_memory=64 << 20))
    address = cluster.address if {goes_on} else "local"
    weft.init(address=address, **({{}} if {goes_on} else dict(num_cpus=1, object_store_memory=64 << 20)))
    array = weft.get(weft.put(numpy.ones(20 << 20, numpy.uint8)))
    weft.shutdown()
    weft.init(address=cluster.address)
    for number in range(2, 12):
        weft.put(numpy.full(20 << 20, number, numpy.uint8))
        assert (array == 1).all(), number
    again = weft.get(weft.put(numpy.full(20 << 20, 3, numpy.uint8)))
    del array
    for number in range(4, 12):
        weft.put(numpy.full(20 << 20, number, numpy.uint8))
        assert (again == 3).all(), number
    weft.shutdown()
    cluster.shutdown()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr


# ---- completions by threads that do not pump -----------------------------------------------------------


def test_a_get_that_has_slept_is_woken_by_a_cancel_in_another_thread(tmp_path: Any) -> None:
    @weft.remote
    def hold(path: str) -> None:
        wait_until(lambda: os.path.exists(path), 120)

    @weft.remote
    def follow(_: None) -> int:
        return 1

    go = str(tmp_path / "go")
    weft.init(num_cpus=1)
    try:
        blocker = hold.remote(go)
        waiting = [hold.remote(go), follow.remote(blocker)]
        errors: list[BaseException] = []

        def get(ref: Any) -> None:
            try:
                weft.get(ref)
            except TaskCancelledError as error:
                errors.append(error)

        for ref in waiting:
            thread = threading.Thread(target=get, args=(ref,))
            thread.start()
            wait_until(lambda: _native.long_waits([])[0])
            weft.cancel(ref)
            thread.join(30)
            assert not thread.is_alive()
        assert len(errors) == 2
        open(go, "w").close()
        weft.get(blocker)
        assert comes_true(lambda: not _native.long_waits([])[0])
    finally:
        weft.shutdown()
