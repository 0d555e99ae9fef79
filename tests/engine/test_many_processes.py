"""As many processes as there is room for, and more that talk to each other than there are rings for."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from tests.waiting import wait_until

import weft
from weft.engine.node.config import FEWEST_PROCESSES, MOST_PROCESSES, most_processes
from weft.machine.start_error import StartError


@weft.remote(num_cpus=0, max_concurrency=2)
class Member:
    def meet(self, members: list[weft.actor.ActorHandle]) -> None:
        self._members = members

    def echo(self, number: int) -> int:
        return number

    def pid(self) -> int:
        return os.getpid()

    def ask_all(self, number: int) -> int:
        return sum(weft.get([member.echo.remote(number) for member in self._members]))


class TestMoreThanRings:
    """A hundred processes take long to start: both tests have the same."""

    @pytest.fixture(scope="class")
    @classmethod
    def members(cls) -> Iterator[list[weft.actor.ActorHandle]]:
        count = 96
        assert count * count > 8192, "each has a ring to each, itself included"
        with weft.init(num_cpus=2):
            members = [Member.remote() for _ in range(count)]
            weft.get([member.meet.remote(members) for member in members])
            yield members

    def test_more_processes_call_each_other_than_there_are_rings_for(
        self, members: list[weft.actor.ActorHandle]
    ) -> None:
        for _ in range(2):
            answers = weft.get([member.ask_all.remote(number) for number, member in enumerate(members)])
            assert answers == [number * len(members) for number in range(len(members))]

    def test_who_is_reached_without_a_ring_is_missed_when_it_dies(self, members: list[weft.actor.ActorHandle]) -> None:
        weft.get([member.ask_all.remote(1) for member in members])
        last = Member.remote()  # when there are no rings left
        weft.get([member.meet.remote([*members, last]) for member in members])
        try:
            weft.get([member.ask_all.remote(1) for member in members])
            os.kill(weft.get(last.pid.remote()), signal.SIGKILL)  # weft.kill is a request: the node may be busy
            for member in members:
                with pytest.raises(weft.exceptions.TaskError) as failure:
                    weft.get(member.ask_all.remote(1))
                assert isinstance(failure.value.cause, weft.exceptions.ActorDiedError)
        finally:
            weft.get([member.meet.remote(members) for member in members])


def test_a_full_node_says_so_and_goes_on_when_a_process_ends(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WEFT_MAX_PROCESSES", "16")
    weft.init(num_cpus=1)
    try:
        members = [Member.remote() for _ in range(20)]
        refs = [member.echo.remote(1) for member in members]
        done, waiting = weft.wait(refs, num_returns=8, timeout=60)
        assert len(done) == 8
        wait_until(lambda: "WEFT_MAX_PROCESSES" in capfd.readouterr().err)
        while waiting:
            done, waiting = weft.wait(refs, num_returns=len(refs), timeout=0.1)
            for ref in done:
                weft.kill(members[refs.index(ref)])
        assert weft.get(refs) == [1] * 20
    finally:
        weft.shutdown()


def test_the_room_for_processes_follows_the_memory_or_the_users_word() -> None:
    assert most_processes(1 << 30, "") == FEWEST_PROCESSES
    assert most_processes(24 << 30, "") == 3072
    assert most_processes(1 << 50, "") == MOST_PROCESSES
    assert most_processes(24 << 30, "4096") == 4096
    for wrong in ("0", "many", "-5", str(MOST_PROCESSES + 1)):
        with pytest.raises(StartError, match=r"WEFT_MAX_PROCESSES must be a number from 8 to 16384"):
            most_processes(24 << 30, wrong)
