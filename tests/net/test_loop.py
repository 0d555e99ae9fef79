"""Descriptors, timers and signals."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator

import pytest

from waiting import wait_until
from weft.net.loop import Loop


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.close()


def test_a_readable_descriptor_calls_back_until_it_is_unwatched(loop: Loop) -> None:
    ours, theirs = os.pipe()
    heard: list[bytes] = []
    loop.watch(ours, lambda: heard.append(os.read(ours, 10)))
    os.write(theirs, b"a")
    loop.run_once(1)
    loop.unwatch(ours)
    loop.unwatch(ours)
    os.write(theirs, b"b")
    loop.run_once(0)
    assert heard == [b"a"]
    os.close(ours)
    os.close(theirs)


def test_a_callback_may_unwatch_another_that_is_ready_too(loop: Loop) -> None:
    pairs = [os.pipe(), os.pipe()]
    heard: list[int] = []

    def hear(number: int) -> None:
        heard.append(number)
        loop.unwatch(pairs[1 - number][0])

    for number, (ours, theirs) in enumerate(pairs):
        loop.watch(ours, lambda number=number: hear(number))  # type: ignore[misc]
        os.write(theirs, b"x")
    loop.run_once(1)
    assert len(heard) == 1
    for fd in (*pairs[0], *pairs[1]):
        os.close(fd)


def test_a_new_descriptor_does_not_answer_for_an_old_one_of_its_number(loop: Loop) -> None:
    pairs = [os.pipe(), os.pipe()]
    heard: list[str] = []

    def replace(other: int) -> None:
        """The other one is closed, and one that nothing has happened to takes its number."""
        loop.unwatch(pairs[other][0])
        quiet = os.pipe()
        os.dup2(quiet[0], pairs[other][0])
        os.close(quiet[0])
        loop.watch(pairs[other][0], lambda: heard.append("new"))
        fds.append(quiet[1])
        heard.append("old")

    fds = [fd for pair in pairs for fd in pair]
    for number, (ours, theirs) in enumerate(pairs):
        loop.watch(ours, lambda number=number: replace(1 - number))  # type: ignore[misc]
        os.write(theirs, b"x")
    loop.run_once(1)
    assert heard == ["old"]
    for fd in fds:
        os.close(fd)


def test_timers_run_in_their_order_and_can_be_called_off(loop: Loop) -> None:
    heard: list[str] = []
    loop.call_later(0.002, lambda: heard.append("second"))
    loop.call_later(0.001, lambda: heard.append("first"))
    off = loop.call_later(0.001, lambda: heard.append("never"))
    loop.call_later(0.003, loop.stop)
    off.cancel()
    loop.run()
    assert heard == ["first", "second"]


def test_a_signal_is_handled_in_the_loop(loop: Loop) -> None:
    before = signal.getsignal(signal.SIGUSR1)
    heard: list[str] = []
    loop.on_signal(signal.SIGUSR1, lambda: (heard.append("signal"), loop.stop())[0])
    os.kill(os.getpid(), signal.SIGUSR1)
    assert not heard
    loop.run()
    assert heard == ["signal"]
    signal.signal(signal.SIGUSR1, before)


def test_what_finds_no_descriptor_is_tried_again_and_ends_nothing(
    loop: Loop, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, theirs = os.pipe()
    heard: list[str] = []
    left = {"reader": 2, "timer": 2}

    def want(who: str) -> None:
        left[who] -= 1
        if left[who] >= 0:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        heard.append(who)
        if who == "reader":
            os.read(ours, 1)

    loop.watch(ours, lambda: want("reader"))
    loop.call_later(0, lambda: want("timer"))
    loop.call_later(0, lambda: heard.append("other"))
    os.write(theirs, b"x")
    wait_until(lambda: (loop.run_once(0.05), len(heard) == 3)[1])
    assert heard[0] == "other" and set(heard) == {"other", "reader", "timer"}
    assert capsys.readouterr().err.count("no descriptor is left") == 1
    loop.unwatch(ours)
    os.close(ours)
    os.close(theirs)


def test_an_error_of_another_kind_is_not_borne(loop: Loop) -> None:
    def fail() -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    loop.call_later(0, fail)
    with pytest.raises(OSError, match="Input/output"):
        loop.run_once(0)


def test_a_descriptor_that_rests_may_be_unwatched_and_closed(loop: Loop) -> None:
    ours, theirs = os.pipe()
    loop.watch(ours, lambda: None)
    loop.rest(ours)
    loop.unwatch(ours)
    os.close(ours)
    os.close(theirs)
    loop.run_once(0.2)


def test_a_loop_that_was_stopped_before_it_ran_does_not_run(loop: Loop) -> None:
    loop.stop()
    loop.run()
    loop.call_later(0, loop.stop)
    loop.run()


def test_a_delay_that_is_no_number_is_refused_and_holds_up_no_timer(loop: Loop) -> None:
    rung: list[str] = []
    with pytest.raises(ValueError, match="got nan"):
        loop.call_later(float("nan"), lambda: rung.append("never"))
    loop.call_later(0, lambda: rung.append("now"))
    loop.run_once(0)
    assert rung == ["now"]
