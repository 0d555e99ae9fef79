"""How busy nodes were before a page was opened."""

from __future__ import annotations

from typing import Any

from weft.dashboard import past
from weft.dashboard.past import MOST_LINES, MOST_POINTS, Past


class Nodes:
    """Each answer is a second after the one before, and half of the second was busy."""

    def __init__(self, count: int = 1, kept: int = 0) -> None:
        self.count = count
        self.time_s = 100.0
        self.kept = kept
        """Seconds that each node has kept before somebody looked."""

    def ask(self, method: str, timeout_s: float | None = None, **params: Any) -> Any:
        names = [f"n{number}" for number in range(self.count)]
        if method == "past":
            times = range(int(self.time_s) - self.kept, int(self.time_s))
            stretches = [{"machine": self.row(float(time_s))} for time_s in times]
            return [{"node_id": name, "stretches": stretches} for name in names]
        assert method == "machines"
        self.time_s += 1
        return [{**self.row(self.time_s), "node_id": name} for name in names]

    def row(self, time_s: float) -> dict[str, Any]:
        return {
            "time_s": time_s, "memory_used_bytes": 1, "memory_total_bytes": 4, "arena_used_bytes": 7,
            "cpu_busy_s": time_s / 2, "cpu_total_s": time_s, "network_sent_bytes": 10 * time_s,
            "network_received_bytes": 0, "tallies": {"finished": 3 * time_s, "failed": 0}, "gpus": [],
        }  # fmt: skip


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


def test_what_nodes_have_kept_comes_before_what_was_looked_at(monkeypatch: Any) -> None:
    _, charts = looked(Nodes(kept=20), 5, monkeypatch).since(0)
    times = [at for at, _ in charts["tasks"]["n0"]]
    assert times == sorted(set(times)) and times[0] == 82_000.0, "a rate needs the point before"
    assert {value for _, value in charts["tasks"]["n0"]} == {3.0}
    assert {value for _, value in charts["cpu"]["n0"]} == {50.0}


def test_of_a_long_past_a_bounded_number_of_points_is_shown(monkeypatch: Any) -> None:
    nodes = Nodes(kept=2000)
    nodes.time_s = 5000.0
    _, charts = looked(nodes, 3, monkeypatch).since(0)
    assert past.MOST_KEPT / 2 < len(charts["arena"]["n0"]) <= past.MOST_KEPT + 3
    assert charts["arena"]["n0"][0][0] < 3_010_000.0


def test_the_past_of_nodes_that_have_gone_is_forgotten(monkeypatch: Any) -> None:
    nodes = Nodes(count=2, kept=20)
    made = looked(nodes, 2, monkeypatch)
    nodes.count, nodes.time_s = 1, nodes.time_s + past.GONE_MS / 1000 + 1
    made._look()
    assert "n1" not in made._kept["arena"] and "n0" in made._kept["arena"]
