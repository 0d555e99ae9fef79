"""`weft.report`: one file that shows a run, to look at and to send to others."""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Protocol

from weft.engine.process.session import attached, context_state
from weft.observe.collect import Reader
from weft.observe.critical_path import History
from weft.observe.report_page import page

READ_S = 1.0
MOST_WAITING = 10_000


class _Asks(Protocol):
    def ask(self, method: str, timeout_s: float | None = ..., **params: Any) -> Any: ...


def report(filename: str | os.PathLike[str]) -> Report:
    """Write what the cluster did lately to a file: what ran where and for how long, which chain of tasks made it take
    that long, what failed, and what waits and why. The file is one page that loads nothing.

    Around a part of a program it shows that part alone, and reads along, so that fewer events give way to newer ones:

        with weft.report("run.html"):
            weft.get([simulate.remote(seed) for seed in range(100)])

    `weft report run.html` does it from another terminal.
    """
    from weft.engine.cluster.client import Client

    attached.ensure()
    if context_state.state.local is not None:
        raise RuntimeError("local_mode records nothing: start without it for a report")
    made = Report(os.fspath(filename), Client(context_state.state.address))
    made.write()
    return made


class Report:
    """The file of one call of `report`; as a context, it is written anew at the end."""

    def __init__(self, filename: str, client: _Asks) -> None:
        self._filename = filename
        self._client = client
        self._since_s = 0.0
        self._start()

    def _start(self) -> None:
        self._history = History()
        self._reader = Reader(self._client)

    def __enter__(self) -> Report:
        self._since_s = time.time()
        self._start()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._read_along, name="weft-report", daemon=True)
        self._read()
        self._thread.start()
        return self

    def _read(self) -> None:
        self._history.add(self._reader.read(), self._since_s)

    def _read_along(self) -> None:
        while not self._ends.wait(READ_S):
            try:
                self._read()
            except (OSError, RuntimeError):
                return  # the session has ended; what was read is written

    def __exit__(self, *raised: object) -> None:
        self._ends.set()
        self._thread.join()
        self.write()

    def write(self) -> None:
        """The page of what was read, with what the cluster knows of failures and of what waits."""
        self._read()
        tasks = self._client.ask("rows", what="tasks", limit=MOST_WAITING)
        made = page(
            f"A run on Weft, {time.strftime('%Y-%m-%d %H:%M:%S')}",
            self._history,
            [row for node in self._client.ask("errors") for row in node["errors"] if row["time_s"] >= self._since_s],
            [row for row in tasks if row["state"] not in ("FINISHED", "FAILED")],
            self._client.ask("status")["nodes"],
        )
        with open(self._filename, "w", encoding="utf-8") as file:
            file.write(made)
