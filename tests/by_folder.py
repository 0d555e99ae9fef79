"""The test suite in several processes side by side: most tests wait, for processes to start and for deadlines to pass.

    python tests/by_folder.py --processes 4 [FOLDER ...]

Each process runs one part: the tests of a folder, or some files of a large one, in the order of their names. So what
a test finds imported does not depend on what runs beside it, and JAX of one folder is not in a process in which the
tests of another fork. What wants the machine to itself comes last, one part after the other.

A part that has passed is a line here. Of one that has failed all is shown that it printed; each part's output is in
`build/test-logs` as well. The last line is pytest's closing line, with the counts of all parts.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
LOGS = HERE.parent / "build" / "test-logs"
ALONE = ("stress", "chaos", "faults/test_memory_limits.py")
"""Tests that want the whole machine, or look at all nodes' groups of processes."""
PART_BYTES = 50_000
"""Source of tests that makes a part: a minute or so."""
WEIGHTS = {
    "cluster": 2.5,
    "faults": 2.5,
    "store": 2.5,
    "benchmarks": 2.0,
    "engine/node": 0.5,
    "engine/process": 0.5,
    "engine/state": 0.5,
    "engine/wire": 0.5,
}
"""How long a byte of their tests takes, beside one of other folders: parts are to take about equally long, so that none
is left over at the end."""
PART_DEADLINE_S = 900.0
"""Seven times what the longest takes on a quiet machine: a part that does not end must not take the others' result."""
NO_TESTS = 5
"""What pytest ends with where all tests of a part are deselected."""
KINDS = ("failed", "passed", "skipped", "deselected", "xfailed", "xpassed", "warning", "error")
"""What pytest counts, in the order of its closing line."""
CLOSING = re.compile(r"^=* ?((?:\d+ [a-z]+(?:, )?)+) in [\d.]+s\b.*$")


@dataclass(frozen=True)
class Part:
    name: str
    files: tuple[Path, ...]

    place: int
    """Which part of its folder it is."""
    is_alone: bool

    @property
    def log(self) -> Path:
        return LOGS / f"{self.name.replace('/', '-')}.log"


@dataclass(frozen=True)
class Outcome:
    part: Part
    has_passed: bool
    told: str
    closing: str
    """pytest's last line, without borders; empty where it did not come that far."""

    @property
    def counts(self) -> Counter[str]:
        found = {kind.rstrip("s"): int(number) for number, kind in re.findall(r"(\d+) ([a-z]+)", self.closing)}
        counts = Counter(found)
        if not self.has_passed and not counts["failed"] and not counts["error"]:
            counts["error"] += 1  # the process itself has failed
        return counts

    @property
    def summary(self) -> list[str]:
        """What pytest says of tests that did not just pass: a line for each."""
        _, title, lines = self.told.rpartition("short test summary info")
        return [line for line in lines.splitlines()[1:] if not CLOSING.match(line)] if title else []


def parts(wanted: list[str]) -> list[Part]:
    """All tests, those of large folders first, but the parts of one folder far from each other: they are alike in what
    they take of the machine. Small folders fill the gaps at the end."""
    folders: dict[tuple[str, bool], list[Path]] = {}
    for path in sorted(HERE.rglob("test_*.py")):
        name = path.relative_to(HERE).as_posix()
        if not wanted or name.startswith(tuple(wanted)):
            folder = path.parent.relative_to(HERE.parent).as_posix()
            is_alone = name.startswith(ALONE)
            folders.setdefault((f"{folder}-alone" if is_alone else folder, is_alone), []).append(path)
    by_size = sorted(folders.items(), key=lambda item: -_size(item[1]))
    cut = [_cut(name, is_alone, files) for (name, is_alone), files in by_size]
    placed = [((len(some) - part.place + 0.5) / len(some), part) for some in cut if len(some) > 1 for part in some]
    spread = [part for _, part in sorted(placed, key=lambda pair: pair[0])]
    return spread + [some[0] for some in cut if len(some) == 1]


def _size(files: list[Path]) -> float:
    return sum(path.stat().st_size * _weight(path) for path in files)


def _weight(path: Path) -> float:
    name = path.relative_to(HERE).as_posix()
    return next((weight for folder, weight in WEIGHTS.items() if name.startswith(f"{folder}/")), 1.0)


def _cut(name: str, is_alone: bool, files: list[Path]) -> list[Part]:
    total, before = _size(files), 0.0
    count = max(1, round(total / PART_BYTES))
    cut: dict[int, list[Path]] = {}
    for path in files:
        cut.setdefault(int(count * before / total), []).append(path)
        before += _size([path])
    return [
        Part(f"{name}-{place}" if len(cut) > 1 else name, tuple(one), place, is_alone)
        for place, one in enumerate(cut.values(), 1)
    ]


def run(part: Part) -> Outcome:
    command = [sys.executable, "-m", "pytest", "-q", "--durations=25", "-p", "no:cacheprovider", *map(str, part.files)]
    with part.log.open("w") as log:
        try:
            status = subprocess.run(
                command,
                cwd=HERE.parent,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=PART_DEADLINE_S,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            status = -1
    told = part.log.read_text(errors="replace").rstrip()
    last = told.rpartition("\n")[2]
    closing = CLOSING.match(last)
    outcome = Outcome(part, status in (0, NO_TESTS), told, closing[1] if closing else "")
    if outcome.has_passed:
        print(f"{part.name}: {last}", flush=True)
    else:
        shown = told.removesuffix(last).rstrip() if closing else told
        print(f"{part.name}:\n{shown}\n{part.name}: ended with status {status}: {last}", flush=True)
    return outcome


def closing_line(outcomes: list[Outcome], seconds: float) -> str:
    counts = sum((outcome.counts for outcome in outcomes), Counter())
    said = [
        f"{counts[kind]} {kind}" + ("s" if kind in ("warning", "error") and counts[kind] > 1 else "")
        for kind in KINDS
        if counts[kind]
    ]
    minutes, rest = divmod(round(seconds), 60)
    return f"{', '.join(said) or 'no tests ran'} in {seconds:.2f}s ({minutes // 60}:{minutes % 60:02}:{rest:02})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help="or file, of tests/; default: all")
    given = parser.parse_args()
    LOGS.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    chosen = parts(given.folders)
    with ThreadPoolExecutor(given.processes) as pool:
        side_by_side = [pool.submit(run, part) for part in chosen if not part.is_alone]
        outcomes = [one.result() for one in as_completed(side_by_side)]
    outcomes += [run(part) for part in chosen if part.is_alone]
    for line in (line for outcome in outcomes for line in outcome.summary):
        print(line)
    print(closing_line(outcomes, time.monotonic() - begun))
    return 0 if all(outcome.has_passed for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
