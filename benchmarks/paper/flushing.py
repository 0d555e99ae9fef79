"""Figure 10b: memory of the control store while tasks come and go, with finished lineage flushed to disk and without.

Each task is a row of 100 bytes. With flushing its row moves to a table that lives on disk when it has finished.
"""

from __future__ import annotations

import json
import sys

from reproduction import Outcome, Row, last_line, run

PIECES = 20


def fill(rows: int, flush: bool) -> list[tuple[float, float]]:
    """(tasks so far, MiB of this process)."""
    from control import VALUE, resident_mib

    from weft.engine.control.embedded import EmbeddedStorage
    from weft.engine.state.chain_messages import Entry

    storage, seq, points = EmbeddedStorage(), 0, [(0.0, resident_mib())]
    for first in range(0, rows, 1000):
        keys = [b"task-%012d" % index for index in range(first, first + 1000)]
        seq += 1
        storage.apply([Entry(seq, [("tasks", key, VALUE) for key in keys])])
        if flush:
            seq += 1
            moved = [change for key in keys for change in (("tasks", key, None), ("finished_tasks", key, VALUE))]
            storage.apply([Entry(seq, moved)])
        if (first + 1000) % (rows // PIECES) == 0:
            points.append((first + 1000, resident_mib()))
    storage.close()
    return points


def elsewhere(rows: int, flush: bool) -> list[tuple[float, float]]:
    """In a process of its own, since memory that was freed is not always given back."""
    command = [sys.executable, __file__, "--fill", str(rows), str(int(flush))]
    return [(tasks, mib) for tasks, mib in last_line(command)]


def measure(short: bool) -> Outcome:
    from weft.demos import chart

    rows = 100_000 if short else 1_000_000
    flushed, kept = elsewhere(rows, True), elsewhere(rows, False)
    return Outcome(
        "Figure 10b",
        "Control store: flushing keeps memory flat",
        [
            Row(
                "with flushing",
                "stays below a limit that is set",
                f"{flushed[0][1]:.0f} MiB, after {rows:,} tasks {flushed[-1][1]:.0f} MiB",
            ),
            Row(
                "without",
                "grows until the run stalls",
                f"{kept[0][1]:.0f} MiB, after {rows:,} tasks {kept[-1][1]:.0f} MiB",
            ),
        ],
        f"the paper: 50 million empty tasks submitted through the system; here: the rows of {rows:,} tasks, written "
        "to the storage of one replica. In Weft a task whose ref never leaves its process has no row at all, and the "
        "lineage of others is in the rows of their results, which go with these: the storage can do more than the "
        "engine asks of it.",
        [chart.lines({"flushed": flushed, "kept": kept}, "Memory of the storage's process", "tasks", "MiB")],
    )


if __name__ == "__main__":
    if "--fill" in sys.argv:
        print(json.dumps(fill(int(sys.argv[2]), sys.argv[3] == "1")))
    else:
        run("flushing", measure)
