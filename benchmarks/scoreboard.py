"""Weft beside what people would use instead, in one run on one machine, losses shown.

    python benchmarks/scoreboard.py --peers-python .venv-peers/bin/python     [--sections engine,pools] [--minutes 13]
    python benchmarks/scoreboard.py --short          one round of small sizes: to see that it works
    python benchmarks/scoreboard.py --page           measure nothing, make the page of the figures that are there

A round is one measurement of every contender of every section, one at a time, each in a process of its own that is
ended when it takes too long. The first round is always made; more follow while there is time, and medians count. What
was measured is kept at once in build/scoreboard, so that a run that was interrupted goes on where it was. At the end it
goes to benchmarks/scoreboard.json, and from there to docs/scoreboard.md. What failed or is not installed says so there.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from scoreboard_cases import SECTIONS, Contender, Setting, contender

HERE = Path(__file__).resolve().parent
FIGURES = HERE / "scoreboard.json"
FOLDER = HERE.parent / "build" / "scoreboard"
ROUNDS = 3
LIMIT_S = 150.0
"""For one round of one contender, several times what the slowest takes on a quiet machine."""
KEPT_S = 3 * 3600.0
"""An interrupted run that is older than this is begun anew."""
LAST = "figures: "


# ---- who is there ------------------------------------------------------------------------------------


def versions(python: str) -> dict[str, str]:
    """The distributions that an interpreter has, of those that somebody needs."""
    wanted = sorted({name for section in SECTIONS.values() for one in section.contenders for name in one.needs})
    program = f"""
import importlib.metadata, json
found = {{}}
for name in {wanted!r}:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""
    return dict(json.loads(subprocess.run([python, "-c", program], check=True, capture_output=True).stdout))


def interpreter(one: Contender, pythons: dict[str, dict[str, str]]) -> str | None:
    """The first that has all that a contender needs."""
    return next((python for python, has in pythons.items() if all(name in has for name in one.needs)), None)


# ---- one run, which may be interrupted ---------------------------------------------------------------


@dataclasses.dataclass
class Measurement:
    """One round of one contender: figures, or why there are none."""

    section: str
    contender: str
    round: int
    seconds: float
    load: float
    version: str = ""
    figures: dict[str, float] = dataclasses.field(default_factory=dict)
    failed: str = ""


@dataclasses.dataclass
class Run:
    short: bool
    pythons: dict[str, dict[str, str]]
    """Interpreters and what they have, in the order of preference."""
    budget_s: float
    done: list[Measurement] = dataclasses.field(default_factory=list)

    @property
    def spent_s(self) -> float:
        return sum(one.seconds for one in self.done)

    def due(self, sections: list[str], rounds: int) -> Iterator[tuple[str, Contender, int]]:
        """What is to be measured next, until rounds or time are used up; a contender that failed has no more rounds."""
        for number in range(rounds):
            for name in sections:
                for one in SECTIONS[name].contenders:
                    before = [made for made in self.done if (made.section, made.contender) == (name, one.name)]
                    if any(made.failed or made.round == number for made in before):
                        continue
                    if before and self.spent_s + max(made.seconds for made in before) > self.budget_s:
                        continue
                    yield name, one, number

    def measure(self, section: str, one: Contender, number: int) -> Measurement:
        began, made = time.perf_counter(), Measurement(section, one.name, number, 0.0, round(os.getloadavg()[0], 1))
        python, tool = interpreter(one, self.pythons), SECTIONS[section].tool
        if python is None or (tool and shutil.which(tool) is None):
            missing = one.needs if python is None else (tool,)
            made.failed = f"not installed ({', '.join(missing)})"
            return made
        made.version = self.pythons[python].get(one.needs[0], "") if one.needs else ""
        command = [sys.executable, __file__, "--one", section, one.name, python, *(["--short"] if self.short else [])]
        try:
            made.figures = figures_of(command)
        except (subprocess.SubprocessError, ValueError) as error:
            print(f"{one.name}, {section}: {error}", file=sys.stderr)
            timed_out = isinstance(error, subprocess.TimeoutExpired)
            made.failed = f"ended after {LIMIT_S:.0f} s" if timed_out else "failed"
        made.seconds = round(time.perf_counter() - began, 1)
        return made


def figures_of(command: list[str], limit_s: float = LIMIT_S) -> dict[str, float]:
    """The figures that a process of its own prints; when it takes too long, all that it started is ended with it."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as child:
        try:
            output, _ = child.communicate(timeout=limit_s)
        except BaseException:
            end_with_descendants(child.pid)
            raise
    if child.returncode != 0:
        raise subprocess.CalledProcessError(child.returncode, command)
    lines = [line for line in output.splitlines() if line.startswith(LAST)]
    if not lines:
        raise ValueError("it printed no figures")
    return dict(json.loads(lines[-1].removeprefix(LAST)))


def end_with_descendants(pid: int) -> None:
    """Some of them have process groups of their own, so a signal to one group does not reach all."""
    root = psutil.Process(pid)
    ended = [*root.children(recursive=True), root]
    for process in ended:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(ended, timeout=10)


def measure_one(section: str, name: str, python: str, short: bool) -> None:
    """In the process of its own."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    found = contender(section, name).measure(Setting(python, FOLDER, short))
    print(LAST + json.dumps(found), flush=True)


# ---- keeping it --------------------------------------------------------------------------------------


def kept_path(short: bool) -> Path:
    return FOLDER / ("short.json" if short else "full.json")


def resume(run: Run) -> None:
    path = kept_path(run.short)
    if not path.exists():
        return
    age_s = time.time() - path.stat().st_mtime
    if age_s < KEPT_S:
        run.done = [Measurement(**one) for one in json.loads(path.read_text())]
        print(f"going on with a run of {age_s / 60:.0f} minutes ago; --afresh begins anew", flush=True)


def keep(run: Run) -> None:
    path = kept_path(run.short)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps([dataclasses.asdict(one) for one in run.done]))
    part.rename(path)


def publish(run: Run, sections: list[str]) -> None:
    """The figures of whole sections take the place of those in the repository."""
    figures = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    for name in sections:
        made = [one for one in run.done if one.section == name]
        figures[name] = {
            "measurements": [
                {key: value for key, value in dataclasses.asdict(one).items() if key != "section"} for one in made
            ],
            "short": run.short,
            "date": time.strftime("%Y-%m-%d"),
            "machine": f"{os.cpu_count()} CPUs, {platform.system()} {platform.release()}, Python "
            f"{platform.python_version()}",
        }
    ordered: dict[str, Any] = {name: figures[name] for name in SECTIONS if name in figures}
    FIGURES.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers-python", nargs="*", default=[], help="interpreters that have the peers")
    parser.add_argument("--sections", default=",".join(SECTIONS))
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="at most so many")
    parser.add_argument(
        "--minutes", type=float, default=13.0, help="no round after the first begins that would end later"
    )
    parser.add_argument("--short", action="store_true", help="one round of small sizes: to see that it works")
    parser.add_argument("--afresh", action="store_true", help="do not go on with an interrupted run")
    parser.add_argument("--page", action="store_true", help="measure nothing, make the page")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        measure_one(*options.one, options.short)
        return
    from scoreboard_page import write_page

    if not options.page:
        sections = options.sections.split(",")
        if unknown := set(sections) - set(SECTIONS):
            parser.error(f"unknown sections {sorted(unknown)}; there are {', '.join(SECTIONS)}")
        pythons = {python: versions(python) for python in (sys.executable, *options.peers_python)}
        run = Run(options.short, pythons, options.minutes * 60)
        if not options.afresh:
            resume(run)
        for name, one, number in run.due(sections, 1 if options.short else options.rounds):
            made = run.measure(name, one, number)
            run.done.append(made)
            keep(run)
            print(f"{name:12}{one.name:22}round {number + 1}{made.seconds:8.1f} s  {made.failed}", flush=True)
        publish(run, sections)
        shutil.rmtree(FOLDER)
        print(f"{run.spent_s / 60:.1f} minutes")
    print(write_page())


if __name__ == "__main__":
    main()
