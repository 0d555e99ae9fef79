"""Runs the examples in the docstrings of the named modules: `python docstrings.py tune tune.space`."""

from __future__ import annotations

import doctest
import importlib
import sys

import weft

SESSIONS = {
    "cluster_utils",
    "engine.process.telling.logging_config",
    "engine.process.session.attached",
    "engine.process.session.session",
    "engine.process.session.session_context",
}
"""Modules whose examples begin a session of their own."""


def main(names: list[str]) -> int:
    failed = 0
    for name in sorted(names, key=SESSIONS.__contains__):
        if name in SESSIONS:
            weft.shutdown()
        elif not weft.is_initialized():
            weft.init(num_cpus=2)
        module = importlib.import_module(f"weft.{name}")
        found = doctest.testmod(module, extraglobs={"weft": weft}, optionflags=doctest.ELLIPSIS)
        if found.attempted == 0:
            print(f"weft.{name}: no example was found")
            failed += 1
        failed += found.failed
    weft.shutdown()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
