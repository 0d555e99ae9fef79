"""The test suite in several processes side by side: most tests wait, for processes to start and for deadlines to pass.

    python tests/by_folder.py --processes 2 [FOLDER ...]

Each process runs the tests of one folder after another, the largest folders first. What a folder's tests print is
shown when they have failed; of the others the last line.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

HERE = Path(__file__).resolve().parent
ALONE = ("stress", "chaos")
"""Folders whose tests want the whole machine: they come last, one after the other."""
NO_TESTS = 5
"""What pytest ends with where all tests of a folder are deselected."""


def folders(wanted: list[str]) -> list[list[Path]]:
    """The files of tests, by the folder that they are in; what takes longest first, as far as sizes tell."""
    files = sorted(HERE.rglob("test_*.py"))
    found: dict[Path, list[Path]] = {}
    for path in files:
        if not wanted or path.relative_to(HERE).parts[0] in wanted:
            found.setdefault(path.parent, []).append(path)
    return sorted(found.values(), key=lambda one: -sum(path.stat().st_size for path in one))


def is_alone(files: list[Path]) -> bool:
    return files[0].relative_to(HERE).parts[0] in ALONE


def passes(files: list[Path]) -> bool:
    with tempfile.TemporaryFile("w+") as told:
        command = [sys.executable, "-m", "pytest", "-q", *map(str, files)]
        status = subprocess.run(command, cwd=HERE.parent, stdout=told, stderr=subprocess.STDOUT, check=False).returncode
        told.seek(0)
        text = told.read()
    has_passed = status in (0, NO_TESTS)
    shown = text.rstrip().rpartition("\n")[2] if has_passed else text
    print(f"{files[0].parent.relative_to(HERE.parent)}: {shown}", flush=True)
    return has_passed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help="of tests/; default: all")
    given = parser.parse_args()
    chosen = folders(given.folders)
    with ThreadPoolExecutor(given.processes) as pool:
        side_by_side = [pool.submit(passes, files) for files in chosen if not is_alone(files)]
        results = [one.result() for one in as_completed(side_by_side)]
    results += [passes(files) for files in chosen if is_alone(files)]
    failed = results.count(False)
    print(f"{failed} of {len(results)} folders failed" if failed else f"all {len(results)} folders passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
