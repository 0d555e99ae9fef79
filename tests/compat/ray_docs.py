"""Runs the programs of Ray's documentation on Weft, unchanged, and compares with what is known of them.

    python tests/compat/ray_docs.py --repository PATH [--only WORD] [--write]

The programs (`doc/source/*/doc_code`) are read from a clone of Ray's repository, at whatever commit it has, and are not
kept. `ray_docs.json` has for each name "runs", or why it does not; a program that is said to run and does not is an
error, unless it lacks a package that is none of Ray's: those of Serve want `requests`. One that is "not tried" would
harm the machine. Those of the core have their plain names, others that of their library before it.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

LIBRARIES = {"ray-core": "", "data": "data/", "serve": "serve/", "train": "train/", "tune": "tune/"}
"""Folders of the documentation, and what goes before the names of their programs."""
KNOWN = Path(__file__).with_name("ray_docs.json")
LIMIT_S = 300.0
"""Two of them compute for minutes on two busy cores."""
RUNS = "runs"
NO_INSTALLS = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
"""Some of them call pip: this environment is to stay as it is."""
BIN = Path(sys.executable).parent
"""Of this environment, with the `ray` command that some of them call."""


def git(repository: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=repository, check=True, capture_output=True, text=True).stdout


def programs(repository: Path) -> dict[str, str]:
    """The text of each, by its name below its folder."""
    found = {}
    for library, prefix in LIBRARIES.items():
        folder = f"doc/source/{library}/doc_code"
        for name in git(repository, "ls-tree", "-r", "--name-only", "HEAD", folder).split():
            if name.endswith(".py"):
                found[prefix + name.removeprefix(f"{folder}/")] = git(repository, "show", f"HEAD:{name}")
    return found


def beside(name: str, texts: Mapping[str, str]) -> dict[str, str]:
    """The programs of the same folder, by their file's name."""
    folder = Path(name).parent
    return {Path(other).name: text for other, text in texts.items() if Path(other).parent == folder}


def lacks_a_package(result: str) -> bool:
    """Whether it ended because a package is not installed here that is none of Ray's."""
    missing = re.search(r"ModuleNotFoundError: No module named '(\w+)", result)
    return missing is not None and missing[1] != "ray"


def run(name: str, text: str, limit_s: float, neighbours: Mapping[str, str] = MappingProxyType({})) -> str:
    """RUNS, or the last line of what it has said. `neighbours` are the programs of its folder, by their file's name:
    some import others."""
    with tempfile.TemporaryDirectory(prefix="ray-docs-") as folder:
        for other, its_text in neighbours.items():
            Path(folder, other).write_text(its_text)
        program = Path(folder, Path(name).name)
        program.write_text(text)
        process = subprocess.Popen(
            [sys.executable, "-m", "weft.compat", str(program)],
            cwd=folder,
            env={
                **os.environ,
                **NO_INSTALLS,
                "HOME": folder,
                "XDG_STATE_HOME": folder,
                "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            said, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return f"did not end within {limit_s:g} s"
    if process.returncode == 0:
        return RUNS
    lines = [line for line in said.splitlines() if line.strip()]
    return lines[-1][:200] if lines else f"exit status {process.returncode}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repository", type=Path, required=True, help="a clone of Ray's repository")
    parser.add_argument("--only", default="", help="programs whose names contain it")
    parser.add_argument("--processes", type=int, default=1, help="so many at once")
    parser.add_argument("--limit-s", type=float, default=LIMIT_S, help="a program that takes longer has failed")
    parser.add_argument("--write", action="store_true", help="note the results of programs that are not known yet")
    options = parser.parse_args()
    known: dict[str, str] = json.loads(KNOWN.read_text()) if KNOWN.exists() else {}
    all_texts = programs(options.repository)
    chosen = {
        name: text
        for name, text in all_texts.items()
        if options.only in name and not known.get(name, "").startswith("not tried")
    }
    results: dict[str, str] = {}
    with concurrent.futures.ThreadPoolExecutor(options.processes) as pool:
        futures = {
            pool.submit(run, name, text, options.limit_s, beside(name, all_texts)): name
            for name, text in chosen.items()
        }
        for future in concurrent.futures.as_completed(futures):
            name = futures[future]
            results[name] = future.result()
            print(f"{name}: {results[name]}", flush=True)
    if options.write:
        merged = {**results, **known} | {name: RUNS for name, result in results.items() if result == RUNS}
        KNOWN.write_text(json.dumps(dict(sorted(merged.items())), indent=2) + "\n")
    worse = [
        name
        for name, result in results.items()
        if result != RUNS and not lacks_a_package(result) and known.get(name, RUNS) == RUNS
    ]
    runs = sum(result == RUNS for result in results.values())
    print(f"{runs} of {len(results)} run")
    if worse and not options.write:
        print(f"said to run, or not known: {', '.join(sorted(worse))}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
