"""Runs packages built on Ray on Weft, unchanged: each with a program of its kind, in an environment of its own.

    python tests/compat/ray_packages.py [--only WORD] [--folder PATH] [--write]

The programs are in `ray_packages`; the first line of each names what is installed for it. An environment lies in front
of this one, so that what is here already is not fetched again, and is removed when its program has ended. The programs
run by `python -m weft.compat`, so `ray` is Weft, and `pip` finds its metadata where a package demands Ray.
`ray_packages.md` is the table of what came of it.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from weft.compat.alias import ON_PATH

PROGRAMS = Path(__file__).with_name("ray_packages")
TABLE = Path(__file__).with_name("ray_packages.md")
LIMIT_S = 900.0
RUNS = "runs"
_NEEDS = "# needs: "
_WITHOUT_DEPENDENCIES = "# without dependencies: "


def wanted(program: Path) -> tuple[list[str], list[str]]:
    """What pip is to install for it: with dependencies, and without (where they would be Ray's own extras)."""
    found: dict[str, list[str]] = {_NEEDS: [], _WITHOUT_DEPENDENCIES: []}
    for line in program.read_text().splitlines():
        for start, names in found.items():
            if line.startswith(start):
                names += line.removeprefix(start).split()
    return found[_NEEDS], found[_WITHOUT_DEPENDENCIES]


def environment_of(program: Path, folder: Path) -> Path:
    """The Python of a new environment, with this one behind it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    sites = next((folder / "lib").glob("python*")) / "site-packages"
    behind = next(Path(entry) for entry in sys.path if entry.endswith("site-packages"))
    (sites / "behind.pth").write_text(f"import site; site.addsitedir({str(behind)!r})\n")
    with_dependencies, alone = wanted(program)
    pip = [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-cache-dir"]
    variables = {**os.environ, "PYTHONPATH": ON_PATH}
    for options, names in (([], with_dependencies), (["--no-deps"], alone)):
        if names:
            subprocess.run(
                [*pip, *options, *names], check=True, env=variables, capture_output=True, text=True, timeout=LIMIT_S
            )
    return python


def run(python: Path, program: Path, folder: Path) -> str:
    """RUNS, or the last line of what it has said."""
    process = subprocess.Popen(
        [python, "-m", "weft.compat", program],
        cwd=folder,
        env={**os.environ, "HOME": str(folder), "XDG_STATE_HOME": str(folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return f"did not end within {LIMIT_S:g} s"
    if process.returncode == 0:
        return RUNS
    if os.environ.get("WEFT_PACKAGES_VERBOSE"):
        print(said[-6000:])
    lines = [line for line in said.splitlines() if line.strip()]
    return lines[-1][:200] if lines else f"exit status {process.returncode}"


def version_in(python: Path, package: str) -> str:
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    found = subprocess.run([python, "-c", code], capture_output=True, text=True)
    return found.stdout.strip() if found.returncode == 0 else "?"


def row(program: Path, folder: Path) -> tuple[str, str, str]:
    """Package, version, result."""
    with_dependencies, alone = wanted(program)
    package = next(iter([*with_dependencies, *alone]), program.stem).split("[")[0].split("=")[0].split("<")[0]
    try:
        python = environment_of(program, folder / "venv")
    except subprocess.CalledProcessError as error:
        said = [line for line in (error.stderr or str(error)).splitlines() if line.strip()]
        return package, "?", f"cannot be installed: {said[-1][:160]}"
    return package, version_in(python, package), run(python, program, folder)


def table(rows: dict[str, tuple[str, str, str]]) -> str:
    lines = ["| package | version | unchanged on Weft |", "|---|---|---|"]
    lines += [f"| {package} | {version} | {result} |" for _, (package, version, result) in sorted(rows.items())]
    return (
        "Packages built on Ray, each with a program of its kind "
        f"(`tests/compat/ray_packages`), on Weft {importlib.metadata.version('weft')}:\n\n" + "\n".join(lines) + "\n"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="packages whose names contain it")
    parser.add_argument("--folder", type=Path, help="where the environments are made; a temporary one without it")
    parser.add_argument("--write", action="store_true", help="write the table, if all were run")
    options = parser.parse_args()
    rows: dict[str, tuple[str, str, str]] = {}
    for program in sorted(PROGRAMS.glob("*.py")):
        if options.only not in program.stem:
            continue
        folder = Path(tempfile.mkdtemp(prefix="ray-packages-", dir=options.folder))
        begun = time.monotonic()
        try:
            rows[program.stem] = row(program, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        print(f"{program.stem}: {rows[program.stem][2]} ({time.monotonic() - begun:.0f} s)", flush=True)
    text = table(rows)
    if options.write and not options.only:
        TABLE.write_text(text)
    print(text)
    return 0 if all(result == RUNS for _, _, result in rows.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
