"""Asks a cluster for its events. Runs in whoever looks: a driver, the command line, the dashboard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from weft.observe.event_records import Event, decode
from weft.observe.trace_file import NodeEvents

MOST_OF_A_PROCESS = 1 << 20
MOST_GONE = 16


class Asks(Protocol):
    """What can be asked, such as engine.cluster.client.Client."""

    def ask(self, method: str, timeout_s: float | None = ..., **params: Any) -> Any: ...


class Reader:
    """Reads on where it was: each event once."""

    def __init__(self, client: Asks) -> None:
        self._client = client
        self._since: dict[str, dict[int, int]] = {}
        self._skipped: dict[str, dict[int, int]] = {}

    def read(self, most: int = MOST_OF_A_PROCESS) -> list[NodeEvents]:
        """What has come since the last time, at most `most` of each process."""
        answers = self._client.ask("events", since=self._since, most=most)
        found = [self._of_node(answer) for answer in answers]
        self._forget_the_gone({one.node_id for one in found})
        return found

    def _forget_the_gone(self, answered: set[str]) -> None:
        """Of nodes that answer no more the newest are kept: they may only be slow."""
        gone = [node for node in self._since if node not in answered]
        for node in gone[: max(0, len(gone) - MOST_GONE)]:
            del self._since[node], self._skipped[node]

    def _of_node(self, answer: Mapping[str, Any]) -> NodeEvents:
        since = self._since.setdefault(answer["node_id"], {})
        skips = self._skipped.setdefault(answer["node_id"], {})
        events: list[Event] = []
        missed = 0
        for slot, skipped, first, written, data in answer["slots"]:
            missed += first - since.get(slot, 0) + skipped - skips.get(slot, 0)
            since[slot], skips[slot] = written, skipped
            events.extend(decode(data))
        titles = {int(pid): title for pid, title in answer["titles"].items()}
        return NodeEvents(answer["node_id"], answer["time_ns"] - answer["clock_ns"], events, missed, titles)
