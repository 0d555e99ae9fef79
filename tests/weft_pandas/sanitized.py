"""The tests of small frames, with their native module built under ASan and UBSan.

python tests/weft_pandas/sanitized.py
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

NATIVE = Path(__file__).parents[2] / "native"
FLAGS = "-std=c++20 -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -shared -fPIC".split()
TESTS = [
    "-k",
    "not resampled and not moves_to_weft and not extension",
    str(Path(__file__).parent / "test_pandas_direct.py"),
]
"""Those in this process: a worker would be without the sanitizers' libraries."""


def main() -> int:
    import weft.pandas._direct

    compiler = os.environ.get("CXX", "g++")
    installed = Path(weft.pandas._direct.__file__)
    with tempfile.TemporaryDirectory() as folder:
        kept, built = Path(folder) / "kept", Path(folder) / "built"
        includes = ["-I", str(NATIVE), "-I", sysconfig.get_paths()["include"]]
        sources = map(str, sorted((NATIVE / "pandas").glob("*.cpp")))
        subprocess.run([compiler, *FLAGS, *includes, *sources, "-o", str(built)], check=True)
        shutil.copy2(installed, kept)
        try:
            shutil.copy2(built, installed)
            return subprocess.run([sys.executable, "-m", "pytest", "-q", *TESTS], env=_sanitized(compiler)).returncode
        finally:
            shutil.copy2(kept, installed)


def _sanitized(compiler: str) -> dict[str, str]:
    """Python itself is not built for them: their libraries are loaded first, and what Python keeps is no leak."""
    libraries = [
        subprocess.run([compiler, f"-print-file-name={name}.so"], capture_output=True, text=True, check=True).stdout
        for name in ("libasan", "libubsan")
    ]
    preload = " ".join(library.strip() for library in libraries)
    return {**os.environ, "LD_PRELOAD": preload, "ASAN_OPTIONS": "detect_leaks=0"}


if __name__ == "__main__":
    sys.exit(main())
