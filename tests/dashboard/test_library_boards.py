"""What serving, training and datasets tell the dashboard of themselves while they run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from dashboard_site import eventually

import weft
from weft import data, serve, train
from weft.data import board as data_board
from weft.engine.cluster.client import Client
from weft.serve.latencies import KEPT, Latencies


@pytest.fixture(scope="module", autouse=True)
def session(shared_weft_session: Any) -> None:
    """One for all."""


def boards(page: str) -> dict[str, Any]:
    client = Client(weft.init(ignore_reinit_error=True)["address"], None)
    rows = [row for node in client.ask("boards") for row in node if row["page"] == page]
    return {row["name"]: json.loads(row["board"]) for row in rows}


def test_a_training_shows_its_workers_metrics_and_checkpoints(tmp_path: Path) -> None:
    def loop() -> None:
        for step in range(3):
            train.report({"loss": 1.0 / (step + 1), "note": "text"}, checkpoint={"step": step})

    train.Trainer(loop, workers=1, name="shown", storage_path=tmp_path).fit()
    shown = boards("train")["shown"]
    assert (shown["state"], shown["reports"], shown["restarts"]) == ("finished", 3, 0)
    assert shown["curves"] == {"loss": [[1, 1.0], [2, 0.5], [3, 1 / 3]]}
    assert [row["report"] for row in shown["checkpoints"]] == [2, 3]  # two are kept
    assert len(shown["workers"]) == 1 and len(shown["workers"][0]["node_id"]) == 32

    def breaks() -> None:
        raise ValueError("no luck")

    with pytest.raises(Exception, match="no luck"):
        train.Trainer(breaks, workers=1, name="broken", storage_path=tmp_path).fit()
    assert boards("train")["broken"]["state"] == "failed"


def test_a_dataset_that_takes_long_shows_its_operators_and_old_ones_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_board, "AFTER_S", 0.0)
    monkeypatch.setattr(data_board, "MOST_SHOWN", 2)
    for _ in range(3):
        assert data.range(1000).map_batches(lambda batch: batch).count() == 1000
    found = boards(data_board.PAGE)
    assert len(found) == 2
    for shown in found.values():
        assert shown["state"] == "finished" and shown["operators"]
        assert sum(row["tasks"] for row in shown["operators"]) > 0


def test_a_short_dataset_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_board, "AFTER_S", 1e9)
    before = set(boards(data_board.PAGE))
    data.range(10).count()
    assert set(boards(data_board.PAGE)) == before


def test_a_stream_that_takes_long_shows_its_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_board, "AFTER_S", 0.0)
    before = set(boards(data_board.PAGE))
    keyed = data.stream_from(lambda: iter(range(1000))).map(lambda number: number % 3).key_by(lambda number: number)
    assert len(keyed.reduce(lambda left, right: right).run()) == 1000
    (name,) = set(boards(data_board.PAGE)) - before
    shown = boards(data_board.PAGE)[name]
    assert (shown["state"], shown["restarts"]) == ("finished", 0)
    assert [stage["events_in"] for stage in shown["stages"]] == [1000, 1000]


def test_what_is_served_shows_its_replicas_queues_and_latencies() -> None:
    @serve.deployment(num_replicas=2)
    class Doubles:
        def __call__(self, value: int) -> int:
            return 2 * value

    try:
        handle = serve.run(Doubles.bind(), name="shown", route_prefix=None)
        assert [handle.remote(number).result() for number in range(10)] == [2 * number for number in range(10)]

        def served() -> dict[str, Any] | None:
            found = boards("serve").get("applications", {"applications": []})["applications"]
            rows = [row for app in found for row in app["deployments"]]
            told = sum(one.get("served", 0) for row in rows for one in row["replicas"])
            return rows[0] if told == 10 and rows[0]["rate"] else None  # the first look knows no rate

        row = eventually(served)
        assert (row["name"], row["status"], row["target"], len(row["replicas"])) == ("Doubles", "HEALTHY", 2, 2)
        assert all(one["p95_s"] > 0 for one in row["replicas"] if one["served"])
    finally:
        serve.shutdown()


def test_latencies_are_of_the_last_requests() -> None:
    latencies = Latencies()
    assert latencies.figures().row() == {"served": 0, "failed": 0, "p50_s": None, "p95_s": None, "p99_s": None}
    for took_s in [100.0] * 10 + [0.1 * number for number in range(KEPT)]:
        latencies.add(took_s)
    figures = latencies.figures()
    assert figures.served == KEPT + 10
    assert figures.p50_s is not None and figures.p50_s < figures.p95_s < figures.p99_s < 100  # type: ignore[operator]
