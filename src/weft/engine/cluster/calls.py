"""Operations of other nodes: asked for over the links, answered once, or failed when the node dies or keeps silent.

Runs in the daemon's thread. Also answers clients that are no nodes but have the token (`client`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from weft.engine.cluster.transport import NodeLink
from weft.engine.node.operations import Operations, Outcome, Pending
from weft.engine.wire import link_messages as lm
from weft.net.loop import Loop, Timer

ANSWER_S = 30.0


class Calls:
    """What this daemon has asked of others, and what they ask of it."""

    def __init__(self, loop: Loop, operations: Operations, send: Callable[[int, lm.LinkMessage], bool]) -> None:
        self._loop = loop
        self._operations = operations
        self._send = send
        self._numbers = itertools.count(1)
        self._asked: dict[int, tuple[int, Pending, Timer]] = {}

    def ask(self, node: int, method: str, params: dict[str, Any], timeout_s: float = ANSWER_S) -> Pending:
        pending = Pending()
        number = next(self._numbers)
        if not self._send(node, lm.Call(number, method, params)):
            pending.fail(
                ConnectionError(f"node {node} of the cluster cannot be reached, so it was not asked: {method}")
            )
            return pending
        text = f"node {node} of the cluster did not answer {method!r} within {timeout_s:g} s"
        timer = self._loop.call_later(timeout_s, lambda: self._give_up(number, TimeoutError(text)))
        self._asked[number] = (node, pending, timer)
        return pending

    def came(self, link: NodeLink, message: lm.Call) -> None:
        """Somebody asks; the link may be gone when the answer is there, which it does not mind."""
        answer = self._operations.perform(message.method, message.params)
        answer.then(
            lambda outcome: link.send(lm.CallAnswer(message.number, outcome.value, outcome.error, outcome.error_kind))
        )

    def answered(self, link: NodeLink, message: lm.CallAnswer) -> None:
        if message.number in self._asked and self._asked[message.number][0] == link.peer:
            _, pending, timer = self._asked.pop(message.number)
            timer.cancel()
            pending.settle(Outcome(message.value, message.error, message.error_kind))

    def node_gone(self, node: int) -> None:
        for number in [number for number, (asked, _, _) in self._asked.items() if asked == node]:
            self._give_up(number, ConnectionError(f"node {node} of the cluster died before it had answered"))

    def _give_up(self, number: int, error: Exception) -> None:
        if (asked := self._asked.pop(number, None)) is not None:
            asked[2].cancel()
            asked[1].fail(error)
