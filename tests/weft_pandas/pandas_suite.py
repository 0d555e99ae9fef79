"""pandas' own tests, from its wheel, on deferred frames: of what passes on pandas, how much passes here?

    python tests/weft_pandas/pandas_suite.py --per-file 20 [--rows 0] [--only frame/methods series/test_api.py]

Runs so many tests of each file (chosen by their names, so that the same ones run again; 0: all of them), first on plain
pandas, then those that passed with `weft.pandas` in the place of pandas' names, and prints the share and what
failed. `--rows 0` defers every frame that can be, on three parts in the test's own process; without it frames are
deferred as they are for users, which no frame of these tests is large enough for.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import zlib
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FOLDERS = (
    "frame",
    "series",
    "groupby",
    "reshape",
    "reductions",
    "apply",
    "arithmetic",
    "strings",
    "copy_view",
    "indexing",
)
LONGEST_S = 60
PARTS = 3
NEEDS = ("network", "db", "clipboard", "single_cpu", "slow")
"""Marks of tests that want more than this machine."""


# ---- as a plug-in of pytest, inside of each run ----------------------------------------------------


def pytest_configure(config: Any) -> None:
    order = _order()
    if order["deferred"]:
        import weft.pandas as deferred
        from weft.pandas import parts

        deferred.install()
        deferred.set_rows(order["rows"])
        parts.use_this_process(PARTS)


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    order = _order()
    usable = [item for item in items if not any(item.get_closest_marker(mark) for mark in NEEDS)]
    if order["only"] is not None:
        wanted = set(order["only"])
        items[:] = [item for item in usable if item.nodeid in wanted]
        return
    by_file = defaultdict(list)
    for item in usable:
        by_file[item.path].append(item)
    count = order["per_file"] or len(usable)
    items[:] = [
        item
        for of_file in by_file.values()
        for item in sorted(of_file, key=lambda item: zlib.crc32(item.nodeid.encode()))[:count]
    ]


def pytest_runtest_logreport(report: Any) -> None:
    if report.when == "call" or report.outcome != "passed":
        with open(_order()["outcomes"], "a") as file:
            text = str(report.longrepr)[-1_500:] if report.outcome == "failed" else ""
            file.write(json.dumps([report.nodeid, report.outcome, text]) + "\n")


def _order() -> dict[str, Any]:
    order: dict[str, Any] = json.loads(Path(os.environ["WEFT_PANDAS_SUITE"]).read_text())
    return order


# ---- the runner ------------------------------------------------------------------------------------


def outcomes(folder: Path, paths: Sequence[str], **order: Any) -> dict[str, tuple[str, str]]:
    """Run pytest in a process of its own. The last outcome of each test, with the text of its failure."""
    file = folder / f"outcomes-{order['deferred']}"
    (folder / "order").write_text(json.dumps({**order, "outcomes": str(file)}))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "pandas_suite", "-p", "no:cacheprovider", "-c", os.devnull]
    command += ["--rootdir", str(tests_folder().parent), "-o", f"timeout={LONGEST_S}", "-W", "ignore", "--no-header"]
    environment = {**os.environ, "WEFT_PANDAS_SUITE": str(folder / "order"), "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(
        [*command, *paths], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if not file.exists():
        raise SystemExit(f"pytest ran nothing:\n{done.stdout[-3_000:]}{done.stderr[-3_000:]}")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return {name: (outcome, text) for name, outcome, text in lines}


def tests_folder() -> Path:
    import pandas

    return Path(pandas.__file__).parent / "tests"


def compare(paths: Sequence[str], per_file: int, rows: int | None) -> tuple[int, dict[str, str]]:
    """How many tests pass on pandas, and the failures of those that do not pass on deferred frames."""
    full = [str(tests_folder() / path) for path in paths]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        before = outcomes(folder, full, deferred=False, per_file=per_file, rows=rows, only=None)
        passing = sorted(test for test, (outcome, _) in before.items() if outcome == "passed")
        after = outcomes(folder, full, deferred=True, per_file=per_file, rows=rows, only=passing)
    lost = {test: after.get(test, ("missing", "it did not run")) for test in passing}
    return len(passing), {test: text for test, (outcome, text) in lost.items() if outcome != "passed"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--per-file", type=int, default=20)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--only", nargs="*", default=list(FOLDERS))
    parser.add_argument("--least", type=float, default=0.0, help="fail below this share, in percent")
    options = parser.parse_args()
    count, failures = compare(options.only, options.per_file, options.rows)
    for test, text in failures.items():
        print(f"{test}\n    {text.splitlines()[-1] if text else ''}")
    share = 100 * (count - len(failures)) / count
    print(f"{count - len(failures)} of {count} tests that pass on pandas pass on deferred frames: {share:.2f}%")
    sys.exit(share < options.least)


if __name__ == "__main__":
    main()
