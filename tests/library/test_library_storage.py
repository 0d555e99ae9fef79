"""Where an experiment lies: what is written there is there whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from weft.library.storage import LocalStorage, UrlStorage

FILES = ("first", "second", "third")


class Killed(BaseException):
    """Stands for the end of the process: nothing catches it."""


def folder_with(path: Path, text: str) -> Path:
    path.mkdir(parents=True)
    for name in FILES:
        (path / name).write_text(text)
    return path


def contents(path: Path) -> set[str]:
    return {(path / name).read_text() if (path / name).exists() else "nothing" for name in FILES}


@pytest.mark.parametrize("last_call", range(8))
def test_a_folder_is_whole_or_not_there_whenever_its_writer_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last_call: int
) -> None:
    storage = LocalStorage(str(tmp_path / "experiment"))
    storage.put_folder(folder_with(tmp_path / "one", "old"), "trial/checkpoint")
    new = folder_with(Path(storage.staging() or "", "two"), "new")
    calls = 0

    def counted(function: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > last_call:
                raise Killed
            return function(*args, **options)

        return call

    with monkeypatch.context() as patch:
        for module, name in ((os, "rename"), (os, "unlink"), (os, "rmdir"), (os, "mkdir"), (shutil, "copytree")):
            patch.setattr(module, name, counted(getattr(module, name)))
        with contextlib.suppress(Killed):
            storage.put_folder(new, "trial/checkpoint")
    assert contents(Path(storage.path("trial/checkpoint"))) in ({"old"}, {"new"}, {"nothing"})
    again = folder_with(Path(storage.staging() or "", "three"), "again")
    storage.put_folder(again, "trial/checkpoint")
    assert contents(Path(storage.path("trial/checkpoint"))) == {"again"}


def test_a_folder_of_another_file_system_is_copied_before_it_is_moved_into_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(str(tmp_path / "experiment"))
    source = folder_with(tmp_path / "one", "new")
    here = os.stat

    class Elsewhere:
        st_dev = -1

    monkeypatch.setattr(Path, "stat", lambda self, **options: Elsewhere() if self == source else here(self, **options))
    storage.put_folder(source, "trial/checkpoint")
    monkeypatch.undo()
    assert contents(Path(storage.path("trial/checkpoint"))) == {"new"}
    assert not source.exists()


def test_a_name_at_a_url_that_leads_out_of_its_folder_is_not_taken(tmp_path: Path) -> None:
    storage = UrlStorage("memory://experiment")
    storage.put_folder(folder_with(tmp_path / "one", "old"), "trial")
    with storage.folder("trial") as local:
        assert contents(local) == {"old"}
    storage._files.store["/experiment/trial/../../../out"] = storage._files.store["/experiment/trial/first"]
    with pytest.raises(PermissionError, match="leads out of the folder trial"), storage.folder("trial"):
        pass
