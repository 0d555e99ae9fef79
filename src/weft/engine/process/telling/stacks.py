"""Where the threads of this process are, in Python's words; asked for by `weft stack`. Runs on the callback thread."""

from __future__ import annotations

import sys
import threading
import traceback

from weft.machine.own_frames import is_own

MOST_BYTES = 64 << 10


def rows() -> list[dict[str, object]]:
    """One row a thread: {"thread", "is_main", "stack"}, the main thread first."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    own = threading.get_ident()
    found: list[dict[str, object]] = []
    for ident, frame in sys._current_frames().items():
        if ident == own:
            continue
        frames = traceback.extract_stack(frame)
        kept = [one for one in frames if not is_own(one.filename) and one.filename != "<string>"]
        text = "".join(traceback.format_list(kept)) or "  (in the engine: it waits for work)\n"
        if len(text) > MOST_BYTES:
            text = f"…\n{text[-MOST_BYTES:]}"
        is_main = ident == threading.main_thread().ident
        found.append({"thread": names.get(ident, str(ident)), "is_main": is_main, "stack": text})
    return sorted(found, key=lambda row: not row["is_main"])
