"""Modin's own tests on Weft's engine, beside Modin's plain Python engine: of what passes there, how much passes here?

    python tests/weft_pandas/modin_suite.py --per-file 20 [--small]

Runs so many tests of each file (chosen by their names, so that the same ones run again), first on the Python engine,
then those that passed on Weft, and prints the share and what failed. Without `--per-file` all of them: hours. With
`--small` no frame is large enough for the engine: what is tested is how small frames are given to pandas.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

MODULES = ("dataframe", "test_series.py", "test_repartition.py")
_ENVIRONMENT = ("WEFT_MODIN_PER_FILE", "WEFT_MODIN_ONLY", "WEFT_MODIN_OUTCOMES")
SMALL = "small"


# ---- as a plug-in of pytest, inside each of the two runs -------------------------------------------


def pytest_configure(config: Any) -> None:
    if "WEFT_PANDAS_SMALL_ROWS" in os.environ:
        import weft.pandas

        assert weft.pandas.DataFrame().get_backend() == "Pandas"


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    per_file, only, _ = (os.environ.get(name, "") for name in _ENVIRONMENT)
    if only:
        chosen = set(json.loads(Path(only).read_text()))
    else:
        chosen = _sampled([item.nodeid for item in items], int(per_file or 0) or None)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
    items[:] = [item for item in items if item.nodeid in chosen]


def _sampled(names: list[str], per_file: int | None) -> set[str]:
    by_file: dict[str, list[str]] = {}
    for name in names:
        by_file.setdefault(name.split("::")[0], []).append(name)
    return {name for tests in by_file.values() for name in sorted(tests, key=_shuffled)[:per_file]}


def _shuffled(name: str) -> int:
    return zlib.crc32(name.encode())


def pytest_runtest_logreport(report: Any) -> None:
    """One line for each phase, so that a run that is cut off has left what it knew."""
    with open(os.environ["WEFT_MODIN_OUTCOMES"], "a") as file:
        file.write(json.dumps([report.nodeid, report.when, report.outcome]) + "\n")


# ---- the two runs ----------------------------------------------------------------------------------


def run(engine: str, folder: Path, per_file: int, only: list[str] | None, modules: list[str]) -> dict[str, str]:
    """What became of each test: passed, failed or skipped."""
    spec = importlib.util.find_spec("modin")
    if spec is None or spec.origin is None:
        raise SystemExit("modin is not installed: pip install 'weft[pandas]'")
    root = Path(spec.origin).parent
    outcomes = folder / f"{engine}.jsonl"
    environment = {
        **os.environ,
        **({"WEFT_PANDAS_SMALL_ROWS": str(10**9)} if engine == SMALL else {"MODIN_ENGINE": engine}),
        "PYTHONPATH": str(Path(__file__).parent),
        "WEFT_MODIN_PER_FILE": str(per_file),
        "WEFT_MODIN_OUTCOMES": str(outcomes),
    }
    if only is not None:
        (folder / "only.json").write_text(json.dumps(only))
        environment["WEFT_MODIN_ONLY"] = str(folder / "only.json")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "modin_suite", "-p", "no:cacheprovider", "-c", os.devnull]
    command += ["--rootdir", str(root), "--timeout=300", "--tb=short", "-W", "ignore"]
    command += [str(root / "tests" / "pandas" / module) for module in modules]
    with open(folder / f"{engine}.log", "w") as log:
        subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False, cwd=folder
        )
    return read_outcomes(outcomes)


def read_outcomes(path: Path) -> dict[str, str]:
    result: dict[str, str] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        name, when, outcome = json.loads(line)
        if outcome == "failed" or (outcome == "skipped" and result.get(name) != "failed"):
            result[name] = outcome
        elif when == "call":
            result.setdefault(name, outcome)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--per-file", type=int, default=0, help="run so many tests of each file; 0: all")
    parser.add_argument("--small", action="store_true", help="frames in pandas, by weft.pandas, instead of on Weft")
    parser.add_argument("--wanted", type=float, default=0.99, help="the share that must pass")
    parser.add_argument("--keep", type=Path, help="a folder for the logs of the two runs")
    parser.add_argument("modules", nargs="*", default=list(MODULES), help="below modin/tests/pandas")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.jsonl"):
            old.unlink()
        before = run("python", folder, options.per_file, None, options.modules)
        wanted = sorted(name for name, outcome in before.items() if outcome == "passed")
        if not wanted:
            print((folder / "python.log").read_text()[-2000:])
            return 1
        after = run(SMALL if options.small else "weft", folder, options.per_file, wanted, options.modules)
        missed = [name for name in wanted if after.get(name) != "passed"]
        for name in missed:
            print(f"{after.get(name, 'not run'):>8}  {name}")
        share = 1 - len(missed) / len(wanted)
        print(f"{len(wanted) - len(missed)} of {len(wanted)} tests that pass on Python pass on Weft: {share:.2%}")
        return 0 if share >= options.wanted else 1


if __name__ == "__main__":
    sys.exit(main())
