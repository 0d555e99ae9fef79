"""A stream over two nodes, one of which is killed."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import psutil
from stream_events import slowly

import weft
from waiting import wait_until
from weft import data
from weft.testing import Cluster


def test_results_are_exact_after_a_node_was_killed(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        node = cluster.add_node(num_cpus=1)
        weft.init(address=cluster.address)
        results: list[data.WindowResult] = []
        keyed = data.stream_from(slowly(20_000, 15_000, gate)).timestamps(lambda event: event[0])
        stream = keyed.key_by(lambda event: event[1]).window(data.Tumbling(100)).count(parallelism=3)
        with stream.start(checkpoint_every_s=0.05, sink=lambda number, outputs: results.extend(outputs)) as job:
            wait_until(lambda: job.checkpoints_completed >= 2)
            there = {child.pid for child in psutil.Process(node.pid).children(recursive=True)}
            assert there & set(job.pids()), "no subtask was placed on the second node"
            os.kill(node.pid, signal.SIGKILL)
            wait_until(lambda: job.restarts >= 1)
            gate.touch()
            assert job.wait(100)
        found = Counter({(result.key, result.window.start): result.value for result in results})
        assert found == Counter((f"w{number % 7}", float(number - number % 100)) for number in range(20_000))
        assert len(results) == len(found)
    finally:
        if weft.is_initialized():
            weft.shutdown()
        cluster.shutdown()
