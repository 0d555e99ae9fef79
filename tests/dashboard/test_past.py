"""How busy nodes were before a page was opened."""

from __future__ import annotations

from typing import Any

from weft.dashboard import past
from weft.dashboard.past import MOST_LINES, MOST_POINTS, Past


class Nodes:
    """Each answer is a second after the one before, and half of the second was busy."""

    def __init__(self, count: int = 1) -> None:
        self.count = count
        self.time_s = 100.0

    def ask(self, method: str, timeout_s: float | None = None, **params: Any) -> Any:
        assert method == "machines"
        self.time_s += 1
        row = {
            "time_s": self.time_s, "memory_used_bytes": 1, "memory_total_bytes": 4, "arena_used_bytes": 7,
            "cpu_busy_s": self.time_s / 2, "cpu_total_s": self.time_s, "network_sent_bytes": 10 * self.time_s,
            "network_received_bytes": 0, "tallies": {"finished": 3 * self.time_s, "failed": 0}, "gpus": [],
        }  # fmt: skip
        return [{**row, "node_id": f"n{number}"} for number in range(self.count)]


def looked(nodes: Nodes, times: int, monkeypatch: Any) -> Past:
    monkeypatch.setattr(past, "WATCHED_S", 0.0)
    made = Past(nodes)
    for _ in range(times):
        made._look()
    return made


def test_a_page_that_is_opened_late_is_told_what_was_before(monkeypatch: Any) -> None:
    _, charts = looked(Nodes(), 5, monkeypatch).since(0)
    assert [value for _, value in charts["cpu"]["n0"]] == [50.0] * 5
    assert [value for _, value in charts["tasks"]["n0"]] == [3.0] * 5
    assert len(charts["memory"]["n0"]) == 6, "levels need no reading before"
    assert charts["memory"]["n0"][0] == (101_000.0, 25.0)


def test_a_page_that_is_open_is_told_what_is_new(monkeypatch: Any) -> None:
    made = looked(Nodes(), 3, monkeypatch)
    _, charts = made.since(0)
    newest = max(at for at, _ in charts["arena"]["n0"])
    _, charts = made.since(newest)
    assert charts["arena"]["n0"] == [(newest + 1000, 7)]


def test_points_and_lines_of_the_past_are_bounded(monkeypatch: Any) -> None:
    made = looked(Nodes(MOST_LINES + 10), MOST_POINTS + 5, monkeypatch)
    _, charts = made.since(0)
    assert len(charts["arena"]) == MOST_LINES and all(len(line) == MOST_POINTS for line in charts["arena"].values())
    _, charts = made.since(1)
    assert len(charts["arena"]) == MOST_LINES + 10


def test_nodes_that_have_gone_are_forgotten_after_a_while(monkeypatch: Any) -> None:
    nodes = Nodes(2)
    made = looked(nodes, 2, monkeypatch)
    nodes.count = 1
    made._look()
    assert set(made.since(0)[1]["arena"]) == {"n0", "n1"}
    nodes.time_s += 700
    made._look()
    assert set(made.since(0)[1]["arena"]) == {"n0"}
