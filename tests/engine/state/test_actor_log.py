"""Exactly once, in a model: callers, an actor that dies at any moment, and the real log between them."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from weft.engine.state.actor_log import CallLog, LogRows, RecordedCall, StaleIncarnation

ACTOR = b"a" * 16


def rows() -> LogRows:
    table: dict[bytes, bytes] = {}

    def write(batch: object) -> None:
        for key, value in batch:  # type: ignore[attr-defined]
            if value is None:
                table.pop(key, None)
            else:
                table[key] = value

    return LogRows(table.get, write, lambda prefix: sorted((k, v) for k, v in table.items() if k.startswith(prefix)))


class Incarnation:
    """Appends what it is told to a list, and answers with the list's length."""

    def __init__(self, keeper: LogRows) -> None:
        self.keeper = keeper
        self.log = CallLog(every_calls=3, every_bytes=1 << 20)
        self.epoch, checkpoint, calls = keeper.open(ACTOR)
        self.state: list[bytes] = []
        self.queue: list[tuple[bytes, int]] = []
        self.unanswered: list[tuple[bytes, int]] = []
        if checkpoint is not None:
            self.state = [checkpoint.state[at : at + 16] for at in range(0, len(checkpoint.state), 16)]
            self.log.restored(checkpoint, calls)
            self.state += [call.arguments for call in calls]
        else:
            keeper.append(ACTOR, self.epoch, self.log.take(b""))

    def run_one(self) -> None:
        task, attempt = self.queue.pop(0)
        if attempt and (found := self.log.find(task)) is not None:
            assert found.outcome is not None
            self.unanswered.append((task, int.from_bytes(found.outcome, "big")))
            return
        self.state.append(task)
        self.log.ran(RecordedCall(task, "append", task, len(self.state).to_bytes(8, "big")))
        self.unanswered.append((task, len(self.state)))

    def write(self) -> list[tuple[bytes, int]]:
        state = b"".join(self.state) if self.log.wants_checkpoint else None
        self.keeper.append(ACTOR, self.epoch, self.log.take(state))
        answers, self.unanswered = self.unanswered, []
        return answers


class ExactlyOnce(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.keeper = rows()
        self.actor = Incarnation(self.keeper)
        self.made = 0
        self.pending: list[tuple[bytes, int]] = []
        """Sent and not answered, in order, with their attempts."""
        self.answers: dict[bytes, int] = {}

    @rule()
    def call(self) -> None:
        self.made += 1
        one = (self.made.to_bytes(16, "big"), 0)
        self.pending.append(one)
        self.actor.queue.append(one)

    @precondition(lambda self: self.actor.queue)
    @rule()
    def run_one(self) -> None:
        self.actor.run_one()

    @rule(published=st.integers(0, 5), dies=st.booleans())
    def write_and_answer(self, published: int, dies: bool) -> None:
        """It may die with only some of the answers sent."""
        answers = self.actor.write()
        for task, value in answers[:published] if dies else answers:
            assert self.answers.setdefault(task, value) == value
            self.pending = [one for one in self.pending if one[0] != task]
        if dies:
            self.die()

    @rule()
    def die(self) -> None:
        old = self.actor
        self.actor = Incarnation(self.keeper)
        self.pending = [(task, attempt + 1) for task, attempt in self.pending]
        self.actor.queue = list(self.pending)
        with pytest.raises(StaleIncarnation):
            old.write()

    @invariant()
    def each_answer_is_where_the_call_took_effect(self) -> None:
        for task, value in self.answers.items():
            assert self.actor.state[value - 1] == task
        assert len(set(self.actor.state)) == len(self.actor.state), "a call took effect twice"

    def teardown(self) -> None:
        while self.actor.queue:
            self.actor.run_one()
        for task, value in self.actor.write():
            self.answers[task] = value
        assert sorted(self.actor.state) == [n.to_bytes(16, "big") for n in range(1, self.made + 1)]
        assert self.actor.state == sorted(self.actor.state), "one caller's calls take effect in its order"


TestExactlyOnce = ExactlyOnce.TestCase
TestExactlyOnce.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_a_dead_actor_leaves_no_rows() -> None:
    keeper = rows()
    actor = Incarnation(keeper)
    actor.queue = [(n.to_bytes(16, "big"), 0) for n in range(5)]
    while actor.queue:
        actor.run_one()
    actor.write()
    keeper.drop(ACTOR)
    epoch, checkpoint, calls = keeper.open(ACTOR)
    assert (epoch, checkpoint, calls) == (1, None, [])


def test_a_call_of_long_ago_is_known_to_have_run_though_its_answer_is_gone() -> None:
    log = CallLog(1, 1)
    for number in range(3000):
        log.ran(RecordedCall(number.to_bytes(16, "big"), "f", b"", b"x"))
    log.take(b"state")
    assert log.find((0).to_bytes(16, "big")) is not None
    assert log.find((0).to_bytes(16, "big")).outcome is None  # type: ignore[union-attr]
    assert log.find((2999).to_bytes(16, "big")).outcome == b"x"  # type: ignore[union-attr]
    assert log.find((5000).to_bytes(16, "big")) is None
