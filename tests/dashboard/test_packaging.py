"""The pages ship with the package: every file of them is in a wheel and in a source distribution."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("scikit_build_core", reason="scikit-build-core is not installed")
ROOT = Path(__file__).resolve().parents[2]
STATIC = ROOT / "src" / "weft" / "dashboard" / "static"
# Without CMake: what is compiled takes minutes, and the pages are not.
BUILD = """
import sys
from scikit_build_core.build import build_sdist, build_wheel
build_sdist(sys.argv[1])
build_wheel(sys.argv[1], {"wheel.cmake": "false"})
"""


def test_every_file_of_the_pages_is_in_the_wheel_and_in_the_source_distribution(tmp_path: Path) -> None:
    wanted = {str(path.relative_to(ROOT / "src")) for path in STATIC.rglob("*") if path.is_file()}
    assert {"weft/dashboard/static/index.html", "weft/dashboard/static/vendor/echarts.min.js"} <= wanted
    subprocess.run([sys.executable, "-c", BUILD, str(tmp_path)], cwd=ROOT, check=True, capture_output=True, timeout=100)
    (wheel,) = tmp_path.glob("*.whl")
    assert wanted <= set(zipfile.ZipFile(wheel).namelist())
    (source,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{path}" for path in wanted} <= held
