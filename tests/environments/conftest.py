"""A cache of its own for each test, and wheels made without a network."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("WEFT_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def make_wheel(tmp_path: Path) -> Callable[..., str]:
    """The path of a wheel with one module."""

    def make(name: str, version: str = "1.0", source: str = "") -> str:
        info = f"{name}-{version}.dist-info"
        path = tmp_path / f"{name}-{version}-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as file:
            file.writestr(f"{name}.py", source or f"version = {version!r}\n")
            file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            file.writestr(
                f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            file.writestr(f"{info}/RECORD", "")
        return str(path)

    return make
