"""The dashboard's parts that need no cluster: the graph, flame graphs, metrics in Prometheus's words, kept logs."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest

from weft.dashboard import graph, prometheus
from weft.dashboard.collector import MOST_TASKS, Collector, Task
from weft.dashboard.profile import folded
from weft.observe import event_records as ev
from weft.observe.collect import MOST_GONE, Reader
from weft.observe.log_store import FILE_BYTES, MOST_BYTES, LogStore, read_files
from weft.observe.user_metrics import COUNTER, GAUGE, HISTOGRAM, Merged, Series, exposition, user_exposition

# ---- the graph ----


def test_edges_are_data_control_and_state() -> None:
    tasks = [
        Task("a", "load", started_s=1.0),
        Task("b", "train", parent="a", uses=["a"], started_s=2.0),
        Task("c", "Model.step", actor="m", started_s=3.0),
        Task("d", "Model.step", actor="m", started_s=4.0),
        Task("e", "orphan", parent="not known", uses=["nor this"]),
    ]
    assert sorted(graph.edges(tasks)) == [("a", "b", "control"), ("a", "b", "data"), ("c", "d", "state")]


def test_calls_that_only_the_store_knows_follow_their_callers_order() -> None:
    calls = [
        graph.from_store(
            {
                "task_id": f"{number}" * 24 + "0" * 8,
                "name": "Model.step",
                "state": "FINISHED",
                "attempt_number": 0,
                "actor_id": "m",
                "needs": ["1" * 24 + "01000000"] if number == 3 else [],
                "parent_task_id": None,
                "previous_call_id": f"{number - 1}" * 24 + "0" * 8,
            }
        )
        for number in (3, 1, 2)
    ]
    one, two, three = sorted(call.id for call in calls)
    assert sorted(graph.edges(calls)) == [(one, two, "state"), (one, three, "data"), (two, three, "state")]
    assert {call.status for call in calls} == {"ok"}


def test_a_collapsed_graph_has_one_node_a_name_and_counts() -> None:
    tasks = [Task(str(number), "f", status="ok") for number in range(5)]
    tasks.append(Task("x", "g", uses=["0", "1"], status="failed"))
    found = graph.collapsed(tasks)
    assert {node["name"]: (node["count"], node["status"]) for node in found["nodes"]} == {
        "f": (5, "ok"),
        "g": (1, "failed"),
    }
    assert found["edges"] == [{"source": "f", "target": "g", "kind": "data", "count": 2}]
    assert {node["name"]: node["depth"] for node in found["nodes"]} == {"f": 0, "g": 1}


def test_a_circle_of_names_is_drawn_too() -> None:
    tasks = [Task("1", "a"), Task("2", "b", uses=["1"]), Task("3", "a", uses=["2"])]
    found = graph.collapsed(tasks)
    assert len(found["edges"]) == 2
    assert {node["name"]: node["depth"] for node in found["nodes"]} == {"a": 0, "b": 1}


def test_calls_that_take_turns_on_an_actor_stay_beside_each_other() -> None:
    names = ["make", *(("check", "figures") * 500)]
    tasks = [Task(str(at), name, actor="m", started_s=float(at + 1)) for at, name in enumerate(names)]
    tasks.append(Task("last", "after", uses=["3"]))
    depths = {node["name"]: node["depth"] for node in graph.collapsed(tasks)["nodes"]}
    assert depths == {"make": 0, "check": 1, "figures": 2, "after": 2}
    chain = graph.whole(tasks[:300])
    assert [node["depth"] for node in chain["nodes"]] == list(range(300))


def test_a_large_graph_is_cut_and_says_so() -> None:
    found = graph.whole([Task(str(number), "f") for number in range(1000)])
    assert (len(found["nodes"]), found["left_out"]) == (graph.MOST_NODES, 1000 - graph.MOST_NODES)


# ---- what the collector keeps ----


class Endless:
    """A node that has recorded more every time, and lost some."""

    def __init__(self) -> None:
        self.number = 0

    def ask(self, method: str, timeout_s: float | None = None, **params: object) -> object:
        made = []
        for _ in range(2000):
            self.number += 1
            task = struct.pack("<QQ", self.number, 1)
            made.append(
                struct.pack("<qq16s16sQIBBHII56s", self.number, 5, task, bytes(16), 0, 7, ev.RAN, 0, 0, 1, 1, b"f")
            )
        first = 2 * self.number
        slots = [(1, 0, first, first + 2000, b"".join(made))]
        return [{"node_id": "n" * 32, "time_ns": 0, "clock_ns": 0, "slots": slots, "titles": {}}]


def test_the_collector_stays_bounded_and_counts_what_it_did_not_see() -> None:
    collector = Collector(Endless())
    for _ in range(10):
        collector._read_s = 0.0  # as if half a second had passed
        collector.look()
    assert (len(collector.tasks), len(collector.runs)) == (MOST_TASKS, 10_000)
    assert collector.recorded == 20_000
    assert collector.dropped > 0


def test_nodes_that_are_gone_are_forgotten_in_time() -> None:
    class Changing:
        number = 0

        def ask(self, method: str, timeout_s: float | None = None, **params: object) -> object:
            self.number += 1
            rows = [(node, [(1, 0, 0, self.number, b"")]) for node in ("stays", f"n{self.number}")]
            return [
                {"node_id": node, "time_ns": 0, "clock_ns": 0, "slots": slots, "titles": {}} for node, slots in rows
            ]

    reader = Reader(Changing())
    for _ in range(100):
        reader.read()
    assert set(reader._since) == {"stays", *(f"n{number}" for number in range(100 - MOST_GONE, 101))}
    assert reader._since["stays"] == {1: 100}


def test_half_an_hour_of_looking_leaves_the_process_small() -> None:
    """`--day` without an end of its own is the whole day; see benchmarks/README.md."""
    script = Path(__file__).resolve().parents[2] / "benchmarks" / "observe.py"
    command = [sys.executable, str(script), "--day", "--seconds", "1800"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=280, check=True).stdout.splitlines()
    words = told[-1].replace(",", "").split()  # 0.5 h: 72000 events read 36 MiB
    assert int(words[2]) >= 72_000
    assert int(words[-2]) < 150, told


# ---- flame graphs ----


def test_folded_stacks_become_a_tree() -> None:
    tree = folded("main;work 3\nmain;work;deep 2\nmain;idle 5\nnonsense\n")
    assert tree["value"] == 10
    (main,) = tree["children"]
    assert [(child["name"], child["value"]) for child in main["children"]] == [("work", 5), ("idle", 5)]


# ---- metrics ----


def test_counters_of_the_dead_still_count_and_their_gauges_do_not() -> None:
    merged = Merged()
    merged.came((1, 1), [Series("hits", COUNTER, "", {}, 3.0), Series("load", GAUGE, "", {}, 9.0)])
    merged.came((2, 1), [Series("hits", COUNTER, "", {}, 4.0), Series("load", GAUGE, "", {}, 1.0)])
    merged.ended((1, 1))
    assert {one.name: one.value for one in merged.totals()} == {"hits": 7.0, "load": 1.0}


def test_histograms_are_added_bucket_by_bucket() -> None:
    merged = Merged()
    for slot in (1, 2):
        merged.came((slot, 1), [Series("s", HISTOGRAM, "", {}, 2.0, [1.0, 2.0], [1, 0, 2])])
    (text,) = [exposition(user_exposition(merged.totals(), {"node": "n"}))]
    assert 's_bucket{node="n",le="1"} 2\n' in text
    assert 's_bucket{node="n",le="+Inf"} 6\n' in text
    assert 's_sum{node="n"} 4\ns_count{node="n"} 6\n' in text


def test_hostile_names_and_tags_can_not_break_the_format() -> None:
    series = Series("bad name\n# HELP x", COUNTER, "two\nlines", {"ta-g": 'quote " and \\ and \n end'}, 1.0)
    text = exposition(user_exposition([series], {}))
    assert text.splitlines() == [
        "# HELP bad_name___HELP_x two\\nlines",
        "# TYPE bad_name___HELP_x counter",
        'bad_name___HELP_x{ta_g="quote \\" and \\\\ and \\n end"} 1',
    ]


def test_a_nodes_metrics_have_every_tally() -> None:
    machine = dict.fromkeys((*prometheus._MACHINE, "time_s"), 1) | {
        "node_id": "n" * 32,
        "tallies": dict.fromkeys(ev.TALLIES, 2),
    }
    text = prometheus.text(
        {"machine": machine, "resources": {"total": {"CPU": 2.0, "node:x": 1.0}, "available": {"CPU": 1.0}},
         "workers": {"idle": 1}, "actors": {}, "demands": 0, "user": []}
    )  # fmt: skip
    assert all(name in text for name, _, _ in prometheus._COUNTERS.values())
    assert 'weft_resource_total{resource="CPU",node="nnnnnnnnnnnnnnnn"} 2\n' in text and "node:x" not in text


# ---- logs ----


def test_logs_are_found_by_text_name_process_and_number() -> None:
    logs = LogStore(None)
    logs.add(10, 1, "stdout", [("train", "epoch 1"), ("train", "epoch 2")])
    logs.add(11, 1, "stderr", [("other", "Problem")])
    assert [line.text for line in logs.find(text="EPOCH")] == ["epoch 1", "epoch 2"]
    assert [line.text for line in logs.find(text="other")] == ["Problem"]
    assert [line.text for line in logs.find(pid=11)] == ["Problem"]
    assert [line.text for line in logs.find(since=2)] == ["Problem"]
    assert [line.text for line in logs.find(limit=1)] == ["Problem"]


def test_old_lines_give_way_and_are_counted() -> None:
    logs = LogStore(None)
    for _ in range(20):
        logs.add(1, 1, "stdout", [("f", "x" * (1 << 20))])
    kept = logs.find(limit=100)
    assert len(kept) + logs.dropped == 20 and sum(len(line.text) for line in kept) <= MOST_BYTES


def test_files_are_rotated_and_read_in_order_even_when_the_last_line_is_torn(tmp_path: Path) -> None:
    logs = LogStore(lambda: str(tmp_path))
    text = "y" * (FILE_BYTES // 8)
    for number in range(20):
        logs.add(7, 1, "stdout", [("f", f"{number} {text}")])
    folder = tmp_path / "logs"
    assert sorted(path.name for path in folder.iterdir()) == ["worker-7.jsonl", "worker-7.jsonl.1"]
    with open(folder / "worker-7.jsonl", "ab") as file:
        file.write(b'{"number": 99, "ti')
    numbers = [line.number for line in read_files(str(folder))]
    assert numbers == sorted(numbers) and numbers[-1] == 19 and len(numbers) < 20


@pytest.mark.parametrize("text", ["\x1b[2J", "<script>", "\u202e"])
def test_hostile_text_is_kept_as_it_is(text: str) -> None:
    logs = LogStore(None)
    logs.add(1, 1, "stdout", [(text, text)])
    assert (logs.find()[0].name, logs.find()[0].text) == (text, text)
