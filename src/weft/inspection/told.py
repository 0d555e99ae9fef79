"""What processes tell their daemon, or are asked by it: failures, breakpoints, metrics, what they know of tasks.

Runs in the daemon's thread, never on a task's way.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from weft.engine.node.methods import Asker
from weft.engine.state.events import Process
from weft.engine.wire.messages import Message
from weft.inspection.listing import Listing
from weft.inspection.recorded_failures import KeptInputs
from weft.inspection.survey import Surveys
from weft.observe.user_metrics import Merged, Series

ERRORS_KEPT = 200


class Told:
    """What the processes of one node have said."""

    def __init__(
        self,
        listing: Listing,
        send: Callable[[Process, Message], None],
        call_later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self._describe = listing.describe
        self.surveys = Surveys(send, listing.processes, listing.describe, call_later)
        self.user_metrics = Merged()
        self.errors: deque[dict[str, Any]] = deque(maxlen=ERRORS_KEPT)
        """What tasks raised lately."""
        self.errors_left_out = 0
        self.inputs = KeptInputs()
        self.breakpoints: dict[str, tuple[Process, dict[str, Any]]] = {}
        """Where tasks wait for a debugger, by the address of its socket."""

    def metrics(self, asker: Asker, series: list[Series]) -> None:
        """What user code of that process has counted so far."""
        self.user_metrics.came(asker.process, series)

    def task_failed(self, asker: Asker, inputs: bytes = b"", untold: int = 0, **row: Any) -> None:
        if inputs:
            self.inputs.keep(row["task_id"], inputs)
        self.errors_left_out += untold + (len(self.errors) == ERRORS_KEPT)
        self.errors.append(self._describe(asker.process, {**row, "time_s": time.time()}))

    def task_inputs(self, asker: Asker, task_id: str, path: str) -> None:
        """Large ones: a file that the worker has open."""
        self.inputs.keep_file(task_id, path)

    def breakpoint_opened(self, asker: Asker, address: str, **row: Any) -> None:
        row = {"address": address, **row, "time_s": time.time()}
        self.breakpoints[address] = (asker.process, self._describe(asker.process, row))

    def breakpoint_closed(self, asker: Asker, address: str) -> None:
        self.breakpoints.pop(address, None)

    def told(self, asker: Asker, number: int, rows: list[dict[str, Any]]) -> None:
        self.surveys.told(asker.process, number, rows)

    def process_died(self, process: Process) -> None:
        self.breakpoints = {key: found for key, found in self.breakpoints.items() if found[0] != process}
        self.surveys.process_died(process)
        self.user_metrics.ended(process)
