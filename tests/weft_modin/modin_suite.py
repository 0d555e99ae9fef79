"""Modin's own tests on Weft's engine, beside Modin's plain Python engine: of what passes there, how much passes here?

    python tests/weft_modin/modin_suite.py --per-file 20 [--small]
    python tests/weft_modin/modin_suite.py --keep outcomes --processes 16 --minutes 8 [--weft-first]

Runs so many tests of each file (chosen by their names, so that the same ones run again), first on the Python engine,
then those that passed on Weft, and prints the share and what failed. Without `--per-file` all of them: hours of CPU
time. With `--minutes` it stops when they are over, and called again goes on where it stopped: a test of which the
folder `--keep` holds an outcome is not run again; the files with most tests come last, and those shuffled, so that
what has run is an even sample of them. `--weft-first` runs all on Weft, and only what failed there on Python: quicker
where little fails. With `--small` no frame is large enough for the engine: what is tested is how small frames are given
to pandas.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MODULES = ("dataframe", "test_series.py", "test_repartition.py")
SMALL = "small"
TIMEOUT_S = 120
ARENA_BYTES = 1 << 30


# ---- as a plug-in of pytest, inside of each run ----------------------------------------------------


def pytest_configure(config: Any) -> None:
    if "WEFT_PANDAS_SMALL_ROWS" in os.environ:
        import weft.pandas.modin

        assert weft.pandas.modin.DataFrame().get_backend() == "Pandas"
    elif os.environ["MODIN_ENGINE"] == "weft" and _order()["processes"] > 1:
        import weft

        weft.init(num_cpus=2, object_store_memory=ARENA_BYTES)


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    order = _order()
    names = {item.nodeid for item in items}
    chosen = names & set(order["only"]) if order["only"] is not None else _sampled(sorted(names), order["per_file"])
    share = {name for name in chosen if _shuffled(name) % order["processes"] == order["number"]} - set(order["done"])
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in share])
    in_file = Counter(_file(name) for name in names)
    items[:] = sorted(
        (item for item in items if item.nodeid in share),
        key=lambda item: (in_file[_file(item.nodeid)], _shuffled(item.nodeid)),
    )


def _order() -> dict[str, Any]:
    order: dict[str, Any] = json.loads(Path(os.environ["WEFT_MODIN_ORDER"]).read_text())
    return order


def _sampled(names: list[str], per_file: int) -> set[str]:
    by_file: dict[str, list[str]] = {}
    for name in names:
        by_file.setdefault(_file(name), []).append(name)
    return {name for tests in by_file.values() for name in sorted(tests, key=_shuffled)[: per_file or None]}


def _file(name: str) -> str:
    return name.split("::")[0]


def _shuffled(name: str) -> int:
    return zlib.crc32(name.encode())


def pytest_runtest_logstart(nodeid: str) -> None:
    _note(nodeid, "start", "crashed")


def pytest_runtest_logreport(report: Any) -> None:
    _note(report.nodeid, report.when, report.outcome)


def pytest_runtest_teardown(item: Any) -> None:
    if time.time() > float(os.environ["WEFT_MODIN_DEADLINE"]):
        item.session.shouldstop = "the time is over"


def _note(name: str, when: str, outcome: str) -> None:
    """One line for each phase, so that a run that is cut off has left what it knew."""
    with open(os.environ["WEFT_MODIN_OUTCOMES"], "a") as file:
        file.write(json.dumps([name, when, outcome]) + "\n")


# ---- the runs --------------------------------------------------------------------------------------


def run(engine: str, options: argparse.Namespace, only: list[str] | None = None) -> dict[str, str]:
    """What became of each test: passed, failed, skipped, or crashed: it began and did not end."""
    done = read_outcomes(options.keep, engine)
    is_done = only is not None and set(only) <= set(done)
    numbers: Sequence[int] = range(0 if is_done or time.time() > options.deadline else options.processes)
    while numbers:
        started = {number: _start(engine, options, only, list(done), number) for number in numbers}
        ended = {number: process.wait() for number, process in started.items()}
        # One that crashed has left all but the test that it crashed in.
        numbers = [number for number, code in ended.items() if code < 0 and time.time() < options.deadline]
        done = read_outcomes(options.keep, engine)
    return done


def _start(
    engine: str, options: argparse.Namespace, only: list[str] | None, done: list[str], number: int
) -> subprocess.Popen[bytes]:
    spec = importlib.util.find_spec("modin")
    if spec is None or spec.origin is None:
        raise SystemExit("modin is not installed: pip install 'weft[pandas]'")
    root, part = Path(spec.origin).parent, options.keep.resolve() / f"{engine}-{number}"
    order = {"only": only, "done": done, "per_file": options.per_file, "processes": options.processes, "number": number}
    part.with_suffix(".json").write_text(json.dumps(order))
    environment = {
        **os.environ,
        **({"WEFT_PANDAS_SMALL_ROWS": str(10**9)} if engine == SMALL else {"MODIN_ENGINE": engine}),
        **({"MODIN_CPUS": "2"} if options.processes > 1 else {}),
        "PYTHONPATH": str(Path(__file__).parent),
        "WEFT_MODIN_ORDER": str(part.with_suffix(".json")),
        "WEFT_MODIN_OUTCOMES": str(part.with_suffix(".jsonl")),
        "WEFT_MODIN_DEADLINE": str(options.deadline),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "modin_suite", "-p", "no:cacheprovider", "-c", os.devnull]
    command += ["--rootdir", str(root), f"--timeout={TIMEOUT_S}", "--tb=short", "-W", "ignore"]
    command += [f"--basetemp={part}-files", *(str(root / "tests" / "pandas" / module) for module in options.modules)]
    with open(part.with_suffix(".log"), "a") as log:
        return subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=options.keep
        )


def read_outcomes(folder: Path, engine: str) -> dict[str, str]:
    result: dict[str, str] = {}
    for path in sorted(folder.glob(f"{engine}-*.jsonl")):
        for line in path.read_text().splitlines():
            name, when, outcome = json.loads(line)
            if when == "start":
                result.setdefault(name, "crashed")
            elif outcome != "passed":
                result[name] = "failed" if result[name] == "failed" else outcome
            elif when == "call" and result[name] == "crashed":
                result[name] = outcome
    return result


def compare(options: argparse.Namespace) -> int:
    """On the Python engine, then on Weft what passed there, or the other way round."""
    here = SMALL if options.small else "weft"
    if options.weft_first:
        after = run(here, options)
        missed = sorted(name for name, outcome in after.items() if outcome not in ("passed", "skipped"))
        before = run("python", options, missed)
        wanted = [name for name in after if after[name] == "passed" or before.get(name) == "passed"]
    else:
        before = run("python", options)
        wanted = sorted(name for name, outcome in before.items() if outcome == "passed")
        after = run(here, options, wanted)
    if time.time() > options.deadline:
        print(f"the time is over; outcomes so far: Python {len(before)}, Weft {len(after)}. Call it again to go on.")
        return 2
    if not wanted:
        print((options.keep / "python-0.log").read_text()[-2000:])
        return 1
    missed = [name for name in wanted if after.get(name) != "passed"]
    for name in missed:
        print(f"{after.get(name, 'not run'):>8}  {name}")
    share = 1 - len(missed) / len(wanted)
    print(f"{len(wanted) - len(missed)} of {len(wanted)} tests that pass on Python pass on Weft: {share:.2%}")
    return 0 if share >= options.wanted else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--per-file", type=int, default=0, help="run so many tests of each file; 0: all")
    parser.add_argument(
        "--small", action="store_true", help="frames in pandas, by weft.pandas.modin, instead of on Weft"
    )
    parser.add_argument("--weft-first", action="store_true", help="take for granted that what passes here passes there")
    parser.add_argument("--wanted", type=float, default=0.99, help="the share that must pass")
    parser.add_argument("--keep", type=Path, help="a folder for logs and outcomes; what it holds is not run again")
    parser.add_argument("--processes", type=int, default=1, help="side by side, each with an engine of two CPUs")
    parser.add_argument("--minutes", type=float, default=1e6, help="stop then; call it again to go on")
    parser.add_argument("modules", nargs="*", default=list(MODULES), help="below modin/tests/pandas")
    options = parser.parse_args()
    options.deadline = time.time() + options.minutes * 60
    with tempfile.TemporaryDirectory() as temporary:
        options.keep = options.keep or Path(temporary)
        options.keep.mkdir(parents=True, exist_ok=True)
        return compare(options)


if __name__ == "__main__":
    sys.exit(main())
