"""What a node daemon can be asked to do from outside: by the command line, by a job client, by another node.

Runs in the daemon's thread. A method takes its parameters and returns a value, or a `Pending` whose value comes later;
what it raises becomes the answer's error, under the exception's own name. Who may ask has been settled before: the
local socket knows the user, the node port wants the token.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

Method = Callable[[dict[str, Any]], Any]


class Outcome(msgspec.Struct, frozen=True):
    """What an operation ended in."""

    value: Any = None
    error: str = ""
    """Empty, or a message for a person."""
    error_kind: str = ""
    """The name of the exception to raise."""


class Pending:
    """An outcome that is there or will be; who waits for it is called once."""

    def __init__(self) -> None:
        self._outcome: Outcome | None = None
        self._waiting: list[Callable[[Outcome], None]] = []

    @classmethod
    def of(cls, value: Any) -> Pending:
        """One that is there."""
        made = cls()
        made.resolve(value)
        return made

    def then(self, call: Callable[[Outcome], None]) -> None:
        if self._outcome is not None:
            call(self._outcome)
        else:
            self._waiting.append(call)

    def settle(self, outcome: Outcome) -> None:
        """The first one counts."""
        if self._outcome is None:
            self._outcome = outcome
            waiting, self._waiting = self._waiting, []
            for call in waiting:
                call(outcome)

    def resolve(self, value: Any) -> None:
        self.settle(Outcome(value))

    def fail(self, error: Exception) -> None:
        self.settle(failed(error))

    def map(self, change: Callable[[Any], Any]) -> Pending:
        """Another that has the changed value, or the same error."""
        made = Pending()
        self.then(lambda outcome: made.settle(outcome if outcome.error_kind else Outcome(change(outcome.value))))
        return made


def gather(asked: Mapping[int, Pending]) -> Pending:
    """All outcomes, by the keys of what was asked, once the last one is there."""
    outcomes: dict[int, Outcome] = {}
    whole = Pending()

    def came(key: int, outcome: Outcome) -> None:
        outcomes[key] = outcome
        if len(outcomes) == len(asked):
            whole.resolve(outcomes)

    for key, pending in asked.items():
        pending.then(functools.partial(came, key))
    return whole if asked else Pending.of({})


class Operations:
    """The methods that a daemon answers, by name."""

    def __init__(self) -> None:
        self._methods: dict[str, Method] = {}
        self._of_head: set[str] = set()
        self.ask_head: Callable[[str, dict[str, Any]], Pending] | None = None
        """Where this daemon is not its cluster's head: how to ask that."""
        self.offer_more: Callable[[], None] | None = None
        """Called once, at the first operation that is not known: what is seldom asked for is loaded then."""

    def offer(self, name: str, method: Method, of_head: bool = False) -> None:
        """`of_head`: on the other nodes of a cluster it is passed on to the head."""
        self._methods[name] = method
        if of_head:
            self._of_head.add(name)

    def complete(self) -> None:
        """Offer what is seldom asked for."""
        if self.offer_more is not None:
            offer_more, self.offer_more = self.offer_more, None
            offer_more()

    def perform(self, name: str, params: dict[str, Any]) -> Pending:
        """Never raises."""
        if name not in self._methods:
            self.complete()
        if name in self._of_head and self.ask_head is not None:
            return self.ask_head(name, params)
        pending = Pending()
        try:
            if name not in self._methods:
                raise LookupError(f"the node daemon has no operation {name!r}: do both run the same version of Weft?")
            value = self._methods[name](params)
        except Exception as error:
            pending.fail(error)
            return pending
        if isinstance(value, Pending):
            return value
        pending.resolve(value)
        return pending


def failed(error: Exception) -> Outcome:
    kind = next(name for name in (one.__name__ for one in type(error).__mro__) if name in _KINDS)
    return Outcome(None, str(error) or repr(error), kind)


_KINDS: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (LookupError, ValueError, TypeError, RuntimeError, ConnectionError, TimeoutError, OSError, Exception)
}


def value_of(outcome: Outcome) -> Any:
    """The value, or the error raised: the asker's side."""
    if outcome.error_kind:
        raise _KINDS.get(outcome.error_kind, RuntimeError)(outcome.error)
    return outcome.value
