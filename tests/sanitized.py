"""Tests with the native modules built under sanitizers. What is installed is exchanged meanwhile, and put back.

python tests/sanitized.py pandas             the tests of small frames, under ASan and UBSan
python tests/sanitized.py engine [ARGS]      the engine's tests, under ASan and UBSan, workers and node included
python tests/sanitized.py threads [SECONDS]  stress/threads.py under TSan

What any process reports, workers and daemons included, is written to a folder, and fails the run whatever came of that
process: a worker that is ended by a sanitizer is a worker that crashed, and its task may be retried.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent
BUILD = ROOT / "build"
REPORTS = BUILD / "sanitizer-reports"
LOG = f"log_path={REPORTS / 'process'}"
COMPILER = os.environ.get("CXX", "g++")
FLAGS = "-std=c++20 -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -shared -fPIC".split()
PANDAS = ["-k", "not resampled and not moves_to_weft and not extension", "tests/weft_modin/test_pandas_direct.py"]
ENGINE = [
    "tests/api",
    "tests/engine",
    "tests/faults",
    "--timeout=900",
    "-k",
    # Of processes that are without the sanitizers' libraries, of how much memory or time Weft itself takes, of
    # programs with a limit on memory, which the sanitizers' shadow exceeds, and of a task that reads a null pointer.
    "not runtime_env and not packaging and not memory_limits and not test_memory and not importing_weft_is_cheap"
    " and not test_idle and not test_long_lives and not test_queue_memory and not segfault",
]


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what is installed is put back then, too
    what, *arguments = sys.argv[1:]
    if what == "pandas":
        import weft.pandas.modin._direct as module

        with _exchanged(module.__file__, _pandas_module()):
            return _run(["-m", "pytest", "-q", *PANDAS], _address())
    import weft._native as engine

    if what == "engine":
        with _exchanged(engine.__file__, _extension("address,undefined")):
            return _run(["-m", "pytest", "-q", "-p", "no:cacheprovider", *(arguments or ENGINE)], _address())
    with _exchanged(engine.__file__, _extension("thread")):
        return _run(["tests/stress/threads.py", *(arguments or ["60"])], _thread(), _unrandomised())


@contextlib.contextmanager
def _exchanged(installed: str, built: Path) -> Iterator[None]:
    kept = BUILD / "kept"
    shutil.copy2(installed, kept)
    try:
        _put(built, installed)
        yield
    finally:
        _put(kept, installed)


def _put(module: Path, at: str) -> None:
    """As another file: a process that has mapped the one that was there keeps it."""
    shutil.copy2(module, f"{at}.new")
    os.replace(f"{at}.new", at)


def _run(arguments: list[str], environment: dict[str, str], before: list[str] | None = None) -> int:
    command = [*(before or []), sys.executable, *arguments]
    shutil.rmtree(REPORTS, ignore_errors=True)
    REPORTS.mkdir(parents=True)
    status = subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, check=False).returncode
    reports = [path for path in sorted(REPORTS.iterdir()) if path.stat().st_size]
    for path in reports:
        print(f"==== {path.name}\n{path.read_text(errors='replace')}", file=sys.stderr)
    print(f"{len(reports)} processes have reported something", file=sys.stderr)
    return status or int(bool(reports))


def _extension(sanitizers: str) -> Path:
    folder = BUILD / f"sanitize-extension-{sanitizers.partition(',')[0]}"
    tools = Path(sys.executable).parent
    configure = [tools / "cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "--log-level=WARNING"]
    options = {
        "CMAKE_MAKE_PROGRAM": tools / "ninja",
        "CMAKE_BUILD_TYPE": "RelWithDebInfo",
        "Python_EXECUTABLE": sys.executable,
        "WEFT_SANITIZE": sanitizers,
    }
    subprocess.run([*configure, *(f"-D{name}={value}" for name, value in options.items())], check=True)
    subprocess.run([tools / "cmake", "--build", folder, "--target", "_native", "--", "--quiet"], check=True)
    [built] = folder.glob("_native*.so")
    return built


def _pandas_module() -> Path:
    built = BUILD / "sanitize-direct.so"
    includes = ["-I", str(ROOT / "native"), "-I", sysconfig.get_paths()["include"]]
    sources = map(str, sorted((ROOT / "native" / "pandas").glob("*.cpp")))
    BUILD.mkdir(exist_ok=True)
    subprocess.run([COMPILER, *FLAGS, *includes, *sources, "-o", str(built)], check=True)
    return built


def _address() -> dict[str, str]:
    """What Python keeps to its end is no leak, and it is not built to tell: leaks are not looked for. A fork that waits
    in the zygote for work has no stack to tell of."""
    return {
        **_preloaded("libasan", "libubsan"),
        "ASAN_OPTIONS": f"detect_leaks=0:detect_stack_use_after_return=0:abort_on_error=1:{LOG}",
        "UBSAN_OPTIONS": f"print_stacktrace=1:{LOG}",
    }


def _thread() -> dict[str, str]:
    """The zygote forks; its children have the threads that they make."""
    options = f"suppressions={TESTS / 'thread_sanitizer.txt'}:die_after_fork=0:report_signal_unsafe=0:exitcode=66:{LOG}"
    return {**_preloaded("libtsan"), "TSAN_OPTIONS": options}


def _preloaded(*libraries: str) -> dict[str, str]:
    """Python itself is not built with them, so they are loaded first; with them what C++ exceptions need, which they
    look for when they begin."""
    paths = []
    for name in (*libraries, "libstdc++"):
        told = subprocess.run([COMPILER, f"-print-file-name={name}.so"], capture_output=True, text=True, check=True)
        paths.append(os.path.realpath(told.stdout.strip()))
    return {"LD_PRELOAD": " ".join(paths), "PYTHONMALLOC": "malloc"}


def _unrandomised() -> list[str]:
    """ThreadSanitizer of older compilers cannot map its shadow when addresses are randomised much."""
    command = ["setarch", platform.machine(), "-R"]
    works = subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0
    return command if works else []


if __name__ == "__main__":
    sys.exit(main())
