"""A source distribution has all that a build needs, and what is built of it runs.

Nothing is compiled here, that takes a minute: the C++ sources are compared, and the core that was built of the same
ones is put in its place. `make sdist-check` does it without that short cut.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import msgspec
import pytest

import weft._native

pytest.importorskip("scikit_build_core", reason="scikit-build-core is not installed")
ROOT = Path(__file__).resolve().parents[2]
BUILD_SDIST = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"
BUILD_WHEEL = """
import sys
from scikit_build_core.build import build_wheel
build_wheel(sys.argv[1], {"wheel.cmake": "false"})
"""
USE = "import weft; print(weft.get(weft.remote(lambda: weft.__file__).remote()))"


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution of this checkout, unpacked where nothing else is."""
    folder = tmp_path_factory.mktemp("sdist")
    run_python(BUILD_SDIST, str(folder), cwd=ROOT)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    archive.unlink()
    (only,) = folder.iterdir()
    return only


def test_the_source_distribution_has_every_source_as_it_is_here(unpacked: Path) -> None:
    package = {path for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    native = {*(ROOT / "native").glob("*.cpp"), *(ROOT / "native").glob("*.hpp")}
    others = {ROOT / name for name in ("CMakeLists.txt", "pyproject.toml", "README.md", "LICENSE")}
    assert ROOT / "src/weft/dashboard/static/vendor/echarts.min.js" in package and ROOT / "native/ring.hpp" in native
    for source in package | native | others:
        assert (unpacked / source.relative_to(ROOT)).read_bytes() == source.read_bytes()


def test_the_source_distribution_has_no_more_than_a_build_and_a_reader_need(unpacked: Path) -> None:
    allowed = {"CMakeLists.txt", "LICENSE", "PKG-INFO", "README.md", "native", "pyproject.toml", "src"}
    assert {path.name for path in unpacked.iterdir()} == allowed
    assert not (unpacked / "native" / "tests").exists()


def test_a_wheel_made_of_the_unpacked_source_distribution_runs(unpacked: Path, tmp_path: Path) -> None:
    run_python(BUILD_WHEEL, str(tmp_path), cwd=unpacked)
    (wheel,) = tmp_path.glob("*.whl")
    installed = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    shutil.copy(weft._native.__file__, installed / "weft")
    # An interpreter without the environment of the tests, in which this checkout is installed: folders on PYTHONPATH
    # are searched, but their .pth files are not read.
    environment = {**os.environ, "PYTHONPATH": f"{installed}{os.pathsep}{Path(msgspec.__file__).parents[1]}"}
    done = subprocess.run(
        [str(sys._base_executable), "-c", USE],  # type: ignore[attr-defined]
        cwd=tmp_path, env=environment, check=True, stdout=subprocess.PIPE, text=True, timeout=280,
    )  # fmt: skip
    assert done.stdout.strip() == str(installed / "weft" / "__init__.py")


def run_python(program: str, *arguments: str, cwd: Path) -> None:
    subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=cwd, check=True, capture_output=True, text=True, timeout=280
    )
